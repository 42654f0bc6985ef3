//! Whether an error has undone all that its statement did, and its transaction. Tables without transactions
//! keep what was changed.

use mainstay_sql::{SqlError, Value};

use super::Session;
use crate::errors::Phase;
use crate::settings::quoted;
use crate::verb::{NAMES_MAX, names};

/// Triggers that change tables with triggers are followed so far.
const LEVELS_MAX: usize = 4;

/// "Some non-transactional changed tables couldn't be rolled back".
const NOT_ROLLED_BACK: i64 = 1196;
/// MariaDB: "Engine %s does not support rollback. Changes were committed during rollback call".
const NO_ROLLBACK: i64 = 4173;

const NOT_OURS: &str = "NOT IN ('mysql', 'information_schema', 'performance_schema', 'sys')";

impl Session {
    /// Whether the server warned that its rollback, by the error of a moment ago, left rows. Without an
    /// answer it may have.
    pub(super) async fn warns_of_rows(&mut self) -> bool {
        let Ok(warnings) = self.rows_of("SHOW WARNINGS", Phase::Control).await else {
            return true;
        };
        warnings.iter().any(|row| {
            let number = match row.get(1) {
                Some(Value::I64(number)) => *number,
                Some(Value::U64(number)) => i64::try_from(*number).unwrap_or_default(),
                _ => return false,
            };
            number == NOT_ROLLED_BACK || number == NO_ROLLBACK
        })
    }

    /// Whether the tables that a text names, by itself or by a trigger or a routine, are such that an error
    /// undoes everything; looked up once for each text that fails.
    pub(super) async fn is_undone(&mut self, text: &str) -> bool {
        if let Some(known) = self.statements.get(text).and_then(|it| it.is_undone) {
            return known;
        }
        let Some(found) = names(text) else {
            return false;
        };
        let is_undone = match self.are_undone(found).await {
            Ok(is_undone) => is_undone,
            Err(error) => {
                tracing::debug!(%error, "not known whether the tables of a statement can be rolled back");
                return false;
            }
        };
        if let Some(prepared) = self.statements.get(text) {
            prepared.is_undone = Some(is_undone);
        }
        is_undone
    }

    async fn are_undone(&mut self, first: Vec<String>) -> Result<bool, SqlError> {
        let mut all = first.clone();
        let mut new = first;
        for _ in 0..LEVELS_MAX {
            let list: Vec<String> = new.iter().map(|name| quoted(name)).collect();
            let list = list.join(", ");
            let keeping = format!(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_NAME IN ({list}) \
                 AND TABLE_SCHEMA {NOT_OURS} \
                 AND (TABLE_TYPE LIKE '%VIEW' OR ENGINE NOT IN \
                      (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES')) LIMIT 1"
            );
            if !self.rows_of(&keeping, Phase::Control).await?.is_empty() {
                return Ok(false);
            }
            let bodies = format!(
                "SELECT ACTION_STATEMENT FROM information_schema.TRIGGERS \
                 WHERE EVENT_OBJECT_TABLE IN ({list}) AND EVENT_OBJECT_SCHEMA {NOT_OURS} \
                 UNION ALL SELECT ROUTINE_DEFINITION FROM information_schema.ROUTINES \
                 WHERE ROUTINE_NAME IN ({list}) AND ROUTINE_SCHEMA {NOT_OURS} LIMIT {NAMES_MAX}"
            );
            new = Vec::new();
            for row in self.rows_of(&bodies, Phase::Control).await? {
                let found = match row.first() {
                    Some(Value::Text(body)) => names(body),
                    // It may not be read.
                    _ => None,
                };
                let Some(found) = found else {
                    return Ok(false);
                };
                new.extend(found.into_iter().filter(|name| !all.contains(name)));
            }
            new.sort_unstable();
            new.dedup();
            if new.is_empty() {
                return Ok(true);
            }
            if all.len() + new.len() > 2 * NAMES_MAX {
                return Ok(false);
            }
            all.extend(new.iter().cloned());
        }
        Ok(false)
    }
}
