//! The driver against real files.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

mod sqlite {
    pub(crate) mod bench;
    mod cancel;
    mod catalog;
    mod conformance;
    mod errors;
    mod guard;
    mod sample;
    mod sessions;
    mod statements;
    mod transactions;
    mod values;
}
