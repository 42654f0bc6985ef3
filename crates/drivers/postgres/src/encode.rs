//! Parameters in the form that their type at the server takes: binary where the value's type is the
//! parameter's, else the type's text form, so that nothing is bent on the way.

use bytes::{BufMut, BytesMut};
use mainstay_sql::value::{Finite, Interval, TimeOfDay};
use mainstay_sql::{Code, SqlError, Value};
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type};

use crate::decode::{EPOCH_DAYS, EPOCH_MICROS};
use crate::text::{self, MICROS_PER_DAY};

/// A parameter on its way to the server.
#[derive(Debug)]
pub(crate) struct Param<'a>(pub(crate) &'a Value);

/// As many as the protocol's 16 bits count.
pub(crate) const PARAMS_MAX: usize = u16::MAX as usize;
/// The server ends a session whose message is longer than 1 GiB; a little is left for what surrounds the
/// text or the values.
pub(crate) const MESSAGE_MAX: usize = (1 << 30) - 4096;
/// What surrounds a value in a message: its length and its format.
const FRAME: usize = 6;

/// Refuses more parameters than the protocol counts.
pub(crate) fn check_count(count: usize) -> Result<(), SqlError> {
    if count <= PARAMS_MAX {
        return Ok(());
    }
    Err(SqlError::caller(
        Code::BadValue,
        format!("the statement has {count} parameters, and PostgreSQL takes {PARAMS_MAX} at most"),
        "send several statements, or pass a column of values as one array (`unnest($1::bigint[])`)",
    ))
}

/// Refuses a text that fits into no message.
pub(crate) fn check_text(text: &str, max: usize) -> Result<(), SqlError> {
    if text.len() <= max {
        return Ok(());
    }
    Err(too_long("text of the statement", text.len(), max))
}

/// Refuses values that together fit into no message.
pub(crate) fn check_length(params: &[Value], types: &[Type], max: usize) -> Result<(), SqlError> {
    let bound = params.iter().map(bound).fold(0, usize::saturating_add);
    if bound <= max {
        return Ok(());
    }
    // Only near the limit are they measured exactly.
    let length = params
        .iter()
        .zip(types)
        .map(|(value, ty)| length(value, ty))
        .fold(0, usize::saturating_add);
    if length <= max {
        return Ok(());
    }
    Err(too_long("values of the statement", length, max))
}

fn too_long(what: &str, length: usize, max: usize) -> SqlError {
    SqlError::caller(
        Code::BadValue,
        format!("the {what}: {length} bytes, and a message to PostgreSQL holds {max}"),
        "send less at once: fewer rows, or large values in pieces",
    )
}

/// No value is longer than this on the wire.
fn bound(value: &Value) -> usize {
    let inner = match value {
        // In an array each character may get a backslash.
        Value::Text(text) | Value::Json(text) | Value::Other { text, .. } => text.len(),
        Value::Decimal(number) => number.as_str().len(),
        Value::Bytes(bytes) => bytes.len() + 2,
        Value::Array(items) => items.iter().map(bound).fold(0, usize::saturating_add),
        _ => 64,
    };
    let doubled = match value {
        Value::Array(_) => inner,
        _ => inner.saturating_mul(2),
    };
    doubled.saturating_add(FRAME)
}

/// The length of a value on the wire.
fn length(value: &Value, ty: &Type) -> usize {
    let bytes = match wire(value, ty) {
        Ok(Wire::Raw(bytes)) => bytes.len(),
        Ok(Wire::Jsonb(text)) => text.len() + 1,
        Ok(Wire::Text) => {
            let mut text = String::new();
            text::write_value(value, &mut text);
            text.len()
        }
        _ => 16,
    };
    bytes.saturating_add(FRAME)
}

