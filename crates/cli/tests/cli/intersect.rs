//! The program in front of services of the unmodified Python SDK, on real brokers.

#[path = "intersect/callers.rs"]
mod callers;
#[path = "intersect/expiry.rs"]
mod expiry;
#[path = "intersect/lifecycle.rs"]
mod lifecycle;
#[path = "intersect/logins.rs"]
mod logins;
#[path = "intersect/objects.rs"]
mod objects;
#[path = "intersect/once.rs"]
mod once;
#[path = "intersect/patience.rs"]
mod patience;
#[path = "intersect/sameness.rs"]
mod sameness;
#[path = "intersect/stalls.rs"]
mod stalls;
#[path = "intersect/walk.rs"]
mod walk;
#[path = "intersect/world.rs"]
mod world;
