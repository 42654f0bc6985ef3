//! Policies: immutable, already valid settings.
//!
//! [`Settings`] are plain data that anyone may fill in; [`Policy::new`] refuses nonsense with every
//! problem at once. The engine takes only a [`Policy`]. [`KEYS`] lists every setting by the path it has
//! in files, in `explain` and in the admin API, so that a key exists in exactly one place.

mod bounds;
mod keys;
mod preset;
mod problems;
mod setting;
mod settings;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

pub use bounds::{Bounds, Range};
pub use keys::{KEYS, Key, Kind, key};
pub use preset::Preset;
pub use setting::Setting;
pub use settings::*;

/// Settings that were found valid. Cheap to share; compared by value.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    settings: Settings,
}

/// One thing wrong with settings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct PolicyProblem {
    /// The key's path, such as `retry.attempts_max`.
    pub path: &'static str,
    /// What is wrong and what would be right.
    pub message: String,
}

impl Policy {
    /// Takes settings over if they make sense; otherwise says all that is wrong with them.
    pub fn new(settings: Settings) -> Result<Arc<Policy>, Vec<PolicyProblem>> {
        let problems = settings.problems();
        if problems.is_empty() {
            Ok(Arc::new(Policy { settings }))
        } else {
            Err(problems)
        }
    }

    /// The policy of a preset, unchanged.
    pub fn preset(preset: Preset) -> Arc<Policy> {
        Arc::new(Policy {
            settings: preset.settings(),
        })
    }

    /// A plain copy to change and hand to [`Policy::new`].
    pub fn to_settings(&self) -> Settings {
        self.settings.clone()
    }

    /// The time limit of one attempt of a call with this deadline: what the user set, else the
    /// default cut to half the deadline, so that one hanging endpoint leaves time for another.
    pub fn attempt_limit(&self, deadline: Option<Duration>) -> Option<Duration> {
        let retry = &self.settings.retry;
        match (retry.attempt_timeout, deadline) {
            (Some(limit), Some(deadline)) if !retry.attempt_timeout_is_set => {
                Some(limit.min(deadline / 2))
            }
            (limit, _) => limit,
        }
    }
}

impl Deref for Policy {
    type Target = Settings;

    fn deref(&self) -> &Settings {
        &self.settings
    }
}
