//! Rows from the server's bytes.

use std::sync::Arc;

use bytes::Bytes;
use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};
use mainstay_sql::{Column, ColumnType, Decimal, Row, SqlError, Value};

use super::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND, days};
use super::kind;
use super::text;
use crate::wire::{Definition, Malformed, Reader};

const UNSIGNED: u16 = 32;
const ENUM: u16 = 256;
const SET: u16 = 2048;
/// The character set of bytes that are no text.
const BINARY: u16 = 63;

/// How the bytes of one column become values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decoder {
    /// Integers of this many bytes.
    Signed(u8),
    Unsigned(u8),
    Float,
    Double,
    Decimal,
    Text,
    Bytes,
    Uuid,
    Date,
    /// With the time zone that the session has, or none.
    DateTime {
        is_utc: bool,
    },
    Time,
    Json,
    Bit {
        width: u32,
    },
    /// Given as text under the database's own name.
    Other(Arc<str>),
}

/// The columns of a result and how they are read.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) columns: Arc<[Column]>,
    decoders: Box<[Decoder]>,
}

impl Shape {
    pub(crate) fn of(definitions: &[Definition], is_utc: bool) -> Self {
        let decoders: Box<[Decoder]> = definitions
            .iter()
            .map(|definition| Decoder::of(definition, is_utc))
            .collect();
        let columns = definitions
            .iter()
            .zip(&decoders)
            .map(|(definition, decoder)| Column {
                name: definition.name.as_str().into(),
                column_type: decoder.column_type(),
                native: native(definition),
            });
        Shape {
            columns: columns.collect(),
            decoders,
        }
    }

    /// A row of a prepared statement.
    pub(crate) fn binary(&self, packet: &[u8]) -> Result<Row, SqlError> {
        let mut reader = Reader(packet);
        let count = self.decoders.len();
        // The first two bits of the bitmap mean nothing.
        let header = reader.u8().and_then(|_| reader.take((count + 9) / 8));
        let nulls = header.map_err(|_| garbled("row"))?;
        let mut row = Vec::with_capacity(count);
        for (index, decoder) in self.decoders.iter().enumerate() {
            let bit = index + 2;
            let is_null = nulls[bit / 8] & (1 << (bit % 8)) != 0;
            row.push(match is_null {
                true => Value::Null,
                false => decoder
                    .binary(&mut reader)
                    .map_err(|_| garbled(&self.columns[index].name))?,
            });
        }
        Ok(row)
    }

    /// A row of a plain text.
    pub(crate) fn textual(&self, packet: &[u8]) -> Result<Row, SqlError> {
        let mut reader = Reader(packet);
        let mut row = Vec::with_capacity(self.decoders.len());
        for (decoder, column) in self.decoders.iter().zip(&*self.columns) {
            let field = reader.bytes();
            let value = field.and_then(|field| match field {
                None => Ok(Value::Null),
                Some(bytes) => text::decode(decoder, bytes),
            });
            row.push(value.map_err(|_| garbled(&column.name))?);
        }
        Ok(row)
    }
}

fn garbled(name: &str) -> SqlError {
    SqlError::internal(format!(
        "the bytes of {name} are not what its type promises"
    ))
}

impl Decoder {
    fn of(definition: &Definition, is_utc: bool) -> Self {
        let integer = |bytes| match definition.flags & UNSIGNED {
            0 => Decoder::Signed(bytes),
            _ => Decoder::Unsigned(bytes),
        };
        match definition.kind {
            kind::TINY => integer(1),
            kind::SHORT | kind::YEAR => integer(2),
            kind::LONG | kind::INT24 => integer(4),
            kind::LONGLONG => integer(8),
            kind::FLOAT => Decoder::Float,
            kind::DOUBLE => Decoder::Double,
            kind::DECIMAL | kind::NEWDECIMAL => Decoder::Decimal,
            kind::DATE | kind::NEWDATE => Decoder::Date,
            kind::TIME => Decoder::Time,
            kind::DATETIME => Decoder::DateTime { is_utc: false },
            kind::TIMESTAMP => Decoder::DateTime { is_utc },
            kind::BIT => Decoder::Bit {
                width: definition.length,
            },
            kind::JSON => Decoder::Json,
            kind::GEOMETRY => Decoder::Bytes,
            _ => Decoder::of_string(definition),
        }
    }

    /// Strings, and what MariaDB sends as strings.
    fn of_string(definition: &Definition) -> Self {
        match definition.really.as_deref() {
            Some("json") => Decoder::Json,
            Some("uuid") => Decoder::Uuid,
            Some(name @ ("inet4" | "inet6")) => Decoder::Other(name.into()),
            _ if definition.charset == BINARY && definition.flags & (ENUM | SET) == 0 => {
                Decoder::Bytes
            }
            _ => Decoder::Text,
        }
    }

