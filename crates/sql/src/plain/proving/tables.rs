//! Which tables of proof are there at one endpoint, and how often they are used.

use parking_lot::Mutex;

use crate::dialect::Dialect;
use crate::error::{Code, SqlError};

/// One use of a table in so many is followed by a deletion of what is too old.
const USES_A_SWEEP: u64 = 256;

/// Tables of proof at one endpoint.
#[derive(Debug, Default)]
pub(in crate::plain) struct ProofTables {
    /// Names of those that are there.
    ready: Mutex<Vec<String>>,
    /// How often a row was written to each.
    uses: Mutex<Vec<(String, u64)>>,
}

impl ProofTables {
    pub(super) fn is_ready(&self, name: &str) -> bool {
        self.ready.lock().iter().any(|ready| ready == name)
    }

    pub(super) fn note(&self, name: &str) {
        let mut ready = self.ready.lock();
        if !ready.iter().any(|known| known == name) {
            ready.push(name.to_owned());
        }
    }

    /// Counts one use of a table; at the first and at every 256th it is to be swept.
    pub(super) fn is_to_be_swept(&self, name: &str) -> bool {
        let mut uses = self.uses.lock();
        let Some((_, count)) = uses.iter_mut().find(|(known, _)| known == name) else {
            uses.push((name.to_owned(), 1));
            return true;
        };
        *count += 1;
        (*count - 1).is_multiple_of(USES_A_SWEEP)
    }

    /// A statement may have said that a table is missing: perhaps one of these.
    pub(in crate::plain) fn doubt(&self, dialect: Dialect, error: &SqlError) {
        // Elsewhere a bad statement is just that.
        let is_told = error.code() == Code::UnknownEntity;
        if is_told || (dialect == Dialect::Sqlite && may_be_missing(error)) {
            self.ready.lock().clear();
        }
    }
}

/// SQLite has no code of its own for a missing table.
pub(super) fn may_be_missing(error: &SqlError) -> bool {
    matches!(error.code(), Code::UnknownEntity | Code::BadStatement)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_swept_however_the_uses_of_both_follow_one_another() {
        let tables = ProofTables::default();
        let mut swept = [0, 0];
        for _ in 0..=USES_A_SWEEP {
            for (index, name) in ["keys", "commits"].into_iter().enumerate() {
                swept[index] += u32::from(tables.is_to_be_swept(name));
            }
        }
        assert_eq!(swept, [2, 2]);
    }
}
