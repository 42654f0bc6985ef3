//! The pool against a scripted connector, on a paused clock.

mod ending;
mod lending;
mod random;
mod scripted;
