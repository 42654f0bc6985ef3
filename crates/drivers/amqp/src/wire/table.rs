//! Tables of fields, read leniently: what is no text, number or boolean is passed over and counted.

use std::fmt::Write as _;

use mainstay_message::Headers;
use smol_str::{SmolStr, ToSmolStr};

use super::reader::{Cut, Reader};

/// Reads a table's fields into headers; gives how many could not be.
pub(crate) fn read_headers(table: &[u8], headers: &mut Headers) -> u64 {
    let (mut reader, mut ignored) = (Reader::new(table), 0);
    while !reader.is_empty() {
        match read_field(&mut reader) {
            Ok((name, Some(value))) => match std::str::from_utf8(name) {
                Ok(name) => headers.push(name, value),
                Err(_) => ignored += 1,
            },
            Ok((_, None)) => ignored += 1,
            // Of a type that nobody knows the length of: the rest cannot be found.
            Err(Cut) => return ignored + 1,
        }
    }
    ignored
}

fn read_field<'a>(reader: &mut Reader<'a>) -> Result<(&'a [u8], Option<SmolStr>), Cut> {
    let name = reader.short()?;
    let value = read_value(reader)?;
    Ok((name, value))
}

/// The value as text; `None`: it has none. Brokers differ from the standard in `s`, which is a number there.
fn read_value(reader: &mut Reader<'_>) -> Result<Option<SmolStr>, Cut> {
    let text = match reader.u8()? {
        b'S' => return Ok(std::str::from_utf8(reader.long()?).ok().map(SmolStr::new)),
        b't' => SmolStr::new_static(if reader.u8()? == 0 { "false" } else { "true" }),
        b'b' => reader.u8()?.cast_signed().to_smolstr(),
        b'B' => reader.u8()?.to_smolstr(),
        b's' => reader.u16()?.cast_signed().to_smolstr(),
        b'u' => reader.u16()?.to_smolstr(),
        b'I' => reader.u32()?.cast_signed().to_smolstr(),
        b'i' => reader.u32()?.to_smolstr(),
        b'l' | b'L' => reader.u64()?.cast_signed().to_smolstr(),
        b'T' => reader.u64()?.to_smolstr(),
        b'f' => f32::from_bits(reader.u32()?).to_smolstr(),
        b'd' => f64::from_bits(reader.u64()?).to_smolstr(),
        b'D' => return decimal(reader).map(Some),
        b'V' => return Ok(None),
        b'F' | b'A' | b'x' => return reader.long().map(|_| None),
        _ => return Err(Cut),
    };
    Ok(Some(text))
}

/// Digits behind the point, then the whole as an integer.
fn decimal(reader: &mut Reader<'_>) -> Result<SmolStr, Cut> {
    let places = usize::from(reader.u8()?);
    let value = i64::from(reader.u32()?.cast_signed());
    let sign = if value < 0 { "-" } else { "" };
    let digits = format!("{:0>width$}", value.abs(), width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    let mut text = format!("{sign}{whole}");
    if places > 0 {
        let _ = write!(text, ".{fraction}");
    }
    Ok(text.to_smolstr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(name: &str, value: &[u8]) -> Vec<u8> {
        let mut bytes = vec![name.len() as u8];
        bytes.extend(name.as_bytes());
        bytes.extend(value);
        bytes
    }

    #[test]
    fn every_type_of_a_field_is_text_or_passed_over() {
        for (value, expected) in [
            (&b"S\0\0\0\x02hi"[..], Some("hi")),
            (b"S\0\0\0\x01\xff", None),
            (b"t\x00", Some("false")),
            (b"t\x01", Some("true")),
            (b"b\xff", Some("-1")),
            (b"B\xff", Some("255")),
            (b"s\xff\xfe", Some("-2")),
            (b"u\xff\xfe", Some("65534")),
            (b"I\xff\xff\xff\xff", Some("-1")),
            (b"i\xff\xff\xff\xff", Some("4294967295")),
            (b"l\xff\xff\xff\xff\xff\xff\xff\xff", Some("-1")),
            (b"T\0\0\0\0\0\0\0\x07", Some("7")),
            (b"f\x3f\xc0\0\0", Some("1.5")),
            (b"d\x3f\xf8\0\0\0\0\0\0", Some("1.5")),
            (b"D\x02\0\0\0\x07", Some("0.07")),
            (b"D\x00\xff\xff\xff\xff", Some("-1")),
            (b"V", None),
            (b"F\0\0\0\x03abc", None),
            (b"A\0\0\0\0", None),
            (b"x\0\0\0\x01a", None),
        ] {
            let mut table = field("name", value);
            table.extend(field("after", b"t\x01"));
            let mut headers = Headers::new();
            let ignored = read_headers(&table, &mut headers);
            assert_eq!(headers.get("name"), expected, "{value:?}");
            assert_eq!(ignored, u64::from(expected.is_none()), "{value:?}");
            assert_eq!(headers.get("after"), Some("true"), "{value:?}");
        }
    }

    #[test]
    fn a_table_that_cannot_be_read_to_its_end_gives_what_came_before() {
        for broken in [&b"?"[..], b"S\xff\xff\xff\xffx", b"D\xff", b""] {
            let mut table = field("good", b"t\x01");
            table.extend(field("bad", broken));
            let mut headers = Headers::new();
            assert_eq!(read_headers(&table, &mut headers), 1, "{broken:?}");
            assert_eq!(headers.len(), 1);
        }
    }
}
