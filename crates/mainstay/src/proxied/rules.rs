//! What an error of a method means, and how it carries ours.

use std::fmt;

use super::MethodError;

/// Says what an error `E` means. A predicate `Fn(&E) -> bool` is one, if `E` can be made from a
/// [`MethodError<E>`](MethodError); [`Rules`] say more. A trait with several types of errors needs a type
/// of one's own that is a `Judge` of each.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which errors of the type `{E}` are transient",
    label = "no rules for `{E}`",
    note = "give a predicate such as `|error: &{E}| …`, or `Rules`; `{E}` must implement `From<MethodError<{E}>>`, or give `Rules::wrapping`"
)]
pub trait Judge<E>: Send + Sync {
    /// Whether another try may help. Asked once for each failed attempt, before anything else.
    fn is_transient(&self, error: &E) -> bool;

    /// Whether the error weighs on the circuit. Default: if it is transient. An error of the domain (not
    /// found, not allowed) is an answer and says nothing against whoever gave it.
    fn is_failure(&self, _error: &E, is_transient: bool) -> bool {
        is_transient
    }

    /// Whether the error proves that nothing was done, so that even a method marked `write` may be tried
    /// again. Default: never.
    fn had_no_effect(&self, _error: &E) -> bool {
        false
    }

    /// Makes the trait's own error of ours.
    fn wrap(&self, error: MethodError<E>) -> E;
}

impl<E, F> Judge<E> for F
where
    F: Fn(&E) -> bool + Send + Sync,
    E: Carries,
{
    fn is_transient(&self, error: &E) -> bool {
        self(error)
    }

    fn wrap(&self, error: MethodError<E>) -> E {
        E::carry(error)
    }
}

/// An error that can carry ours: every one with a `From<MethodError<Self>>`. It has a name of its own so
/// that the compiler can say what to implement.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot carry the error that says how often a method was tried",
    label = "needs `impl From<MethodError<{Self}>> for {Self}`",
    note = "implement `From<mainstay::proxied::MethodError<{Self}>>` for `{Self}`, or give `mainstay::proxied::Rules::wrapping(predicate, wrap)` instead of a predicate alone"
)]
pub trait Carries: Sized {
    /// Makes it of ours.
    fn carry(error: MethodError<Self>) -> Self;
}

#[diagnostic::do_not_recommend]
impl<E: From<MethodError<E>>> Carries for E {
    fn carry(error: MethodError<E>) -> E {
        error.into()
    }
}

type Predicate<E> = Box<dyn Fn(&E) -> bool + Send + Sync>;

/// Rules for one type of errors, as a type that can be named.
pub struct Rules<E> {
    is_transient: Predicate<E>,
    is_failure: Option<Predicate<E>>,
    had_no_effect: Option<Predicate<E>>,
    wrap: Box<dyn Fn(MethodError<E>) -> E + Send + Sync>,
}

impl<E: 'static> Rules<E> {
    /// Errors that this predicate names are worth another try. One that does not go away is handed to
    /// the caller as the trait's own error, made by `From<MethodError<E>>`.
    pub fn transient(predicate: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self
    where
        E: Carries,
    {
        Self::wrapping(predicate, E::carry)
    }

    /// The same for an error type that cannot have that `From`, such as a box or one of another crate:
    /// `wrap` makes it.
    pub fn wrapping(
        predicate: impl Fn(&E) -> bool + Send + Sync + 'static,
        wrap: impl Fn(MethodError<E>) -> E + Send + Sync + 'static,
    ) -> Self {
        Rules {
            is_transient: Box::new(predicate),
            is_failure: None,
            had_no_effect: None,
            wrap: Box::new(wrap),
        }
    }

    /// Says which errors weigh on the circuit, transient or not. Without it: the transient ones.
    #[must_use]
    pub fn is_failure(mut self, predicate: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.is_failure = Some(Box::new(predicate));
        self
    }

    /// Says which errors prove that nothing was done (a refused connection): after those even a method
    /// marked `write` is tried again. Without it: none.
    #[must_use]
    pub fn had_no_effect(mut self, predicate: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.had_no_effect = Some(Box::new(predicate));
        self
    }
}

impl<E> Judge<E> for Rules<E> {
    fn is_transient(&self, error: &E) -> bool {
        (self.is_transient)(error)
    }

    fn is_failure(&self, error: &E, is_transient: bool) -> bool {
        match &self.is_failure {
            Some(predicate) => predicate(error),
            None => is_transient,
        }
    }

    fn had_no_effect(&self, error: &E) -> bool {
        self.had_no_effect
            .as_ref()
            .is_some_and(|predicate| predicate(error))
    }

    fn wrap(&self, error: MethodError<E>) -> E {
        (self.wrap)(error)
    }
}

impl<E> fmt::Debug for Rules<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}
