//! Whether a server that was a replica has applied all that it has received: a commit that another server has
//! acknowledged may be in its relay log only.

use mainstay_sql::{Answer, SqlError, Value};

use crate::session::Session;
use crate::wire::Flavour;

/// Needs REPLICA MONITOR (MariaDB from 10.5.9; SUPER or REPLICATION CLIENT before).
const MARIADB: &str = "SHOW ALL SLAVES STATUS";

/// Channels that are still read, whose position says nothing, or of whose transactions some are missing. Group
/// replication always reads.
const MYSQL: &str = "SELECT CAST(COUNT(*) AS CHAR) FROM performance_schema.replication_connection_status \
     WHERE NOT GTID_SUBSET(RECEIVED_TRANSACTION_SET, @@global.gtid_executed) \
     OR (CHANNEL_NAME NOT LIKE 'group_replication%' \
         AND (SERVICE_STATE <> 'OFF' OR @@global.gtid_mode <> 'ON'))";

/// One round trip.
pub(crate) async fn has_applied_all(session: &mut Session) -> Result<bool, SqlError> {
    match session.flavour() {
        Flavour::Mariadb => {
            let channels = session.ask_named(MARIADB).await?;
            Ok((0..channels.rows.len()).all(|row| Channel::of(&channels, row).is_done()))
        }
        Flavour::Mysql => {
            let rows = session.ask(MYSQL, &[]).await?;
            Ok(rows.first().and_then(|row| row.first()) == Some(&Value::Text("0".into())))
        }
    }
}

/// One source of a MariaDB replica, as `SHOW ALL SLAVES STATUS` tells.
struct Channel<'a> {
    answer: &'a Answer,
    row: usize,
}

impl<'a> Channel<'a> {
    fn of(answer: &'a Answer, row: usize) -> Self {
        Channel { answer, row }
    }

    fn field(&self, name: &str) -> Option<String> {
        let columns = &self.answer.columns;
        let index = columns.iter().position(|column| &*column.name == name)?;
        match self.answer.rows.get(self.row)?.get(index)? {
            Value::Text(text) => Some(text.clone()),
            Value::I64(number) => Some(number.to_string()),
            Value::U64(number) => Some(number.to_string()),
            _ => None,
        }
    }

    fn is_done(&self) -> bool {
        if self.field("Slave_IO_Running").as_deref() != Some("No") {
            return false;
        }
        let received = self.field("Gtid_IO_Pos").unwrap_or_default();
        if !received.is_empty() {
            let applied = self.field("Gtid_Slave_Pos").unwrap_or_default();
            return covers(&applied, &received);
        }
        let pair = |file: &str, place: &str| Some((self.field(file)?, self.field(place)?));
        let read = pair("Master_Log_File", "Read_Master_Log_Pos");
        read.is_some() && read == pair("Relay_Master_Log_File", "Exec_Master_Log_Pos")
    }
}

/// Whether one position of MariaDB is as far as another one in each of its domains.
fn covers(applied: &str, received: &str) -> bool {
    received.split(',').all(|wanted| {
        let Some((domain, wanted)) = numbers(wanted) else {
            return false;
        };
        let mut all = applied.split(',').filter_map(numbers);
        all.any(|(of, last)| of == domain && last >= wanted)
    })
}

/// Domain and number of `domain-server-number`.
fn numbers(gtid: &str) -> Option<(u32, u64)> {
    let mut parts = gtid.trim().split('-');
    let domain = parts.next()?.parse().ok()?;
    let number = parts.next_back()?.parse().ok()?;
    Some((domain, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_covers_another_in_every_domain() {
        assert!(covers("0-1-5", "0-1-5"));
        assert!(covers("1-3-9, 0-2-6", "0-1-5,1-3-9"));
        assert!(!covers("0-1-4", "0-1-5"));
        assert!(!covers("0-1-5", "0-1-5,1-1-1"));
        assert!(!covers("", "0-1-5"));
        assert!(!covers("0-1-5", "nonsense"));
    }
}