/// Checks all parameters before anything is sent.
///
/// # Errors
/// `bad_value` with `sent: no`, naming the first that does not fit.
pub(crate) fn check(params: &[Value], types: &[Type]) -> Result<(), SqlError> {
    if params.len() != types.len() {
        let message = format!(
            "parameters: the statement takes {} and got {}",
            types.len(),
            params.len()
        );
        return Err(SqlError::caller(
            Code::BadValue,
            message,
            "give one value for each of $1, $2 …",
        ));
    }
    for (index, (value, ty)) in params.iter().zip(types).enumerate() {
        if let Err(misfit) = wire(value, ty) {
            let message = format!(
                "parameter ${} of type {}: {}",
                index + 1,
                ty.name(),
                misfit.0
            );
            let hint =
                "give a value of that type, its text, or cast in the statement (`$1::bigint`)";
            return Err(SqlError::caller(Code::BadValue, message, hint));
        }
    }
    check_length(params, types, MESSAGE_MAX)
}

/// Why a value does not fit.
#[derive(Debug, PartialEq, Eq)]
struct Misfit(&'static str);

/// What goes over the wire.
#[derive(Debug, PartialEq)]
enum Wire<'a> {
    Null,
    Bool(bool),
    I16(i16),
    I32(i32),
    U32(u32),
    I64(i64),
    F32(f32),
    F64(f64),
    Raw(&'a [u8]),
    Jsonb(&'a str),
    TimeTz {
        micros: i64,
        west: i32,
    },
    Interval(Interval),
    /// The value's text form.
    Text,
}

const RANGE: Misfit = Misfit("the value is out of range");
const KIND: Misfit = Misfit("the value is of another kind");

fn wire<'a>(value: &'a Value, ty: &Type) -> Result<Wire<'a>, Misfit> {
    if let Kind::Domain(inner) = ty.kind() {
        return wire(value, inner);
    }
    match value {
        Value::Null => Ok(Wire::Null),
        Value::Bool(v) => {
            if *ty == Type::BOOL {
                Ok(Wire::Bool(*v))
            } else {
                Err(KIND)
            }
        }
        Value::I64(v) => integer(*v, ty),
        Value::U64(v) => match i64::try_from(*v) {
            Ok(v) => integer(v, ty),
            Err(_) if matches!(*ty, Type::NUMERIC | Type::XID8) => Ok(Wire::Text),
            Err(_) => Err(RANGE),
        },
        Value::F64(v) => float(*v, ty),
        Value::Decimal(v) => decimal(v.as_str(), ty),
        Value::Text(v) => written(v, ty),
        Value::Bytes(v) => {
            if *ty == Type::BYTEA {
                Ok(Wire::Raw(v))
            } else {
                Err(KIND)
            }
        }
        Value::Uuid(v) => {
            if *ty == Type::UUID {
                Ok(Wire::Raw(v.as_bytes()))
            } else {
                Err(KIND)
            }
        }
        Value::Date(v) if *ty == Type::DATE => date(*v),
        Value::Time(v) if matches!(*ty, Type::TIME | Type::TIMETZ) => time(*v, ty),
        Value::Timestamp(v) if *ty == Type::TIMESTAMP => timestamp(*v),
        Value::TimestampTz(v) if *ty == Type::TIMESTAMPTZ => timestamp(*v),
        Value::Interval(v) if *ty == Type::INTERVAL => Ok(Wire::Interval(*v)),
        Value::Json(v) if matches!(*ty, Type::JSON | Type::JSONB) => written(v, ty),
        Value::Array(items) => array(items, ty),
        Value::Other { type_name, text } if is_named(ty, type_name) => written(text, ty),
        _ => Err(KIND),
    }
}

fn integer(v: i64, ty: &Type) -> Result<Wire<'static>, Misfit> {
    match *ty {
        Type::INT8 => Ok(Wire::I64(v)),
        Type::INT4 => v.try_into().map(Wire::I32).map_err(|_| RANGE),
        Type::INT2 => v.try_into().map(Wire::I16).map_err(|_| RANGE),
        Type::OID | Type::XID | Type::CID => v.try_into().map(Wire::U32).map_err(|_| RANGE),
        Type::XID8 if v >= 0 => Ok(Wire::I64(v)),
        Type::NUMERIC => Ok(Wire::Text),
        Type::FLOAT8 | Type::FLOAT4 => match v as f64 {
            f if f as i128 == i128::from(v) => float(f, ty),
            _ => Err(Misfit(
                "the integer is not exact as a floating point number",
            )),
        },
        _ => Err(KIND),
    }
}

