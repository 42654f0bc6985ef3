//! What SQLite's functions may do.

use std::collections::HashMap;

use mainstay_sql::catalog::Volatility;

use crate::session::Session;

/// SQLITE_DETERMINISTIC, as the pragma shows it.
const DETERMINISTIC: i64 = 0x800;

/// Deterministic by their flag, but for `'now'`, which is one moment within a statement.
const CLOCK: &[&str] = &[
    "date",
    "datetime",
    "julianday",
    "strftime",
    "time",
    "timediff",
    "unixepoch",
];

/// Without the flag, but they only look: at the clock, at the program, or at the row's place in an index.
const STABLE: &[&str] = &[
    "bm25",
    "current_date",
    "current_time",
    "current_timestamp",
    "highlight",
    "matchinfo",
    "offsets",
    "snippet",
    "sqlite_compileoption_get",
    "sqlite_compileoption_used",
    "sqlite_source_id",
    "sqlite_version",
];

impl Session {
    /// Every function that SQL may call here. One that is not known by its flag or by name may do anything.
    pub(super) fn functions(&self) -> rusqlite::Result<HashMap<String, Volatility>> {
        // Some functions have several forms; the least certain counts.
        let text = "SELECT lower(name), min(builtin), min(flags & ?1), max(type <> 's') \
                    FROM pragma_function_list GROUP BY 1";
        let listed = self.collect(text, [DETERMINISTIC], |row| {
            let name: String = row.get(0)?;
            let is_built_in: bool = row.get(1)?;
            let is_deterministic = row.get::<_, i64>(2)? != 0;
            let is_aggregate: bool = row.get(3)?;
            let volatility = volatility(&name, is_built_in, is_deterministic, is_aggregate);
            Ok((name, volatility))
        })?;
        let named = |name: &&str| ((*name).to_owned(), Volatility::Stable);
        let mut functions: HashMap<_, _> = STABLE.iter().map(named).collect();
        functions.extend(listed);
        Ok(functions)
    }
}

fn volatility(
    name: &str,
    is_built_in: bool,
    is_deterministic: bool,
    is_aggregate: bool,
) -> Volatility {
    if CLOCK.contains(&name) || STABLE.contains(&name) {
        Volatility::Stable
    } else if is_deterministic || (is_built_in && is_aggregate) {
        Volatility::Immutable
    } else {
        Volatility::Volatile
    }
}
