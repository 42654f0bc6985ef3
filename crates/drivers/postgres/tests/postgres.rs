//! The driver against private real servers.

#[path = "postgres/place.rs"]
mod place;

#[path = "postgres/values.rs"]
mod values;
