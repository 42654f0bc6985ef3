//! What every table uses: an error, and something that fails so many times.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay::proxied::MethodError;

/// The error of the traits here.
#[derive(Debug)]
pub(crate) enum Bad {
    /// Another try may help.
    Passing,
    /// An answer of the domain.
    NotFound,
    /// Ours.
    GivenUp(MethodError<Bad>),
}

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bad::Passing => f.write_str("it may pass"),
            Bad::NotFound => f.write_str("not found"),
            Bad::GivenUp(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Bad {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Bad::GivenUp(error) => error.source(),
            _ => None,
        }
    }
}

impl From<MethodError<Bad>> for Bad {
    fn from(error: MethodError<Bad>) -> Self {
        Bad::GivenUp(error)
    }
}

pub(crate) fn passes(error: &Bad) -> bool {
    matches!(error, Bad::Passing)
}

/// Fails so many times, then works; counts how often it was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Flaky {
    asked: Arc<AtomicU32>,
    failures: u32,
}

impl Flaky {
    pub(crate) fn failing(failures: u32) -> Self {
        Flaky {
            failures,
            ..Flaky::default()
        }
    }

    pub(crate) fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }

    pub(crate) fn ask<T>(&self, value: T) -> Result<T, Bad> {
        match self.asked.fetch_add(1, Ordering::SeqCst) < self.failures {
            true => Err(Bad::Passing),
            false => Ok(value),
        }
    }
}
