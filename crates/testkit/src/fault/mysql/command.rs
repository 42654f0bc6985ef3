//! What commands and the packets of their answers hold.

use bytes::Bytes;

use crate::fault::ledger::Answer;
use crate::fault::wire::Parameter;

pub(super) const QUIT: u8 = 0x01;
pub(super) const QUERY: u8 = 0x03;
pub(super) const PREPARE: u8 = 0x16;
pub(super) const EXECUTE: u8 = 0x17;
pub(super) const LONG_DATA: u8 = 0x18;
pub(super) const CLOSE: u8 = 0x19;

/// The server's number of the statement that a command runs.
pub(super) fn statement(body: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(body.get(1..5)?.try_into().ok()?))
}

/// The bound parameters. Numbers are given as their digits, whatever their width.
pub(super) fn parameters(body: &[u8], count: usize) -> Option<Vec<Parameter>> {
    if count == 0 {
        return Some(Vec::new());
    }
    let rest = body.get(10..)?;
    let (nulls, rest) = rest.split_at_checked(count.div_ceil(8))?;
    let (_, rest) = rest.split_first()?;
    let (types, mut rest) = rest.split_at_checked(2 * count)?;
    (0..count)
        .map(|index| {
            let is_null = nulls[index / 8] & (1 << (index % 8)) != 0;
            let value = match is_null {
                true => None,
                false => Some(value(
                    types[2 * index],
                    types[2 * index + 1] != 0,
                    &mut rest,
                )?),
            };
            Some(Parameter {
                binary: false,
                value,
            })
        })
        .collect()
}

fn value(kind: u8, is_unsigned: bool, rest: &mut &[u8]) -> Option<Bytes> {
    let width = match kind {
        1 => 1,
        2 | 13 => 2,
        3 | 9 => 4,
        8 => 8,
        4 => return take(rest, 4).map(Bytes::copy_from_slice),
        5 => return take(rest, 8).map(Bytes::copy_from_slice),
        // Dates and times say how long they are in one byte.
        7 | 10 | 11 | 12 => {
            let length = take(rest, 1)?[0];
            return take(rest, length.into()).map(Bytes::copy_from_slice);
        }
        _ => {
            let (length, behind) = number(rest)?;
            *rest = behind;
            let length = usize::try_from(length).ok()?;
            return take(rest, length).map(Bytes::copy_from_slice);
        }
    };
    let bytes = take(rest, width)?;
    let is_negative = !is_unsigned && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let mut wide = [if is_negative { 0xff } else { 0 }; 16];
    wide[..width].copy_from_slice(bytes);
    Some(Bytes::from(i128::from_le_bytes(wide).to_string()))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(taken)
}

/// A number in one, three, four or nine bytes, and what follows it.
pub(super) fn number(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let width = match first {
        0xfc => 2,
        0xfd => 3,
        0xfe => 8,
        0xfb | 0xff => return None,
        small => return Some((u64::from(*small), rest)),
    };
    let (digits, rest) = rest.split_at_checked(width)?;
    let mut wide = [0; 8];
    wide[..width].copy_from_slice(digits);
    Some((u64::from_le_bytes(wide), rest))
}

/// The status that an OK packet ends with.
pub(super) fn status(body: &[u8]) -> u16 {
    let read = || {
        let (_, rest) = number(body.get(1..)?)?;
        let (_, rest) = number(rest)?;
        Some(u16::from_le_bytes(rest.get(..2)?.try_into().ok()?))
    };
    read().unwrap_or(0)
}

/// How many rows were changed.
pub(super) fn completed(body: &[u8]) -> Answer {
    let affected = body.get(1..).and_then(number).map(|(count, _)| count);
    Answer::Completed(affected.unwrap_or(0).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_every_kind_are_read() {
        let mut body = vec![EXECUTE, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0b010, 1];
        // A signed number, NULL, a text, an unsigned number.
        body.extend_from_slice(&[8, 0, 6, 0, 253, 0, 8, 0x80]);
        body.extend_from_slice(&(-7_i64).to_le_bytes());
        body.extend_from_slice(b"\x02ab");
        body.extend_from_slice(&u64::MAX.to_le_bytes());
        let read = parameters(&body, 4).unwrap();
        assert_eq!(read[0].as_i64(), Some(-7));
        assert_eq!(read[1].value, None);
        assert_eq!(read[2].as_text(), Some("ab"));
        assert_eq!(read[3].as_text(), Some("18446744073709551615"));
        assert_eq!(statement(&body), Some(1));
        assert_eq!(parameters(&body[..body.len() - 1], 4), None, "cut short");
    }

    #[test]
    fn an_ok_says_how_many_rows_and_what_follows() {
        let body = [0, 3, 0, 8, 0, 0, 0];
        assert_eq!(completed(&body), Answer::Completed("3".into()));
        assert_eq!(status(&body), 8);
        assert_eq!(status(&[0]), 0);
    }
}