/// A narrower float is taken if it is the same number, or the same when written in decimal.
fn float(v: f64, ty: &Type) -> Result<Wire<'static>, Misfit> {
    match *ty {
        Type::FLOAT8 => Ok(Wire::F64(v)),
        Type::FLOAT4 => {
            let narrow = v as f32;
            let same = f64::from(narrow) == v
                || v.is_nan()
                || (narrow.is_finite() && narrow.to_string() == v.to_string());
            if same {
                Ok(Wire::F32(narrow))
            } else {
                Err(Misfit("the value is not exact as float4"))
            }
        }
        Type::NUMERIC => Ok(Wire::Text),
        Type::INT2 | Type::INT4 | Type::INT8 => match v as i64 {
            whole if whole as f64 == v && v.abs() <= 9_007_199_254_740_992.0 => integer(whole, ty),
            _ => Err(Misfit("the value is no exact integer")),
        },
        _ => Err(KIND),
    }
}

fn decimal<'a>(text: &str, ty: &Type) -> Result<Wire<'a>, Misfit> {
    match *ty {
        Type::NUMERIC => Ok(Wire::Text),
        Type::INT2 | Type::INT4 | Type::INT8 => integer(
            text.parse()
                .map_err(|_| Misfit("the decimal is no integer of 64 bits"))?,
            ty,
        ),
        Type::FLOAT4 | Type::FLOAT8 => {
            let value: f64 = text.parse().map_err(|_| KIND)?;
            let exact = !value.is_finite() || trimmed(&value.to_string()) == trimmed(text);
            if exact {
                float(value, ty)
            } else {
                Err(Misfit(
                    "the decimal is not exact as a floating point number",
                ))
            }
        }
        _ => Err(KIND),
    }
}

/// A decimal text without the zeros that mean nothing.
fn trimmed(text: &str) -> (bool, &str) {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |d| (true, d));
    let digits = digits.trim_start_matches('0');
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    (negative && !digits.is_empty(), digits)
}

/// A text for a parameter of any type.
fn written<'a>(text: &'a str, ty: &Type) -> Result<Wire<'a>, Misfit> {
    if text.contains('\0') {
        return Err(Misfit("PostgreSQL cannot hold the character U+0000"));
    }
    match *ty {
        Type::TEXT | Type::VARCHAR | Type::BPCHAR | Type::NAME | Type::UNKNOWN | Type::JSON => {
            Ok(Wire::Raw(text.as_bytes()))
        }
        Type::JSONB => Ok(Wire::Jsonb(text)),
        // The server would take the first byte and drop the rest.
        Type::CHAR if text.len() > 1 => Err(Misfit("it holds a single byte")),
        _ => Ok(Wire::Text),
    }
}

fn date(value: Finite<mainstay_sql::value::Day>) -> Result<Wire<'static>, Misfit> {
    Ok(Wire::I32(match value {
        Finite::NegativeInfinity => i32::MIN,
        Finite::Infinity => i32::MAX,
        Finite::At(day) => match day.0.checked_sub(EPOCH_DAYS) {
            Some(days) if days != i32::MIN => days,
            _ => return Err(RANGE),
        },
    }))
}

fn timestamp(value: Finite<mainstay_sql::value::Micros>) -> Result<Wire<'static>, Misfit> {
    Ok(Wire::I64(match value {
        Finite::NegativeInfinity => i64::MIN,
        Finite::Infinity => i64::MAX,
        Finite::At(at) => match at.0.checked_sub(EPOCH_MICROS) {
            Some(micros) if micros != i64::MIN => micros,
            _ => return Err(RANGE),
        },
    }))
}

