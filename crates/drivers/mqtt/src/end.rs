//! Why a connection ended.

use std::sync::Arc;

use crate::wire::{Fault, Reason};

/// Why a connection ended, or never stood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) reason: Arc<str>,
    /// Somebody has to change something before a connection can stand.
    pub(crate) refused: bool,
    /// Another client of our name took the session.
    pub(crate) taken_over: bool,
    /// What the broker is told on leaving, where it still listens.
    pub(crate) tell: Option<Reason>,
}

impl End {
    /// The network's doing.
    pub(crate) fn of(reason: impl Into<Arc<str>>) -> Self {
        End {
            reason: reason.into(),
            refused: false,
            taken_over: false,
            tell: None,
        }
    }

    /// The broker's answer.
    pub(crate) fn said(what: &str, reason: Reason, words: Option<&str>) -> Self {
        let words = words.map_or_else(String::new, |words| format!(", {words:?}"));
        End {
            refused: reason.is_refusal(),
            taken_over: reason == Reason::TAKEN_OVER,
            ..End::of(format!("{what}: {reason}{words}"))
        }
    }
}

impl From<Fault> for End {
    fn from(fault: Fault) -> Self {
        End {
            tell: Some(fault.reason()),
            ..End::of(fault.to_string())
        }
    }
}
