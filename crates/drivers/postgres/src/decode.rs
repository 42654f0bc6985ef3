//! Values from the server's binary form.

mod array;
mod network;
mod numeric;

use std::sync::Arc;

use bytes::Bytes;
use mainstay_sql::value::{Day, Finite, Interval, Micros, TimeOfDay};
use mainstay_sql::{ColumnType, Value};
use tokio_postgres::types::{FromSql, Kind, Type};

use crate::text;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL counts from.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// The same in microseconds.
pub(crate) const EPOCH_MICROS: i64 = 946_684_800_000_000;

/// How the bytes of one column become values.
#[derive(Debug, Clone)]
pub(crate) enum Decoder {
    Bool,
    Int2,
    Int4,
    Int8,
    Float4,
    Float8,
    Numeric,
    /// Types whose binary form is their text.
    Text,
    /// `"char"`, one byte.
    Char,
    Bytea,
    Uuid,
    Date,
    Time,
    TimeTz,
    Timestamp,
    TimestampTz,
    Interval,
    Json,
    Jsonb,
    /// Given as text, made from the binary form.
    Other(Arc<str>, OtherForm),
    /// The server already gives it as text, by a cast.
    Cast(Arc<str>),
    Array {
        element: Box<Decoder>,
        name: Arc<str>,
    },
}

/// Binary forms of types that are given as text.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OtherForm {
    /// Nothing at all (`void`).
    Nothing,
    /// Unsigned 32 bits (`oid`, `xid`, `cid`).
    U32,
    /// Unsigned 64 bits (`xid8`).
    U64,
    /// `pg_lsn`
    Lsn,
    /// `inet`
    Inet,
    /// `cidr`
    Cidr,
    /// `macaddr`, `macaddr8`
    Mac,
    /// `bit`, `varbit`
    Bits,
}

/// The bytes of a field were not what its type promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Garbled;

/// The bytes of one field, whatever its type.
pub(crate) struct Raw<'a>(pub(crate) Option<&'a [u8]>);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(Some(raw)))
    }

    fn from_sql_null(_: &Type) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Raw(None))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

impl Decoder {
    /// The decoder of a type; `None`: the server must be asked for its text.
    pub(crate) fn of(ty: &Type) -> Option<Decoder> {
        if let Some(simple) = Decoder::of_builtin(ty) {
            return Some(simple);
        }
        match ty.kind() {
            // These two count from 0 and have a text form of their own.
            _ if *ty == Type::INT2_VECTOR || *ty == Type::OID_VECTOR => None,
            Kind::Enum(_) => Some(Decoder::Text),
            Kind::Simple if ty.name() == "citext" => Some(Decoder::Text),
            Kind::Domain(inner) => Decoder::of(inner),
            Kind::Array(element) => Decoder::of(element).map(|element| Decoder::Array {
                element: Box::new(element),
                name: native_name(ty),
            }),
            _ => None,
        }
    }

    fn of_builtin(ty: &Type) -> Option<Decoder> {
        let other = |form| Decoder::Other(ty.name().into(), form);
        Some(match *ty {
            Type::BOOL => Decoder::Bool,
            Type::INT2 => Decoder::Int2,
            Type::INT4 => Decoder::Int4,
            Type::INT8 => Decoder::Int8,
            Type::FLOAT4 => Decoder::Float4,
            Type::FLOAT8 => Decoder::Float8,
            Type::NUMERIC => Decoder::Numeric,
            Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN => Decoder::Text,
            Type::CHAR => Decoder::Char,
            Type::BYTEA => Decoder::Bytea,
            Type::UUID => Decoder::Uuid,
            Type::DATE => Decoder::Date,
            Type::TIME => Decoder::Time,
            Type::TIMETZ => Decoder::TimeTz,
            Type::TIMESTAMP => Decoder::Timestamp,
            Type::TIMESTAMPTZ => Decoder::TimestampTz,
            Type::INTERVAL => Decoder::Interval,
            Type::JSON => Decoder::Json,
            Type::JSONB => Decoder::Jsonb,
            Type::VOID => other(OtherForm::Nothing),
            Type::OID | Type::XID | Type::CID => other(OtherForm::U32),
            Type::XID8 => other(OtherForm::U64),
            Type::PG_LSN => other(OtherForm::Lsn),
            Type::INET => other(OtherForm::Inet),
            Type::CIDR => other(OtherForm::Cidr),
            Type::MACADDR | Type::MACADDR8 => other(OtherForm::Mac),
            Type::BIT | Type::VARBIT => other(OtherForm::Bits),
            _ => return None,
        })
    }

