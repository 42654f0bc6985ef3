//! The engine over scripted back ends.

// Functions of a test are tests too.
#![allow(clippy::unwrap_used)]

mod calls;
mod dropping;
mod pressure;
mod probing;
mod ranks;
mod sharing;
mod whole_calls;

use mainstay_engine::{Failure, Outcome};

/// A failure says all about itself.
fn classify<T>(result: &Result<T, Failure>) -> Outcome {
    match result {
        Ok(_) => Outcome::Success,
        Err(failure) => Outcome::Failure(failure.clone()),
    }
}