    fn column_type(&self) -> ColumnType {
        match self {
            Decoder::Unsigned(8) => ColumnType::U64,
            Decoder::Signed(_) | Decoder::Unsigned(_) => ColumnType::I64,
            Decoder::Float | Decoder::Double => ColumnType::F64,
            Decoder::Decimal => ColumnType::Decimal,
            Decoder::Text => ColumnType::Text,
            Decoder::Bytes => ColumnType::Bytes,
            Decoder::Uuid => ColumnType::Uuid,
            Decoder::Date => ColumnType::Date,
            Decoder::DateTime { is_utc: false } => ColumnType::Timestamp,
            Decoder::DateTime { is_utc: true } => ColumnType::TimestampTz,
            Decoder::Time => ColumnType::Time,
            Decoder::Json => ColumnType::Json,
            Decoder::Bit { .. } => ColumnType::Other("bit".into()),
            Decoder::Other(name) => ColumnType::Other(name.clone()),
        }
    }

    fn binary(&self, reader: &mut Reader<'_>) -> Result<Value, Malformed> {
        Ok(match self {
            Decoder::Signed(1) => Value::I64(i8::from_le_bytes(reader.fixed()?).into()),
            Decoder::Signed(2) => Value::I64(i16::from_le_bytes(reader.fixed()?).into()),
            Decoder::Signed(4) => Value::I64(i32::from_le_bytes(reader.fixed()?).into()),
            Decoder::Signed(_) => Value::I64(i64::from_le_bytes(reader.fixed()?)),
            Decoder::Unsigned(1) => Value::I64(reader.u8()?.into()),
            Decoder::Unsigned(2) => Value::I64(reader.u16()?.into()),
            Decoder::Unsigned(4) => Value::I64(reader.u32()?.into()),
            Decoder::Unsigned(_) => Value::U64(reader.u64()?),
            Decoder::Float => Value::F64(f32::from_le_bytes(reader.fixed()?).into()),
            Decoder::Double => Value::F64(f64::from_le_bytes(reader.fixed()?)),
            Decoder::Date => {
                let moment = Moment::read(reader)?;
                date(moment.year, moment.month, moment.day)
            }
            Decoder::DateTime { is_utc } => Moment::read(reader)?.value(*is_utc),
            Decoder::Time => time(reader)?,
            _ => {
                let bytes = reader.bytes()?.ok_or(Malformed)?;
                self.written(bytes)?
            }
        })
    }

    /// Types whose binary form is their text.
    pub(super) fn written(&self, bytes: &[u8]) -> Result<Value, Malformed> {
        let utf8 = || std::str::from_utf8(bytes).map_err(|_| Malformed);
        Ok(match self {
            Decoder::Decimal => Value::Decimal(Decimal::parse(utf8()?).ok_or(Malformed)?),
            Decoder::Bytes => Value::Bytes(Bytes::copy_from_slice(bytes)),
            Decoder::Uuid => Value::Uuid(uuid::Uuid::try_parse(utf8()?).map_err(|_| Malformed)?),
            Decoder::Json => Value::Json(utf8()?.to_owned()),
            Decoder::Bit { width } => Value::Other {
                type_name: "bit".into(),
                text: bits(bytes, *width),
            },
            Decoder::Other(name) => Value::Other {
                type_name: name.clone(),
                text: utf8()?.to_owned(),
            },
            _ => Value::Text(utf8()?.to_owned()),
        })
    }
}

/// The digits of a bit field, as many as its column has.
fn bits(bytes: &[u8], width: u32) -> String {
    let all: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let width = usize::try_from(width).unwrap_or(usize::MAX);
    let from = all.len().saturating_sub(width.max(1));
    all[from..].to_owned()
}

pub(super) fn date(year: u16, month: u8, day: u8) -> Value {
    match days(year, month, day) {
        Some(days) => Value::Date(Finite::At(Day(days))),
        None => Value::Other {
            type_name: "date".into(),
            text: format!("{year:04}-{month:02}-{day:02}"),
        },
    }
}

/// A date with a time of day; parts that are left out are zero.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Moment {
    pub(super) year: u16,
    pub(super) month: u8,
    pub(super) day: u8,
    pub(super) hour: u8,
    pub(super) minute: u8,
    pub(super) second: u8,
    pub(super) micros: u32,
}

impl Moment {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let length = usize::from(reader.u8()?);
        let mut parts = Reader(reader.take(length)?);
        let mut moment = Moment::default();
        if length >= 4 {
            moment.year = parts.u16()?;
            moment.month = parts.u8()?;
            moment.day = parts.u8()?;
        }
        if length >= 7 {
            moment.hour = parts.u8()?;
            moment.minute = parts.u8()?;
            moment.second = parts.u8()?;
        }
        if length >= 11 {
            moment.micros = parts.u32()?;
        }
        Ok(moment)
    }

    pub(super) fn value(self, is_utc: bool) -> Value {
        let Some(days) = days(self.year, self.month, self.day) else {
            return self.other(is_utc);
        };
        let seconds =
            i64::from(self.hour) * 3600 + i64::from(self.minute) * 60 + i64::from(self.second);
        let micros =
            i64::from(days) * MICROS_PER_DAY + seconds * MICROS_PER_SECOND + i64::from(self.micros);
        match is_utc {
            true => Value::TimestampTz(Finite::At(Micros(micros))),
            false => Value::Timestamp(Finite::At(Micros(micros))),
        }
    }

    fn other(self, is_utc: bool) -> Value {
        let Moment {
            year,
            month,
            day,
            hour,
            minute,
            second,
            micros,
        } = self;
        let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
        if micros > 0 {
            text.push_str(&format!(".{micros:06}"));
        }
        Value::Other {
            type_name: if is_utc { "timestamp" } else { "datetime" }.into(),
            text,
        }
    }
}

