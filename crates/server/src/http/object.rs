//! Objects in bodies. A derived reader takes a list for the fields of an object in their order, so that
//! `["DELETE FROM t"]` would be a statement.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// An object and nothing else.
pub(super) struct Only<T>(pub(super) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Only<T> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(OnlyMap(PhantomData))
    }
}

struct OnlyMap<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for OnlyMap<T> {
    type Value = Only<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Only<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(entries)).map(Only)
    }
}

/// A field that is an object.
pub(super) fn object<'de, D, T>(reader: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Only::deserialize(reader).map(|Only(value)| value)
}

/// A field that is an object or null.
pub(super) fn some_object<'de, D, T>(reader: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read = Option::<Only<T>>::deserialize(reader)?;
    Ok(read.map(|Only(value)| value))
}

/// A field that is a list of objects.
pub(super) fn objects<'de, D, T>(reader: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let read = Vec::<Only<T>>::deserialize(reader)?;
    Ok(read.into_iter().map(|Only(value)| value).collect())
}
