//! The driver against real files.

mod sqlite {
    pub(crate) mod bench;
    mod cancel;
    mod errors;
    mod sessions;
    mod statements;
    mod transactions;
    mod values;
}