    /// The type of the values in our words.
    pub(crate) fn column_type(&self) -> ColumnType {
        match self {
            Decoder::Bool => ColumnType::Bool,
            Decoder::Int2 | Decoder::Int4 | Decoder::Int8 => ColumnType::I64,
            Decoder::Float4 | Decoder::Float8 => ColumnType::F64,
            Decoder::Numeric => ColumnType::Decimal,
            Decoder::Text | Decoder::Char => ColumnType::Text,
            Decoder::Bytea => ColumnType::Bytes,
            Decoder::Uuid => ColumnType::Uuid,
            Decoder::Date => ColumnType::Date,
            Decoder::Time | Decoder::TimeTz => ColumnType::Time,
            Decoder::Timestamp => ColumnType::Timestamp,
            Decoder::TimestampTz => ColumnType::TimestampTz,
            Decoder::Interval => ColumnType::Interval,
            Decoder::Json | Decoder::Jsonb => ColumnType::Json,
            Decoder::Other(name, _) | Decoder::Cast(name) => ColumnType::Other(name.clone()),
            Decoder::Array { element, .. } => ColumnType::Array(Box::new(element.column_type())),
        }
    }

    /// The value of a field that is not NULL.
    pub(crate) fn decode(&self, raw: &[u8]) -> Result<Value, Garbled> {
        Ok(match self {
            Decoder::Bool => Value::Bool(fixed::<1>(raw)? != [0]),
            Decoder::Int2 => Value::I64(i16::from_be_bytes(fixed(raw)?).into()),
            Decoder::Int4 => Value::I64(i32::from_be_bytes(fixed(raw)?).into()),
            Decoder::Int8 => Value::I64(i64::from_be_bytes(fixed(raw)?)),
            Decoder::Float4 => Value::F64(f32::from_be_bytes(fixed(raw)?).into()),
            Decoder::Float8 => Value::F64(f64::from_be_bytes(fixed(raw)?)),
            Decoder::Numeric => Value::Decimal(numeric::decode(raw)?),
            Decoder::Text => Value::Text(utf8(raw)?),
            Decoder::Char => Value::Text(one_byte(fixed::<1>(raw)?[0])),
            Decoder::Bytea => Value::Bytes(Bytes::copy_from_slice(raw)),
            Decoder::Uuid => Value::Uuid(uuid::Uuid::from_bytes(fixed(raw)?)),
            Decoder::Date => Value::Date(date(i32::from_be_bytes(fixed(raw)?))?),
            Decoder::Time => time(raw)?,
            Decoder::TimeTz => time_with_zone(raw)?,
            Decoder::Timestamp => timestamp(raw, "timestamp", "", Value::Timestamp)?,
            Decoder::TimestampTz => timestamp(raw, "timestamptz", "+00", Value::TimestampTz)?,
            Decoder::Interval => interval(raw)?,
            Decoder::Json => Value::Json(utf8(raw)?),
            Decoder::Jsonb => jsonb(raw)?,
            Decoder::Cast(name) => Value::Other {
                type_name: name.clone(),
                text: utf8(raw)?,
            },
            Decoder::Other(name, form) => Value::Other {
                type_name: name.clone(),
                text: form.text(raw)?,
            },
            Decoder::Array { element, name } => array::decode(raw, element, name)?,
        })
    }
}

