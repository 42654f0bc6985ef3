//! The program in front of services of the unmodified Python SDK, on real brokers.

#[path = "intersect/api.rs"]
mod api;
#[path = "intersect/bad_input.rs"]
mod bad_input;
#[path = "intersect/callers.rs"]
mod callers;
#[path = "intersect/expiry.rs"]
mod expiry;
#[path = "intersect/kills.rs"]
mod kills;
#[path = "intersect/lifecycle.rs"]
mod lifecycle;
#[path = "intersect/logins.rs"]
mod logins;
#[path = "intersect/objects.rs"]
mod objects;
#[path = "intersect/once.rs"]
mod once;
#[path = "intersect/outages.rs"]
mod outages;
#[path = "intersect/patience.rs"]
mod patience;
#[path = "intersect/peers.rs"]
mod peers;
#[path = "intersect/restarts.rs"]
mod restarts;
#[path = "intersect/sameness.rs"]
mod sameness;
#[path = "intersect/stalls.rs"]
mod stalls;
#[path = "intersect/targets.rs"]
mod targets;
#[path = "intersect/walk.rs"]
mod walk;
#[path = "intersect/world.rs"]
mod world;
