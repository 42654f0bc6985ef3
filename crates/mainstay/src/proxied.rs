//! Proxies of traits and of closures: the same methods, with the engine's call around them.
//!
//! [`#[mainstay::proxied]`](macro@crate::proxied) on a trait `Store` makes a type `StoreProxy` that has the
//! same trait. What it does to a method that fails is in three parts:
//!
//! - *Rules* ([`Rules`], or a predicate alone) say what an error means: is it transient, does it weigh on
//!   the circuit, how does the trait's own error carry ours.
//! - A *policy* says how often and how long; the default is the preset `component`.
//! - `include` and `exclude` say to which methods that applies. All others are handed through.
//!
//! ```
//! use mainstay::proxied::MethodError;
//!
//! #[derive(Debug)]
//! enum StoreError {
//!     Unreachable,
//!     NotFound,
//!     /// A transient error that did not go away.
//!     GivenUp(MethodError<StoreError>),
//! }
//! # impl std::fmt::Display for StoreError {
//! #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { write!(f, "{self:?}") }
//! # }
//! impl From<MethodError<StoreError>> for StoreError {
//!     fn from(error: MethodError<StoreError>) -> Self {
//!         StoreError::GivenUp(error)
//!     }
//! }
//!
//! #[mainstay::proxied]
//! trait Store {
//!     #[proxied(read)]
//!     async fn get(&self, key: &str) -> Result<u32, StoreError>;
//! }
//!
//! struct Remote;
//! impl Store for Remote {
//!     async fn get(&self, key: &str) -> Result<u32, StoreError> {
//!         if key == "seven" { Ok(7) } else { Err(StoreError::NotFound) }
//!     }
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let store = StoreProxy::new(Remote, |error: &StoreError| matches!(error, StoreError::Unreachable));
//! assert_eq!(store.get("seven").await.unwrap(), 7);
//! assert!(matches!(store.get("eight").await, Err(StoreError::NotFound)));
//! # });
//! ```
//!
//! Without a macro: [`function`] for one closure, [`group`] for several that belong together, such as a
//! plain structure of closures.

mod build;
mod conduct;
mod error;
mod function;
mod given;
mod method;
mod rules;

pub use build::{BuildError, Builder, Proxied};
pub use conduct::{Conduct, Fallback, value};
pub use error::{Cause, MethodError};
pub use function::{Boxed, Function, Group, GroupBuilder, function, group};
pub use method::Method;
pub use rules::{Carries, Judge, Rules};

/// What the code that the macro writes calls. Not for other use.
#[doc(hidden)]
pub mod macros {
    /// Arguments, of which another one is made for an attempt that may have a successor.
    #[derive(Debug)]
    pub struct Argument;

    /// An argument that is handed over by value. It is a trait of [`Argument`] so that the compiler does
    /// not offer it as a bound of a parameter.
    #[diagnostic::on_unimplemented(
        message = "an argument of the type `{T}` is handed over by value with each attempt, so it must be `Clone`",
        label = "this argument is not `Clone`",
        note = "take a reference or an `Arc`, implement `Clone`, or say `#[proxied(pass)]` at the method, which is then never tried again"
    )]
    pub trait Again<T> {
        /// Another one.
        fn again(given: &T) -> T;
    }

    #[diagnostic::do_not_recommend]
    impl<T: Clone> Again<T> for Argument {
        fn again(given: &T) -> T {
            given.clone()
        }
    }

    /// What a method that may be tried again returns.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` is not a `Result`, so nothing tells whether the method failed",
        label = "not a `Result`",
        note = "return a `Result`, or say `#[proxied(pass)]` at the method, which is then handed through"
    )]
    pub trait Fallible {
        /// What it gives.
        type Value;
        /// How it fails.
        type Error;
        /// As what it stands for.
        fn into_result(self) -> Result<Self::Value, Self::Error>;
        /// And back.
        fn from_result(result: Result<Self::Value, Self::Error>) -> Self;
    }

    impl<T, E> Fallible for Result<T, E> {
        type Value = T;
        type Error = E;

        fn into_result(self) -> Self {
            self
        }

        fn from_result(result: Self) -> Self {
            result
        }
    }
}
