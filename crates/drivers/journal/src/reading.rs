//! What a service left behind.

use mainstay_message::store::{FINISHED_FOR, FINISHED_MAX, Found, Unfinished};
use rusqlite::{Connection, Row, params};
use smol_str::SmolStr;

use crate::error::Fault;
use crate::message::{self, Reading};

const UNFINISHED: &str = "SELECT it.id, it.record,
        request.topic, request.content_type, request.headers, request.body,
        reply.topic, reply.content_type, reply.headers, reply.body
    FROM unfinished it
    LEFT JOIN message request ON request.place = 2 * it.place
    LEFT JOIN message reply ON reply.place = 2 * it.place + 1
    WHERE it.service = ?1 ORDER BY it.place";

const FINISHED: &str = "SELECT id FROM finished WHERE service = ?1 AND at_ms > ?2
    ORDER BY place DESC LIMIT ?3";

pub(crate) fn find(connection: &Connection, service: i64, now_ms: i64) -> Result<Found, Fault> {
    let mut statement = connection.prepare(UNFINISHED)?;
    let mut rows = statement.query([service])?;
    let mut found = Found::default();
    while let Some(row) = rows.next()? {
        let id: String = row.get(0)?;
        let unfinished = unfinished(&id, row).map_err(|reason| Fault::row(&id, reason))?;
        found.unfinished.push(unfinished);
    }
    let after = now_ms - FINISHED_FOR.as_millis() as i64;
    let mut statement = connection.prepare(FINISHED)?;
    let mut rows = statement.query(params![service, after, FINISHED_MAX as i64])?;
    while let Some(row) = rows.next()? {
        found.finished.push(
            row.get_ref(0)?
                .as_str()
                .map(SmolStr::from)
                .map_err(rusqlite::Error::from)?,
        );
    }
    found.finished.reverse();
    Ok(found)
}

fn unfinished(id: &str, row: &Row<'_>) -> Result<Unfinished, Reading> {
    let record = serde_json::from_str(row.get_ref(1)?.as_str()?)?;
    let request = message::read(row, 2)?;
    Ok(Unfinished {
        id: id.into(),
        record,
        request: request.ok_or(Reading::Missing)?,
        reply: message::read(row, 6)?,
    })
}
