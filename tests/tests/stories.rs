//! Stories about the whole of Mainstay, against real servers where they need any.

#[cfg(test)]
mod stories {
    mod black_hole;
    mod chronicle;
    mod commits;
    mod departures;
    mod dependencies;
    mod failover;
    mod faults;
    mod footprint;
    mod hidden_writes;
    mod keys;
    mod leaks;
    mod lone;
    mod mistakes;
    mod nested;
    mod restart;
    mod servers;
    mod strangers;
    mod swallowing;
    mod world;
}
