//! The proxy over a broker in memory and scripted targets, on a paused clock.

// Functions of a test are tests too.
#![allow(clippy::unwrap_used)]

mod actors;
mod brokers;
mod hooks;
mod hub;
mod intake;
mod jobs;
mod objects;
mod plain;
mod restart;
mod simulation;
mod world;
