//! What the server's packets say.

use super::reader::{Malformed, Reader};

/// Set where a transaction is open.
const IN_TRANSACTION: u16 = 1;
/// Set where each statement is committed by itself.
const AUTOCOMMIT: u16 = 2;
/// Set where another result follows.
const MORE_RESULTS: u16 = 8;

/// Set where a tracked variable was changed.
const STATE_CHANGED: u16 = 1 << 14;

/// The end of a statement that worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Finished {
    pub(crate) affected: u64,
    pub(crate) last_key: u64,
    pub(crate) warnings: u16,
    status: u16,
}

impl Finished {
    /// An OK packet, or the one that ends rows.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(packet);
        reader.u8()?;
        Ok(Finished {
            affected: reader.number()?.ok_or(Malformed)?,
            last_key: reader.number()?.ok_or(Malformed)?,
            status: reader.u16()?,
            warnings: reader.u16()?,
        })
    }

    /// What ends rows in the protocol's older form.
    pub(super) fn read_eof(packet: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(packet);
        reader.u8()?;
        Ok(Finished {
            warnings: reader.u16()?,
            status: reader.u16()?,
            ..Finished::default()
        })
    }

    pub(crate) fn is_in_transaction(self) -> bool {
        self.status & IN_TRANSACTION != 0
    }

    pub(crate) fn commits_each(self) -> bool {
        self.status & AUTOCOMMIT != 0
    }

    pub(crate) fn has_changed_state(self) -> bool {
        self.status & STATE_CHANGED != 0
    }

    pub(crate) fn has_more(self) -> bool {
        self.status & MORE_RESULTS != 0
    }
}

/// An error that the server reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ServerError {
    pub(crate) number: u16,
    pub(crate) state: String,
    pub(crate) message: String,
}

impl ServerError {
    /// Before the login there is no SQLSTATE in it.
    pub(super) fn read(packet: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(packet);
        reader.u8()?;
        let number = reader.u16()?;
        let state = match reader.0.first() {
            Some(b'#') => {
                let [_, state @ ..] = reader.fixed::<6>()?;
                String::from_utf8_lossy(&state).into_owned()
            }
            _ => "HY000".to_owned(),
        };
        Ok(ServerError {
            number,
            state,
            message: String::from_utf8_lossy(reader.0).into_owned(),
        })
    }
}

/// A column of a result, or a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Definition {
    pub(crate) name: String,
    pub(crate) kind: u8,
    pub(crate) flags: u16,
    pub(crate) charset: u16,
    pub(crate) length: u32,
    pub(crate) decimals: u8,
    /// MariaDB's name of a type that travels as another one (`uuid`, `inet6`, `json`).
    pub(crate) really: Option<String>,
}

impl Definition {
    pub(super) fn read(packet: &[u8], is_extended: bool) -> Result<Self, Malformed> {
        let mut reader = Reader(packet);
        // Catalog, schema, table, original table.
        for _ in 0..4 {
            reader.bytes()?;
        }
        let name = String::from_utf8_lossy(reader.bytes()?.ok_or(Malformed)?).into_owned();
        reader.bytes()?;
        let really = match is_extended {
            true => really(reader.bytes()?.ok_or(Malformed)?)?,
            false => None,
        };
        reader.number()?;
        Ok(Definition {
            name,
            charset: reader.u16()?,
            length: reader.u32()?,
            kind: reader.u8()?,
            flags: reader.u16()?,
            decimals: reader.u8()?,
            really,
        })
    }
}

/// Pieces of a kind (0: type, 1: format) and a text.
fn really(bytes: &[u8]) -> Result<Option<String>, Malformed> {
    let mut reader = Reader(bytes);
    let mut found = None;
    while !reader.is_empty() {
        reader.u8()?;
        found = Some(reader.text()?.to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_read_with_and_without_its_state() {
        let error = ServerError::read(b"\xff\x48\x04#HY000No tables used").unwrap();
        assert_eq!((error.number, error.state.as_str()), (1096, "HY000"));
        assert_eq!(error.message, "No tables used");
        let early = ServerError::read(b"\xff\x10\x04Too many connections").unwrap();
        assert_eq!(
            (early.number, early.message.as_str()),
            (1040, "Too many connections")
        );
    }

    #[test]
    fn an_ok_says_what_was_done_and_where_the_session_is() {
        let ok = Finished::read(&[0, 3, 7, 0x03, 0x00, 0, 0]).unwrap();
        assert_eq!((ok.affected, ok.last_key), (3, 7));
        assert!(ok.is_in_transaction() && ok.commits_each() && !ok.has_more());
        let rows = Finished::read_eof(&[0xfe, 1, 0, 8, 0]).unwrap();
        assert!(rows.has_more() && !rows.commits_each());
        assert_eq!(rows.warnings, 1);
        let odd = Finished::read(&[0, 0, 0, 0x00, 0x00, 2, 0]).unwrap();
        assert_eq!((odd.warnings, odd.commits_each()), (2, false));
        assert!(Finished::read(&[0, 3]).is_err());
    }

    #[test]
    fn a_definition_says_what_the_column_really_is() {
        let mut packet = Vec::new();
        for text in ["def", "s", "t", "t", "n", "n"] {
            packet.push(text.len() as u8);
            packet.extend_from_slice(text.as_bytes());
        }
        packet.extend_from_slice(b"\x06\x01\x04json");
        packet.extend_from_slice(&[0x0c, 45, 0, 8, 0, 0, 0, 252, 16, 0, 0, 0, 0]);
        let read = Definition::read(&packet, true).unwrap();
        assert_eq!((read.name.as_str(), read.kind, read.length), ("n", 252, 8));
        assert_eq!(read.really.as_deref(), Some("json"));
        for end in 0..packet.len() - 2 {
            assert!(Definition::read(&packet[..end], true).is_err(), "{end}");
        }
    }
}
