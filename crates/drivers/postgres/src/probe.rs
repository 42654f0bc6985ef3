//! What the server says about its role and how far it has come.

use mainstay_sql::{Lineage, Position, Probe, SqlError, Value};

use crate::session::Session;

/// Role and positions alone; what any user may ask.
const LITTLE: &str = "SELECT pg_is_in_recovery(), \
     CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, \
     CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() END";

/// The same with identity, timeline and synchronous standbys. The primary's timeline comes from the name
/// of its log file and a standby's from its receiver, as the control file lags behind a promotion until
/// the next checkpoint; where this user may not see the receiver it is not known. Standbys whose state
/// this user may not see count as present.
const FULL: &str = "SELECT pg_is_in_recovery(), \
     CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END, \
     CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() END, \
     (SELECT system_identifier FROM pg_control_system()), \
     CASE WHEN pg_is_in_recovery() \
       THEN (SELECT CASE WHEN w.pid IS NULL \
               THEN greatest(c.timeline_id, r.min_recovery_end_timeline) ELSE w.received_tli END::int8 \
             FROM pg_control_checkpoint() c CROSS JOIN pg_control_recovery() r \
             LEFT JOIN pg_stat_wal_receiver w ON true) \
       ELSE ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int8 END, \
     NOT pg_is_in_recovery() AND current_setting('synchronous_standby_names') <> '' \
       AND (SELECT count(*) FROM pg_stat_replication WHERE coalesce(sync_state, 'sync') IN ('sync', 'quorum')) \
         < coalesce(substring(current_setting('synchronous_standby_names') from '(\\d+)\\s*\\(')::int8, 1)";

/// Identity and timeline, of a primary alone; when the server was started, or started itself again after a crash of one of its
/// processes, which loses its statistics; whether a commit waits for a standby.
const LINEAGE: &str = "SELECT CASE WHEN NOT pg_is_in_recovery() \
       THEN (SELECT system_identifier FROM pg_control_system())::text || '/' \
         || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END, \
     pg_postmaster_start_time()::text || '/' || coalesce((SELECT stats_reset::text FROM pg_stat_bgwriter), ''), \
     current_setting('synchronous_standby_names') <> '' \
       AND current_setting('synchronous_commit') NOT IN ('off', 'local')";

/// The same where this user may not ask for the identity.
const LITTLE_LINEAGE: &str = "SELECT NULL::text, NULL::text, \
     current_setting('synchronous_standby_names') <> '' \
       AND current_setting('synchronous_commit') NOT IN ('off', 'local')";

/// The start of the log's pages is not counted by what a replica has replayed.
const PAGE: u64 = 8192;
const PAGE_HEADER: u64 = 24;

/// One round trip, once the session has prepared it.
pub(crate) async fn probe(session: &mut Session) -> Result<Probe, SqlError> {
    if !session.probes_little {
        match session.ask(FULL, &[]).await {
            Err(error) if error.failure().code.as_deref() == Some("42501") => {
                session.probes_little = true
            }
            result => return Ok(read(&one_row(result?)?)),
        }
    }
    let rows = session.ask(LITTLE, &[]).await?;
    Ok(read(&one_row(rows)?))
}

/// Where this session's commits end, or what was replayed. The insert position is what covers a commit
/// that did not wait for the disk (`synchronous_commit = off`) too; it may be a little further on.
pub(crate) async fn position(session: &mut Session) -> Result<Option<Position>, SqlError> {
    let rows = session.ask(LITTLE, &[]).await?;
    Ok(read(&one_row(rows)?).position)
}

/// One round trip in the life of a session on a primary: whatever changes one of these ends the session, but for
/// what is said about standbys, which stays as it was found. A standby that is promoted keeps its sessions: it has
/// no history before.
pub(crate) async fn lineage(session: &mut Session) -> Result<Lineage, SqlError> {
    if let Some(lineage) = &session.lineage {
        return Ok(lineage.clone());
    }
    let asked = match session.ask(LINEAGE, &[]).await {
        Err(error) if error.failure().code.as_deref() == Some("42501") => {
            session.ask(LITTLE_LINEAGE, &[]).await
        }
        asked => asked,
    };
    let row = one_row(asked?)?;
    let text = |index: usize| match row.get(index) {
        Some(Value::Text(text)) => Some(text.clone()),
        _ => None,
    };
    let lineage = Lineage {
        history: text(0),
        run: text(1).unwrap_or_default(),
        is_synchronous: row.get(2) == Some(&Value::Bool(true)),
    };
    if lineage.history.is_some() {
        session.lineage = Some(lineage.clone());
    }
    Ok(lineage)
}

fn one_row(rows: Vec<Vec<Value>>) -> Result<Vec<Value>, SqlError> {
    rows.into_iter()
        .next()
        .ok_or_else(|| SqlError::internal("the server said nothing about itself"))
}

fn read(row: &[Value]) -> Probe {
    let is_replica = match row.first() {
        Some(Value::Bool(v)) => Some(*v),
        _ => None,
    };
    let number = |index: usize| match row.get(index) {
        Some(Value::I64(v)) => Some(*v as u64),
        _ => None,
    };
    Probe {
        is_primary: is_replica.map(|replica| !replica),
        position: row
            .get(1)
            .and_then(lsn)
            .map(end_of_record)
            .map(Position::Lsn),
        received: row.get(2).and_then(lsn).map(Position::Lsn),
        system: number(3),
        timeline: number(4),
        lacks_sync_standby: row.get(5) == Some(&Value::Bool(true)),
    }
}

fn lsn(value: &Value) -> Option<u64> {
    let Value::Other { text, .. } = value else {
        return None;
    };
    let (high, low) = text.split_once('/')?;
    let part = |digits: &str| u64::from_str_radix(digits, 16).ok();
    Some((part(high)? << 32) | part(low)?)
}

/// After a record that fills a page to its end the insert position is behind the next page's header,
/// where no replica arrives before the next record.
fn end_of_record(lsn: u64) -> u64 {
    if lsn % PAGE == PAGE_HEADER {
        lsn - PAGE_HEADER
    } else {
        lsn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_read_from_their_text() {
        let position = |text: &str| {
            lsn(&Value::Other {
                type_name: "pg_lsn".into(),
                text: text.into(),
            })
        };
        assert_eq!(position("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(position("nonsense"), None);
        assert_eq!(lsn(&Value::Null), None);
    }

    #[test]
    fn a_position_behind_a_page_header_is_the_end_of_the_page_before() {
        assert_eq!(end_of_record(5 * PAGE + PAGE_HEADER), 5 * PAGE);
        assert_eq!(end_of_record(5 * PAGE + 32), 5 * PAGE + 32);
    }
}
