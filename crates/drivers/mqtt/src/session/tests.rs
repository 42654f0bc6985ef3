//! The machine step by step, and against a model of a broker.

mod bench;
mod incoming;
mod outgoing;
mod simulation;
mod timing;
