//! A message as a row: headers as a JSON list of pairs, the body as it is.

use mainstay_message::broker::Headers;
use mainstay_message::store::StoredMessage;
use rusqlite::{Row, params};
use serde::Serializer;
use smol_str::SmolStr;

use crate::error::Fault;

const PUT: &str = "INSERT OR REPLACE INTO message (place, topic, content_type, headers, body)
    VALUES (?1, ?2, ?3, ?4, ?5)";

/// `scratch` is used again from call to call.
pub(crate) fn put(
    connection: &rusqlite::Connection,
    place: i64,
    message: &StoredMessage,
    scratch: &mut Vec<u8>,
) -> Result<(), Fault> {
    let mut statement = connection.prepare_cached(PUT)?;
    let headers = json(scratch, |writer| writer.collect_seq(message.headers.iter()))
        .map_err(|reason| Fault::row(&message.topic, reason))?;
    statement.execute(params![
        place,
        message.topic.as_str(),
        message.content_type.as_deref(),
        headers,
        &message.body[..],
    ])?;
    Ok(())
}

/// JSON in the scratch.
pub(crate) fn json(
    scratch: &mut Vec<u8>,
    write: impl FnOnce(&mut serde_json::Serializer<&mut Vec<u8>>) -> serde_json::Result<()>,
) -> Result<&str, String> {
    scratch.clear();
    write(&mut serde_json::Serializer::new(&mut *scratch)).map_err(|error| error.to_string())?;
    std::str::from_utf8(scratch).map_err(|error| error.to_string())
}

/// The message in four columns from `first` on; none if they are all null.
pub(crate) fn read(row: &Row<'_>, first: usize) -> Result<Option<StoredMessage>, Reading> {
    let Some(topic) = row.get_ref(first)?.as_str_or_null()? else {
        return Ok(None);
    };
    let headers: Vec<(SmolStr, SmolStr)> = serde_json::from_str(row.get_ref(first + 2)?.as_str()?)?;
    Ok(Some(StoredMessage {
        topic: topic.into(),
        content_type: row.get_ref(first + 1)?.as_str_or_null()?.map(SmolStr::from),
        headers: Headers::from_iter(headers),
        body: bytes::Bytes::copy_from_slice(row.get_ref(first + 3)?.as_blob()?),
    }))
}

/// What a row does not hold.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Reading {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Kind(#[from] rusqlite::types::FromSqlError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("its message is missing")]
    Missing,
}
