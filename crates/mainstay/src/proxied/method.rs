//! What is known of a method before it is called.

use mainstay_engine::Safety;

/// A method of a trait, or a closure of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Method {
    pub(super) name: &'static str,
    pub(super) conduct: Way,
}

/// Whether a method can be tried again at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Retried { safety: Safety, declared: bool },
    Passed { because: &'static str },
}

impl Method {
    /// May be tried again: naming an error transient says that another try is wanted, so without a word
    /// about its safety it counts as a write that has the effect of one when it runs twice.
    pub const fn new(name: &'static str) -> Self {
        Self::retried(name, Safety::IdempotentWrite, false)
    }

    /// Changes nothing.
    pub const fn read(name: &'static str) -> Self {
        Self::retried(name, Safety::Read, true)
    }

    /// Twice has the effect of once.
    pub const fn idempotent_write(name: &'static str) -> Self {
        Self::retried(name, Safety::IdempotentWrite, true)
    }

    /// Runs at most once, unless the rules say of an error that nothing had happened
    /// ([`Rules::had_no_effect`](super::Rules::had_no_effect)).
    pub const fn write(name: &'static str) -> Self {
        Self::retried(name, Safety::Write, true)
    }

    /// Is handed through, whatever the proxy's builder says.
    pub const fn passed(name: &'static str, because: &'static str) -> Self {
        Method {
            name,
            conduct: Way::Passed { because },
        }
    }

    const fn retried(name: &'static str, safety: Safety, declared: bool) -> Self {
        Method {
            name,
            conduct: Way::Retried { safety, declared },
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}
