//! The driver against private real servers.

#[cfg(test)]
mod postgres {
    mod cancels;
    mod catalog;
    mod conformance;
    mod connects;
    mod failures;
    mod limits;
    mod losses;
    mod place;
    mod replicas;
    mod sessions;
    mod streams;
    mod transactions;
    mod values;
}