impl OtherForm {
    fn text(self, raw: &[u8]) -> Result<String, Garbled> {
        Ok(match self {
            OtherForm::Nothing => String::new(),
            OtherForm::U32 => u32::from_be_bytes(fixed(raw)?).to_string(),
            OtherForm::U64 => u64::from_be_bytes(fixed(raw)?).to_string(),
            OtherForm::Lsn => {
                let lsn = u64::from_be_bytes(fixed(raw)?);
                format!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff)
            }
            OtherForm::Inet => network::inet(raw, false)?,
            OtherForm::Cidr => network::inet(raw, true)?,
            OtherForm::Mac => network::mac(raw),
            OtherForm::Bits => network::bits(raw)?,
        })
    }
}

/// `int4[]` for what the server calls `_int4`.
pub(crate) fn native_name(ty: &Type) -> Arc<str> {
    match ty.kind() {
        Kind::Array(element) if ty.name().starts_with('_') => {
            format!("{}[]", element.name()).into()
        }
        _ => ty.name().into(),
    }
}

fn fixed<const N: usize>(raw: &[u8]) -> Result<[u8; N], Garbled> {
    raw.try_into().map_err(|_| Garbled)
}

fn utf8(raw: &[u8]) -> Result<String, Garbled> {
    std::str::from_utf8(raw)
        .map(str::to_owned)
        .map_err(|_| Garbled)
}

/// Nothing for the byte 0 and an octal escape above 127, as the server writes them.
fn one_byte(byte: u8) -> String {
    match byte {
        0 => String::new(),
        1..=127 => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    }
}

fn date(days: i32) -> Result<Finite<Day>, Garbled> {
    Ok(match days {
        i32::MIN => Finite::NegativeInfinity,
        i32::MAX => Finite::Infinity,
        days => Finite::At(Day(days.checked_add(EPOCH_DAYS).ok_or(Garbled)?)),
    })
}

fn time(raw: &[u8]) -> Result<Value, Garbled> {
    let micros = i64::from_be_bytes(fixed(raw)?);
    Ok(Value::Time(TimeOfDay {
        micros,
        offset: None,
    }))
}

fn time_with_zone(raw: &[u8]) -> Result<Value, Garbled> {
    let (micros, west) = raw.split_at_checked(8).ok_or(Garbled)?;
    let west = i32::from_be_bytes(fixed(west)?);
    let micros = i64::from_be_bytes(fixed(micros)?);
    Ok(Value::Time(TimeOfDay {
        micros,
        offset: Some(west.checked_neg().ok_or(Garbled)?),
    }))
}

/// The last 29 years that PostgreSQL knows do not fit microseconds since 1970: they are given as text.
fn timestamp(
    raw: &[u8],
    name: &str,
    zone: &str,
    make: fn(Finite<Micros>) -> Value,
) -> Result<Value, Garbled> {
    Ok(match i64::from_be_bytes(fixed(raw)?) {
        i64::MIN => make(Finite::NegativeInfinity),
        i64::MAX => make(Finite::Infinity),
        micros => match micros.checked_add(EPOCH_MICROS) {
            Some(since_1970) => make(Finite::At(Micros(since_1970))),
            None => {
                let mut text = String::new();
                text::write_timestamp(
                    i128::from(micros) + i128::from(EPOCH_MICROS),
                    zone,
                    &mut text,
                );
                Value::Other {
                    type_name: name.into(),
                    text,
                }
            }
        },
    })
}

fn interval(raw: &[u8]) -> Result<Value, Garbled> {
    let bytes: [u8; 16] = fixed(raw)?;
    Ok(Value::Interval(Interval {
        micros: i64::from_be_bytes(fixed(&bytes[..8])?),
        days: i32::from_be_bytes(fixed(&bytes[8..12])?),
        months: i32::from_be_bytes(fixed(&bytes[12..])?),
    }))
}

fn jsonb(raw: &[u8]) -> Result<Value, Garbled> {
    match raw.split_first() {
        Some((1, json)) => Ok(Value::Json(utf8(json)?)),
        _ => Err(Garbled),
    }
}
