//! What the server says about its role and how far it has come.

use mainstay_sql::{Position, Probe, SqlError, Value};

use crate::position;
use crate::session::Session;
use crate::wire::Flavour;

/// Role, position, and whether commits wait for a replica that is not there.
const MARIADB: &str = "SELECT CAST(@@global.read_only AS CHAR), @@global.gtid_current_pos, \
     CAST(@@global.gtid_domain_id AS CHAR), \
     CASE WHEN @@global.rpl_semi_sync_master_enabled THEN \
       (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
        WHERE VARIABLE_NAME = 'RPL_SEMI_SYNC_MASTER_CLIENTS') END";
const MYSQL: &str = "SELECT CAST(@@global.read_only OR @@global.super_read_only AS CHAR), \
     @@global.gtid_executed, NULL, NULL";

const MARIADB_POSITION: &str =
    "SELECT NULL, @@global.gtid_current_pos, CAST(@@global.gtid_domain_id AS CHAR), NULL";
const MYSQL_POSITION: &str = "SELECT NULL, @@global.gtid_executed, NULL, NULL";

/// One round trip, once the session has prepared it.
pub(crate) async fn probe(session: &mut Session) -> Result<Probe, SqlError> {
    let text = match session.flavour() {
        Flavour::Mariadb => MARIADB,
        Flavour::Mysql => MYSQL,
    };
    let row = one_row(session, text).await?;
    let is_primary = text_at(&row, 0).map(|read_only| matches!(read_only, "0" | "OFF"));
    Ok(Probe {
        is_primary,
        position: place(session, &row),
        lacks_sync_standby: is_primary == Some(true) && text_at(&row, 3) == Some("0"),
        ..Probe::default()
    })
}

/// What covers every commit so far, or what was applied.
pub(crate) async fn position(session: &mut Session) -> Result<Option<Position>, SqlError> {
    let text = match session.flavour() {
        Flavour::Mariadb => MARIADB_POSITION,
        Flavour::Mysql => MYSQL_POSITION,
    };
    let row = one_row(session, text).await?;
    Ok(place(session, &row))
}

/// Whether the server as a whole takes no writes.
pub(crate) async fn is_read_only(session: &mut Session) -> Result<bool, SqlError> {
    Ok(probe(session).await?.is_primary == Some(false))
}

fn place(session: &Session, row: &[Value]) -> Option<Position> {
    let text = text_at(row, 1)?;
    let number = match session.flavour() {
        Flavour::Mariadb => {
            let own = text_at(row, 2).and_then(|domain| domain.parse().ok());
            let domain = session.settings().gtid_domain.or(own)?;
            position::mariadb(text, domain)
        }
        Flavour::Mysql => position::mysql(text),
    };
    number.map(Position::Gtid)
}

async fn one_row(session: &mut Session, text: &str) -> Result<Vec<Value>, SqlError> {
    let rows = session.ask(text, &[]).await?;
    rows.into_iter()
        .next()
        .ok_or_else(|| SqlError::internal("the server said nothing about itself"))
}

fn text_at(row: &[Value], index: usize) -> Option<&str> {
    match row.get(index)? {
        Value::Text(text) => Some(text),
        _ => None,
    }
}
