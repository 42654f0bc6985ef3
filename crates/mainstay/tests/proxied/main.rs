//! `#[mainstay::proxied]`: what becomes of methods of every shape, and what becomes of their errors.

// Functions of a test are tests too.
#![allow(clippy::unwrap_used)]

mod blocking;
mod closures;
mod conduct;
mod error;
mod shapes;
mod shapes_async;
mod support;
