//! Which functions write.

mod names;

use std::collections::HashMap;

use super::scan::FunctionName;
use crate::catalog::Volatility;
use crate::dialect::Dialect;

use names::{
    MYSQL_READS, POSTGRES_GRAMMAR, POSTGRES_SEQUENCES, POSTGRES_USUAL, POSTGRES_VOLATILE_READS,
    is_sqlite_function,
};

/// What calling a function may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// Changes nothing.
    Reads,
    /// Takes from a sequence: a write that leaves nothing behind in the session.
    Sequence,
    /// May write.
    Writes,
    /// Nobody knows; treated like [`Effect::Writes`].
    Unknown,
}

pub(super) fn effect_of(
    dialect: Dialect,
    function: &FunctionName,
    volatilities: Option<&HashMap<String, Volatility>>,
) -> Effect {
    let name = function.last_part();
    if !function.may_be_built_in() {
        return by_volatility(name, volatilities);
    }
    match dialect {
        Dialect::Postgres => postgres(name, volatilities),
        Dialect::Sqlite if is_sqlite_function(name) => Effect::Reads,
        Dialect::MySql if MYSQL_READS.contains(&name) => Effect::Reads,
        Dialect::Sqlite | Dialect::MySql => by_volatility(name, volatilities),
    }
}

fn by_volatility(name: &str, volatilities: Option<&HashMap<String, Volatility>>) -> Effect {
    match volatilities.and_then(|known| known.get(name)) {
        Some(Volatility::Immutable | Volatility::Stable) => Effect::Reads,
        Some(Volatility::Volatile) => Effect::Writes,
        None => Effect::Unknown,
    }
}

fn postgres(name: &str, volatilities: Option<&HashMap<String, Volatility>>) -> Effect {
    if POSTGRES_GRAMMAR.contains(&name) || POSTGRES_VOLATILE_READS.contains(&name) {
        return Effect::Reads;
    }
    if POSTGRES_SEQUENCES.contains(&name) {
        return Effect::Sequence;
    }
    match by_volatility(name, volatilities) {
        // Without a catalog only the best known functions are taken for what they usually are.
        Effect::Unknown if volatilities.is_none() && POSTGRES_USUAL.contains(&name) => {
            Effect::Reads
        }
        effect => effect,
    }
}
