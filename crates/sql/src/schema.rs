//! What is remembered about the schema of one database: classes of statements, descriptions of entities,
//! volatility of functions. All of it is bounded and can be asked for again at any time.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use mainstay_engine::Chance;
use quick_cache::sync::Cache;

use crate::catalog::{Entity, Volatility};
use crate::dialect::Dialect;
use crate::remembered::{Remembered, remembered};
use crate::statement::{Class, Classifier, Kind};

/// Descriptions of entities that are remembered.
const ENTITIES_MAX: usize = 1024;

/// Fingerprints of statements that looked like reads and turned out to write.
const HIDDEN_WRITES_MAX: usize = 1024;

/// What is remembered about one database's schema; every [`Database`](crate::Database) has one. Shared by
/// reference; all methods take `&self`.
pub struct Schema {
    classifier: Classifier,
    entities: Cache<Arc<str>, Arc<Entity>>,
    functions: ArcSwapOption<HashMap<String, Volatility>>,
    hidden_writes: Remembered<u64, ()>,
    chance: Chance,
}

impl Schema {
    /// Nothing remembered yet; chance from the operating system.
    pub fn new(dialect: Dialect) -> Self {
        Self::with_chance(dialect, Chance::from_entropy())
    }

    /// Nothing remembered yet. The pauses of reruns are drawn from `chance`.
    pub fn with_chance(dialect: Dialect, chance: Chance) -> Self {
        Schema {
            chance,
            classifier: Classifier::new(dialect),
            entities: Cache::new(ENTITIES_MAX),
            functions: ArcSwapOption::empty(),
            hidden_writes: remembered(HIDDEN_WRITES_MAX),
        }
    }

    /// A share between 0 and 1, for the jitter of pauses.
    pub(crate) fn draw_share(&self) -> f64 {
        // 53 bits: what a double holds exactly.
        (self.chance.draw() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// What a text may do, by all that is known. A text that once turned out to write is a write.
    pub fn classify(&self, text: &str) -> Arc<Class> {
        let functions = self.functions.load();
        let class = self.classifier.classify(text, functions.as_deref());
        if class.safety.is_read() && self.hidden_writes.get(&class.fingerprint).is_some() {
            let mut changes = Class::clone(&class);
            changes.safety = mainstay_engine::Safety::Write;
            changes.access = crate::Access::ReadWrite;
            changes.kind = Kind::Other;
            return Arc::new(changes);
        }
        class
    }

    /// Remembers that a text which looked like a read was refused by a read-only session. Says whether
    /// that is news: of several callers who find out at once, to one of them.
    pub fn remember_write(&self, text: &str) -> bool {
        let class = self.classifier.classify(text, None);
        let mut is_news = false;
        let remembered = self
            .hidden_writes
            .get_or_insert_with(&class.fingerprint, || {
                is_news = true;
                Ok::<(), std::convert::Infallible>(())
            });
        debug_assert!(remembered.is_ok());
        is_news
    }

    /// The remembered description of an entity.
    pub fn entity(&self, name: &str) -> Option<Arc<Entity>> {
        self.entities.get(name)
    }

    /// Remembers the description of an entity under the name by which it was asked for.
    pub fn remember_entity(&self, name: &str, entity: Arc<Entity>) {
        self.entities.insert(Arc::from(name), entity);
    }

    /// Whether the volatility of functions is known.
    pub fn knows_functions(&self) -> bool {
        self.functions.load().is_some()
    }

    /// Remembers the volatility of functions by lower-case name.
    pub fn remember_functions(&self, functions: Arc<HashMap<String, Volatility>>) {
        self.functions.store(Some(functions));
        self.classifier.forget();
    }

    /// A statement of this class was run, to whatever end: it may have made untrue what is remembered.
    pub fn note_run(&self, class: &Class) {
        if class.kind >= Kind::Other {
            self.forget(None);
        }
    }

    /// Forgets one entity, or, without a name, everything that a change of the schema may have made
    /// untrue.
    pub fn forget(&self, entity: Option<&str>) {
        match entity {
            Some(name) => {
                self.entities.remove(name);
            }
            None => {
                self.entities.clear();
                self.functions.store(None);
                self.classifier.forget();
            }
        }
    }
}

impl std::fmt::Debug for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schema")
            .field("entities", &self.entities.len())
            .field("knows_functions", &self.knows_functions())
            .finish_non_exhaustive()
    }
}
