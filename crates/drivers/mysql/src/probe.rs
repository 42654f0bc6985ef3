//! What the server says about its role and how far it has come.

use mainstay_sql::{Lineage, Position, Probe, SqlError, Value};

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

/// Identity; whether a commit is acknowledged, and seen by others, only when a replica has it. One that waits for
/// less than an hour gives up too easily to prove anything.
const MARIADB_LINEAGE: &str = "SELECT CONCAT(@@global.server_id, '/', @@global.hostname, '/', @@global.port), \
     CAST(@@global.rpl_semi_sync_master_enabled \
       AND @@global.rpl_semi_sync_master_wait_point = 'AFTER_SYNC' \
       AND @@global.rpl_semi_sync_master_timeout >= 3600000 \
       AND (SELECT VARIABLE_VALUE FROM information_schema.GLOBAL_STATUS \
            WHERE VARIABLE_NAME = 'RPL_SEMI_SYNC_MASTER_STATUS') = 'ON' AS CHAR)";
const MYSQL_LINEAGE: &str = "SELECT @@global.server_uuid, \
     CAST((SELECT COUNT(*) FROM performance_schema.global_variables \
           WHERE VARIABLE_NAME IN ('rpl_semi_sync_source_enabled', 'rpl_semi_sync_master_enabled') \
           AND VARIABLE_VALUE = 'ON') > 0 \
       AND (SELECT COUNT(*) FROM performance_schema.global_variables \
            WHERE VARIABLE_NAME IN ('rpl_semi_sync_source_wait_point', 'rpl_semi_sync_master_wait_point') \
            AND VARIABLE_VALUE = 'AFTER_SYNC') > 0 \
       AND (SELECT COUNT(*) FROM performance_schema.global_variables \
            WHERE VARIABLE_NAME IN ('rpl_semi_sync_source_timeout', 'rpl_semi_sync_master_timeout') \
            AND VARIABLE_VALUE + 0 >= 3600000) > 0 AS CHAR)";

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

/// One round trip in the life of a session. What is said about replicas stays as it was found.
pub(crate) async fn lineage(session: &mut Session) -> Result<Lineage, SqlError> {
    if let Some(lineage) = &session.lineage {
        return Ok(lineage.clone());
    }
    let text = match session.flavour() {
        Flavour::Mariadb => MARIADB_LINEAGE,
        Flavour::Mysql => MYSQL_LINEAGE,
    };
    let row = one_row(session, text).await?;
    let lineage = Lineage {
        history: text_at(&row, 0).map(str::to_owned),
        run: String::new(),
        is_synchronous: text_at(&row, 1) == Some("1"),
    };
    session.lineage = Some(lineage.clone());
    Ok(lineage)
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
