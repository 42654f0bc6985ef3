//! The driver against real files.

mod sqlite {
    pub(crate) mod bench;
    mod cancel;
    mod catalog;
    mod errors;
    mod sample;
    mod sessions;
    mod statements;
    mod transactions;
    mod values;
}
