//! Stories about the whole of Mainstay, against real servers where they need any.

#[cfg(test)]
mod stories {
    mod departures;
    mod dependencies;
    mod failover;
    mod faults;
    mod leaks;
    mod lone;
    mod world;
}
