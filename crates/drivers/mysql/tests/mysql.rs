//! The driver against private real servers.

#[cfg(test)]
mod mysql {
    mod cancels;
    mod catalog;
    mod conformance;
    mod connects;
    mod failures;
    mod losses;
    mod place;
    mod replicas;
    mod sessions;
    mod stray;
    mod values;
}