fn time(value: TimeOfDay, ty: &Type) -> Result<Wire<'static>, Misfit> {
    if !(0..=MICROS_PER_DAY).contains(&value.micros) {
        return Err(RANGE);
    }
    match (value.offset, ty == &Type::TIMETZ) {
        (None, false) => Ok(Wire::I64(value.micros)),
        (Some(east), true) => {
            let west = east.checked_neg().ok_or(RANGE)?;
            Ok(Wire::TimeTz {
                micros: value.micros,
                west,
            })
        }
        (None, true) => Err(Misfit("a time with zone needs its offset")),
        (Some(_), false) => Err(Misfit("the type has no place for an offset")),
    }
}

fn array<'a>(items: &'a [Value], ty: &Type) -> Result<Wire<'a>, Misfit> {
    let Kind::Array(element) = ty.kind() else {
        return Err(KIND);
    };
    check_items(items, element)?;
    Ok(Wire::Text)
}

/// Every element fits, at any depth.
fn check_items(items: &[Value], element: &Type) -> Result<(), Misfit> {
    for item in items {
        match item {
            Value::Array(inner) => check_items(inner, element)?,
            other => {
                wire(other, element)?;
            }
        }
    }
    Ok(())
}

fn is_named(ty: &Type, name: &str) -> bool {
    ty.name() == name || &*crate::decode::native_name(ty) == name
}

impl ToSql for Param<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match wire(self.0, ty).map_err(|misfit| misfit.0)? {
            Wire::Null => return Ok(IsNull::Yes),
            Wire::Bool(v) => out.put_u8(v.into()),
            Wire::I16(v) => out.put_i16(v),
            Wire::I32(v) => out.put_i32(v),
            Wire::U32(v) => out.put_u32(v),
            Wire::I64(v) => out.put_i64(v),
            Wire::F32(v) => out.put_f32(v),
            Wire::F64(v) => out.put_f64(v),
            Wire::Raw(v) => out.put_slice(v),
            Wire::Jsonb(v) => {
                out.put_u8(1);
                out.put_slice(v.as_bytes());
            }
            Wire::TimeTz { micros, west } => {
                out.put_i64(micros);
                out.put_i32(west);
            }
            Wire::Interval(v) => {
                out.put_i64(v.micros);
                out.put_i32(v.days);
                out.put_i32(v.months);
            }
            Wire::Text => {
                let mut text = String::new();
                text::write_value(self.0, &mut text);
                out.put_slice(text.as_bytes());
            }
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn to_sql_checked(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        self.to_sql(ty, out)
    }

    fn encode_format(&self, ty: &Type) -> Format {
        match wire(self.0, ty) {
            Ok(Wire::Text) => Format::Text,
            _ => Format::Binary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_message_holds_is_refused_and_what_just_fits_is_not() {
        let text = |length: usize| Value::Text("x".repeat(length));
        let refused = |params: &[Value], ty: Type, max: usize| {
            let types = vec![ty; params.len()];
            match check_length(params, &types, max) {
                Ok(()) => false,
                Err(error) => {
                    assert_eq!(error.code(), Code::BadValue);
                    assert!(error.detail().hint.is_some());
                    true
                }
            }
        };
        assert!(!refused(&[text(94)], Type::TEXT, 100));
        assert!(refused(&[text(95)], Type::TEXT, 100));
        assert!(refused(&[text(60), text(60)], Type::TEXT, 100));
        assert!(refused(
            &[Value::Bytes(vec![0; 95].into())],
            Type::BYTEA,
            100
        ));
        // Counted as they are written: with quotes and backslashes.
        let quotes = Value::Array(vec![Value::Text("\"".repeat(50))]);
        assert!(refused(
            std::slice::from_ref(&quotes),
            Type::TEXT_ARRAY,
            105
        ));
        assert!(!refused(&[quotes], Type::TEXT_ARRAY, 200));
        assert!(check_text("SELECT 1", 8).is_ok());
        assert_eq!(
            check_text("SELECT 11", 8).map_err(|e| e.code()),
            Err(Code::BadValue)
        );
        assert!(check_count(PARAMS_MAX).is_ok() && check_count(PARAMS_MAX + 1).is_err());
    }
}
