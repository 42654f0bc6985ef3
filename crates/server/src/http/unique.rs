//! Objects whose keys are given once each. A reader of JSON takes the last of two equal keys without a word,
//! and so would write another value than one of those that were sent.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Characters of a key that a message repeats.
const SHOWN_MAX: usize = 60;

/// Reads any JSON and keeps nothing of it.
///
/// # Errors
/// Those of the reader, and a key that an object has twice, at any depth.
pub(super) fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    Unique.deserialize(&mut reader)?;
    reader.end()
}

#[derive(Clone, Copy)]
struct Unique;

impl<'de> DeserializeSeed<'de> for Unique {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Unique)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let mut seen = HashSet::new();
        while let Some(Key(key)) = entries.next_key::<Key<'de>>()? {
            if seen.contains(&key) {
                let shown: String = key.chars().take(SHOWN_MAX).collect();
                return Err(A::Error::custom(format_args!(
                    "duplicate field: an object has the key {shown:?} twice"
                )));
            }
            entries.next_value_seed(Unique)?;
            seen.insert(key);
        }
        Ok(())
    }
}

/// A key, borrowed where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_given_twice_is_found_at_any_depth() {
        let table = [
            (r#"{"a": 1, "b": 2}"#, None),
            (r#"{"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]}"#, None),
            (
                r#"[true, null, -1, 1.5, 18446744073709551615, 1e400, "a"]"#,
                Some("out of range"),
            ),
            (r#"[true, null, -1, 1.5, 18446744073709551615, "a"]"#, None),
            (r#"{"a": 1, "a": 1}"#, Some("the key \"a\" twice")),
            (r#"{"a": 1, "\u0061": 1}"#, Some("the key \"a\" twice")),
            (
                r#"{"v": {"n": 1, "m": 2, "n": 3}}"#,
                Some("the key \"n\" twice"),
            ),
            (r#"[[[{"n": 1, "n": 3}]]]"#, Some("the key \"n\" twice")),
            (r#"{"": 1, "": 2}"#, Some("the key \"\" twice")),
            (r#"{"a": 1} {"#, Some("trailing")),
            (r#"{"a": "#, Some("EOF")),
        ];
        for (text, expected) in table {
            match (check(text), expected) {
                (Ok(()), None) => {}
                (Err(error), Some(expected)) => {
                    assert!(error.to_string().contains(expected), "{text}: {error}");
                }
                (result, _) => panic!("{text}: {result:?}"),
            }
        }
        let deep = "[".repeat(200) + &"]".repeat(200);
        assert!(check(&deep).unwrap_err().to_string().contains("recursion"));
    }
}