fn time(reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let length = usize::from(reader.u8()?);
    let mut parts = Reader(reader.take(length)?);
    let mut micros = 0;
    let mut is_negative = false;
    if length >= 8 {
        is_negative = parts.u8()? != 0;
        let days = i64::from(parts.u32()?);
        let (hours, minutes, seconds) = (parts.u8()?, parts.u8()?, parts.u8()?);
        let clock = i64::from(hours) * 3600 + i64::from(minutes) * 60 + i64::from(seconds);
        micros = days * MICROS_PER_DAY + clock * MICROS_PER_SECOND;
    }
    if length >= 12 {
        micros += i64::from(parts.u32()?);
    }
    Ok(Value::Time(TimeOfDay {
        micros: if is_negative { -micros } else { micros },
        offset: None,
    }))
}

/// The database's own name of a column's type.
fn native(definition: &Definition) -> Arc<str> {
    let is_binary = definition.charset == BINARY;
    let name = match definition.kind {
        _ if definition.flags & ENUM != 0 => "enum",
        _ if definition.flags & SET != 0 => "set",
        kind::TINY => "tinyint",
        kind::SHORT => "smallint",
        kind::INT24 => "mediumint",
        kind::LONG => "int",
        kind::LONGLONG => "bigint",
        kind::YEAR => return "year".into(),
        kind::FLOAT => "float",
        kind::DOUBLE => "double",
        kind::DECIMAL | kind::NEWDECIMAL => "decimal",
        kind::DATE | kind::NEWDATE => "date",
        kind::TIME => "time",
        kind::DATETIME => "datetime",
        kind::TIMESTAMP => "timestamp",
        kind::BIT => "bit",
        kind::JSON => "json",
        kind::GEOMETRY => "geometry",
        kind::NULL => "null",
        _ => match &definition.really {
            Some(name) => return name.as_str().into(),
            None if (249..=252).contains(&definition.kind) && is_binary => "blob",
            None if (249..=252).contains(&definition.kind) => "text",
            None if definition.kind == 254 && is_binary => "binary",
            None if definition.kind == 254 => "char",
            None if is_binary => "varbinary",
            None => "varchar",
        },
    };
    let is_integer = matches!(
        name,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint"
    );
    match is_integer && definition.flags & UNSIGNED != 0 {
        true => format!("{name} unsigned").into(),
        false => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(decoder: &Decoder, bytes: &[u8]) -> Result<Value, Malformed> {
        decoder.binary(&mut Reader(bytes))
    }

    #[test]
    fn days_that_do_not_exist_are_given_as_text() {
        let zero = read(&Decoder::Date, &[0]).unwrap();
        let other = |name: &str, text: &str| Value::Other {
            type_name: name.into(),
            text: text.into(),
        };
        assert_eq!(zero, other("date", "0000-00-00"));
        let part = read(&Decoder::Date, &[4, 0xe4, 0x07, 0, 7]).unwrap();
        assert_eq!(part, other("date", "2020-00-07"));
        let moment = Decoder::DateTime { is_utc: false };
        let zero = read(&moment, &[0]).unwrap();
        assert_eq!(zero, other("datetime", "0000-00-00 00:00:00"));
    }

    #[test]
    fn times_reach_beyond_a_day_and_below_zero() {
        let micros = |bytes: &[u8]| match read(&Decoder::Time, bytes) {
            Ok(Value::Time(time)) => time.micros,
            other => panic!("{other:?}"),
        };
        assert_eq!(micros(&[0]), 0);
        let longest = -(838 * 3600 + 59 * 60 + 59) * 1_000_000 - 999_999;
        let mut bytes = vec![12, 1, 34, 0, 0, 0, 22, 59, 59];
        bytes.extend_from_slice(&999_999_u32.to_le_bytes());
        assert_eq!(micros(&bytes), longest);
    }

    #[test]
    fn bits_have_as_many_digits_as_their_column() {
        assert_eq!(bits(&[0b101], 3), "101");
        assert_eq!(bits(&[0b1], 3), "001");
        assert_eq!(bits(&[1, 0], 9), "100000000");
    }

    #[test]
    fn what_is_cut_short_is_garbled() {
        for (decoder, bytes) in [
            (Decoder::Signed(8), &[1, 2, 3][..]),
            (Decoder::Date, &[4, 1]),
            (Decoder::Time, &[8, 0, 1]),
            (Decoder::Decimal, &[3, b'1', b'x', b'2']),
            (Decoder::Text, &[1, 0xff]),
        ] {
            assert!(read(&decoder, bytes).is_err(), "{decoder:?}");
        }
    }
}
