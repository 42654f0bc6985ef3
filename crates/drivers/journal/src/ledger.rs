//! Where each request stands in the file, and the statements that change it.

use std::collections::HashMap;
use std::time::SystemTime;

use mainstay_message::Change;
use mainstay_message::store::{FINISHED_FOR, FINISHED_MAX, Record};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use smol_str::SmolStr;

use crate::error::Fault;
use crate::message::{self, json};

/// Ended requests are forgotten after each so many of a service, twice as many at most at a time.
const PRUNE_EVERY: i64 = 512;

/// What the thread knows without asking the file. One thread writes, so it is never wrong; it saves an index, and with
/// it a page a change.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    services: HashMap<SmolStr, Service>,
    /// The place of the next request.
    next: i64,
    scratch: Vec<u8>,
}

#[derive(Debug)]
struct Service {
    number: i64,
    places: HashMap<SmolStr, i64>,
    /// The oldest that ended and is remembered.
    first: i64,
    /// The place of the next that ends.
    next: i64,
}

impl Ledger {
    /// Reads it from the file.
    pub(crate) fn load(connection: &Connection) -> rusqlite::Result<Self> {
        let mut ledger = Ledger::default();
        let mut names: HashMap<i64, SmolStr> = HashMap::new();
        let mut statement = connection.prepare(
            "SELECT number, name, (SELECT min(place) FROM finished WHERE service = number),
                (SELECT max(place) FROM finished WHERE service = number) FROM service",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (number, name) = (row.get(0)?, row.get::<_, String>(1)?.into());
            let last: Option<i64> = row.get(3)?;
            let service = Service {
                number,
                places: HashMap::new(),
                first: row.get::<_, Option<i64>>(2)?.unwrap_or(0),
                next: last.map_or(0, |last| last + 1),
            };
            names.insert(number, SmolStr::clone(&name));
            ledger.services.insert(name, service);
        }
        let mut statement = connection.prepare("SELECT place, service, id FROM unfinished")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (place, number): (i64, i64) = (row.get(0)?, row.get(1)?);
            let id: String = row.get(2)?;
            ledger.next = ledger.next.max(place + 1);
            let service = names
                .get(&number)
                .and_then(|name| ledger.services.get_mut(name));
            if let Some(service) = service {
                service.places.insert(id.into(), place);
            }
        }
        Ok(ledger)
    }

    /// A service's number, if it ever wrote.
    pub(crate) fn number(&self, service: &str) -> Option<i64> {
        self.services.get(service).map(|known| known.number)
    }

    /// Makes one change in the transaction that is open. If that is not committed the ledger must be loaded again.
    pub(crate) fn make(
        &mut self,
        connection: &Connection,
        service: &SmolStr,
        change: &Change,
    ) -> Result<(), Fault> {
        if !self.services.contains_key(service) {
            let known = Service::make(connection, service)?;
            self.services.insert(service.clone(), known);
        }
        let Some(known) = self.services.get_mut(service) else {
            return Ok(());
        };
        let scratch = &mut self.scratch;
        match change {
            Change::Accept {
                id,
                record,
                request,
            } => {
                if let Some(place) = known.places.insert(id.clone(), self.next) {
                    remove(connection, place)?;
                }
                let place = self.next;
                self.next += 1;
                let record = text(scratch, id, record)?;
                connection
                    .prepare_cached("INSERT INTO unfinished (place, service, id, record) VALUES (?1, ?2, ?3, ?4)")?
                    .execute(params![place, known.number, id.as_str(), record])?;
                message::put(connection, 2 * place, request, scratch)
            }
            Change::Update { id, record } => {
                let Some(place) = known.places.get(id) else {
                    return Ok(());
                };
                let record = text(scratch, id, record)?;
                connection
                    .prepare_cached("UPDATE unfinished SET record = ?2 WHERE place = ?1")?
                    .execute(params![place, record])?;
                Ok(())
            }
            Change::Reply { id, reply } => match known.places.get(id) {
                Some(place) => message::put(connection, 2 * place + 1, reply, scratch),
                None => Ok(()),
            },
            Change::Finish { id } => known.finish(connection, id),
        }
    }
}

impl Service {
    fn make(connection: &Connection, name: &str) -> rusqlite::Result<Self> {
        connection.execute("INSERT INTO service (name) VALUES (?1)", [name])?;
        Ok(Service {
            number: connection.last_insert_rowid(),
            places: HashMap::new(),
            first: 0,
            next: 0,
        })
    }

    fn finish(&mut self, connection: &Connection, id: &SmolStr) -> Result<(), Fault> {
        if let Some(place) = self.places.remove(id) {
            remove(connection, place)?;
        }
        connection
            .prepare_cached(
                "INSERT INTO finished (service, place, id, at_ms) VALUES (?1, ?2, ?3, ?4)",
            )?
            .execute(params![self.number, self.next, id.as_str(), now_ms()])?;
        self.next += 1;
        if self.next % PRUNE_EVERY == 0 {
            self.prune(connection)?;
        }
        Ok(())
    }

    /// Forgets those that ended too long ago or are too many, the oldest first.
    fn prune(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        let recent: Option<i64> = connection
            .prepare_cached(
                "SELECT place FROM finished WHERE service = ?1 AND at_ms > ?2 ORDER BY place LIMIT 1",
            )?
            .query_row(params![self.number, now_ms() - FINISHED_FOR.as_millis() as i64], |row| row.get(0))
            .optional()?;
        let kept = recent
            .unwrap_or(self.next)
            .max(self.next - FINISHED_MAX as i64)
            .min(self.first + 2 * PRUNE_EVERY);
        if kept > self.first {
            connection
                .prepare_cached("DELETE FROM finished WHERE service = ?1 AND place < ?2")?
                .execute(params![self.number, kept])?;
            self.first = kept;
        }
        Ok(())
    }
}

fn remove(connection: &Connection, place: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("DELETE FROM unfinished WHERE place = ?1")?
        .execute([place])?;
    connection
        .prepare_cached("DELETE FROM message WHERE place BETWEEN ?1 AND ?2")?
        .execute([2 * place, 2 * place + 1])?;
    Ok(())
}

fn text<'s>(scratch: &'s mut Vec<u8>, id: &str, record: &Record) -> Result<&'s str, Fault> {
    json(scratch, |writer| record.serialize(writer)).map_err(|reason| Fault::row(id, reason))
}

/// Milliseconds since 1970: what is remembered over restarts has no other clock.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as i64)
}
