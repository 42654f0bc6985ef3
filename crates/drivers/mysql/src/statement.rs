//! Prepared statements of a session.

use std::collections::HashMap;
use std::sync::Arc;

use crate::value::Shape;
use crate::verb::Verb;

/// A statement that the server knows.
pub(crate) struct Prepared {
    /// `None`: the server cannot prepare it; it runs as plain text.
    pub(crate) id: Option<u32>,
    pub(crate) params: u16,
    pub(crate) verb: Verb,
    /// The columns as they were described last.
    pub(crate) shape: Option<Arc<Shape>>,
    /// Whether an error undoes all of it; `None`: nobody has looked at its tables yet.
    pub(crate) is_undone: Option<bool>,
}

/// The statements that a session keeps, the least recently used one leaving first.
pub(crate) struct Statements {
    by_text: HashMap<Box<str>, (Prepared, u64)>,
    max: usize,
    clock: u64,
}

impl Statements {
    pub(crate) fn new(max: usize) -> Self {
        Statements {
            by_text: HashMap::new(),
            max: max.max(1),
            clock: 0,
        }
    }

    pub(crate) fn get(&mut self, text: &str) -> Option<&mut Prepared> {
        self.clock += 1;
        let (prepared, used) = self.by_text.get_mut(text)?;
        *used = self.clock;
        Some(prepared)
    }

    /// Keeps a statement; gives the number of the one that leaves.
    pub(crate) fn insert(&mut self, text: &str, prepared: Prepared) -> Option<u32> {
        let mut left = None;
        if self.by_text.len() >= self.max {
            // A walk over a few hundred entries beside a round trip to the server.
            let oldest = self
                .by_text
                .iter()
                .min_by_key(|(_, (_, used))| *used)
                .map(|(text, _)| text.clone());
            left = oldest.and_then(|oldest| self.remove(&oldest));
        }
        self.by_text.insert(text.into(), (prepared, self.clock));
        left
    }

    /// Forgets a statement; gives its number.
    pub(crate) fn remove(&mut self, text: &str) -> Option<u32> {
        self.by_text.remove(text)?.0.id
    }

    /// The server has forgotten them all.
    pub(crate) fn clear(&mut self) {
        self.by_text.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepared(id: u32) -> Prepared {
        Prepared {
            id: Some(id),
            params: 0,
            verb: Verb::read(""),
            shape: None,
            is_undone: None,
        }
    }

    #[test]
    fn the_least_recently_used_statement_leaves_first() {
        let mut statements = Statements::new(2);
        assert_eq!(statements.insert("a", prepared(1)), None);
        statements.get("a");
        assert_eq!(statements.insert("b", prepared(2)), None);
        assert_eq!(statements.get("a").and_then(|it| it.id), Some(1));
        assert_eq!(statements.insert("c", prepared(3)), Some(2));
        assert!(statements.get("b").is_none());
        assert_eq!(statements.remove("a"), Some(1));
        statements.clear();
        assert!(statements.get("c").is_none());
    }
}
