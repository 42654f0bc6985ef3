//! Parameters in binary, so that nothing is bent on the way.

use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};
use mainstay_sql::{Code, SqlError, Value};

use super::calendar::{MICROS_PER_DAY, MICROS_PER_SECOND, civil};
use super::kind;

const EXECUTE: u8 = 0x17;
/// Beside the type of an unsigned number.
const UNSIGNED: u8 = 0x80;
/// `838:59:59.999999`
const TIME_MAX: i64 = (838 * 3600 + 59 * 60 + 59) * MICROS_PER_SECOND + 999_999;

/// As many as the protocol's 16 bits count.
const PARAMS_MAX: usize = u16::MAX as usize;

/// Refuses more parameters than the protocol counts.
pub(crate) fn check_count(count: usize) -> Result<(), SqlError> {
    if count <= PARAMS_MAX {
        return Ok(());
    }
    Err(SqlError::caller(
        Code::BadValue,
        format!("the statement has {count} parameters, and MySQL takes {PARAMS_MAX} at most"),
        "send several statements, with fewer rows each",
    ))
}

/// Checks all parameters before anything is sent.
///
/// # Errors
/// `bad_value` with `sent: no`, naming the first that does not fit.
pub(crate) fn check(params: &[Value], count: u16, is_utc: bool) -> Result<(), SqlError> {
    if params.len() != usize::from(count) {
        let message = format!(
            "parameters: the statement takes {count} and got {}",
            params.len()
        );
        return Err(SqlError::caller(
            Code::BadValue,
            message,
            "give one value for each ?",
        ));
    }
    for (index, value) in params.iter().enumerate() {
        if let Some((problem, hint)) = misfit(value, is_utc) {
            let message = format!("parameter {}: {problem}", index + 1);
            return Err(SqlError::caller(Code::BadValue, message, hint));
        }
    }
    Ok(())
}

const RANGE: &str = "give one from 0000-01-01 to 9999-12-31";

/// What the database cannot hold, and what would do instead.
fn misfit(value: &Value, is_utc: bool) -> Option<(&'static str, &'static str)> {
    let fits = |days| civil(days).is_some();
    match value {
        Value::F64(number) if !number.is_finite() => {
            Some(("MySQL holds no NaN and no infinity", "send NULL, or text"))
        }
        Value::Decimal(number) if number.as_str().ends_with(['N', 'y']) => {
            Some(("MySQL holds no NaN and no infinity", "send NULL, or text"))
        }
        Value::Date(Finite::At(Day(days))) if fits(*days) => None,
        Value::Timestamp(Finite::At(at)) | Value::TimestampTz(Finite::At(at))
            if !fits(day_of(*at)) =>
        {
            Some(("the year is out of range", RANGE))
        }
        Value::TimestampTz(Finite::At(_)) if !is_utc => Some((
            "points in time need a session in UTC",
            "leave the option time_zone out, or send a timestamp without zone",
        )),
        Value::Timestamp(Finite::At(_)) | Value::TimestampTz(Finite::At(_)) => None,
        Value::Date(Finite::At(_)) => Some(("the year is out of range", RANGE)),
        Value::Date(_) | Value::Timestamp(_) | Value::TimestampTz(_) => {
            Some(("MySQL holds no infinite dates", RANGE))
        }
        Value::Time(TimeOfDay {
            offset: Some(_), ..
        }) => Some((
            "MySQL has no times with a zone",
            "send the time without its offset",
        )),
        Value::Time(time) if time.micros.abs() > TIME_MAX => Some((
            "the time is out of range",
            "give one from -838:59:59.999999 to 838:59:59.999999",
        )),
        Value::Interval(_) => Some(("MySQL has no type for intervals", "send text")),
        Value::Array(_) => Some(("MySQL has no arrays", "send JSON, or one value a row")),
        Value::Other { type_name, text } if &**type_name == "bit" && bits(text).is_none() => {
            Some(("a bit field is 1 to 64 digits of 0 and 1", "such as 0101"))
        }
        _ => None,
    }
}

fn day_of(at: Micros) -> i32 {
    i32::try_from(at.0.div_euclid(MICROS_PER_DAY)).unwrap_or(i32::MAX)
}

fn bits(text: &str) -> Option<u64> {
    let is_field = (1..=64).contains(&text.len()) && text.bytes().all(|b| matches!(b, b'0' | b'1'));
    is_field.then(|| u64::from_str_radix(text, 2).ok())?
}

/// The whole command that runs a prepared statement with checked parameters.
pub(crate) fn execution(statement: u32, params: &[Value]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(16 + params.len() * 16);
    packet.push(EXECUTE);
    packet.extend_from_slice(&statement.to_le_bytes());
    // No cursor, one run.
    packet.extend_from_slice(&[0, 1, 0, 0, 0]);
    if params.is_empty() {
        return packet;
    }
    let mut nulls = vec![0_u8; params.len().div_ceil(8)];
    for (index, _) in params
        .iter()
        .enumerate()
        .filter(|(_, value)| **value == Value::Null)
    {
        nulls[index / 8] |= 1 << (index % 8);
    }
    packet.extend_from_slice(&nulls);
    packet.push(1);
    for value in params {
        packet.extend_from_slice(&type_of(value));
    }
    for value in params {
        put(value, &mut packet);
    }
    packet
}

/// The type's number and whether it is unsigned.
fn type_of(value: &Value) -> [u8; 2] {
    match value {
        Value::Null => [kind::NULL, 0],
        Value::Bool(_) => [kind::TINY, 0],
        Value::I64(_) => [kind::LONGLONG, 0],
        Value::U64(_) => [kind::LONGLONG, UNSIGNED],
        Value::F64(_) => [kind::DOUBLE, 0],
        Value::Decimal(_) => [kind::NEWDECIMAL, 0],
        Value::Bytes(_) => [kind::BLOB, 0],
        Value::Date(_) => [kind::DATE, 0],
        Value::Time(_) => [kind::TIME, 0],
        Value::Timestamp(_) | Value::TimestampTz(_) => [kind::DATETIME, 0],
        Value::Other { type_name, .. } if &**type_name == "bit" => [kind::LONGLONG, UNSIGNED],
        _ => [kind::VAR_STRING, 0],
    }
}

fn put(value: &Value, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Bool(v) => out.push((*v).into()),
        Value::I64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::U64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::F64(v) => out.extend_from_slice(&v.to_le_bytes()),
        Value::Decimal(v) => string(v.as_str().as_bytes(), out),
        Value::Text(v) | Value::Json(v) => string(v.as_bytes(), out),
        Value::Bytes(v) => string(v, out),
        Value::Uuid(v) => string(v.hyphenated().to_string().as_bytes(), out),
        Value::Date(Finite::At(Day(days))) => {
            out.push(4);
            date(*days, out);
        }
        Value::Timestamp(Finite::At(at)) | Value::TimestampTz(Finite::At(at)) => moment(*at, out),
        Value::Time(v) => time(*v, out),
        Value::Other { type_name, text } if &**type_name == "bit" => {
            out.extend_from_slice(&bits(text).unwrap_or(0).to_le_bytes());
        }
        Value::Other { text, .. } => string(text.as_bytes(), out),
        // Refused before; an empty string keeps the packet whole.
        Value::Date(_)
        | Value::Timestamp(_)
        | Value::TimestampTz(_)
        | Value::Interval(_)
        | Value::Array(_) => out.push(0),
    }
}

fn string(bytes: &[u8], out: &mut Vec<u8>) {
    crate::wire::put_bytes(out, bytes);
}

fn date(days: i32, out: &mut Vec<u8>) {
    let (year, month, day) = civil(days).unwrap_or((0, 0, 0));
    out.extend_from_slice(&year.to_le_bytes());
    out.extend_from_slice(&[month, day]);
}

fn moment(at: Micros, out: &mut Vec<u8>) {
    out.push(11);
    date(day_of(at), out);
    let [hour, minute, second, micros @ ..] = clock(at.0.rem_euclid(MICROS_PER_DAY));
    out.extend_from_slice(&[hour, minute, second]);
    out.extend_from_slice(&micros);
}

fn time(time: TimeOfDay, out: &mut Vec<u8>) {
    let length = time.micros.abs();
    out.extend_from_slice(&[12, (time.micros < 0).into()]);
    let days = u32::try_from(length / MICROS_PER_DAY).unwrap_or(0);
    out.extend_from_slice(&days.to_le_bytes());
    out.extend_from_slice(&clock(length % MICROS_PER_DAY));
}

/// Hour, minute, second and microseconds of less than a day.
fn clock(micros: i64) -> [u8; 7] {
    let seconds = micros / MICROS_PER_SECOND;
    // Less than a day: each part fits.
    let part = |number: i64| number as u8;
    let [a, b, c, d] = ((micros % MICROS_PER_SECOND) as u32).to_le_bytes();
    [
        part(seconds / 3600),
        part(seconds / 60 % 60),
        part(seconds % 60),
        a,
        b,
        c,
        d,
    ]
}

#[cfg(test)]
mod tests {
    use mainstay_sql::Decimal;
    use mainstay_sql::value::Interval;

    use super::*;

    #[test]
    fn what_the_database_cannot_hold_is_refused_before_anything_is_sent() {
        let time = |micros, offset| Value::Time(TimeOfDay { micros, offset });
        let refused = [
            Value::F64(f64::NAN),
            Value::F64(f64::INFINITY),
            Value::Decimal(Decimal::parse("-Infinity").unwrap()),
            Value::Decimal(Decimal::parse("NaN").unwrap()),
            Value::Date(Finite::Infinity),
            Value::Date(Finite::At(Day(3_000_000))),
            Value::Timestamp(Finite::At(Micros(i64::MAX))),
            Value::TimestampTz(Finite::NegativeInfinity),
            time(TIME_MAX + 1, None),
            time(0, Some(3600)),
            Value::Interval(Interval::default()),
            Value::Array(vec![]),
            Value::Other {
                type_name: "bit".into(),
                text: "12".into(),
            },
        ];
        for value in refused {
            let error = check(std::slice::from_ref(&value), 1, true).unwrap_err();
            assert_eq!(error.code(), Code::BadValue, "{value:?}");
        }
        let fine = [
            time(-TIME_MAX, None),
            Value::Date(Finite::At(Day(-719_528))),
            Value::U64(u64::MAX),
        ];
        check(&fine, 3, true).unwrap();
        assert!(check(&fine, 2, true).is_err());
        let point = Value::TimestampTz(Finite::At(Micros(0)));
        assert!(check(std::slice::from_ref(&point), 1, true).is_ok());
        assert!(check(&[point], 1, false).is_err());
    }

    #[test]
    fn a_command_holds_its_types_and_values() {
        let packet = execution(7, &[Value::Null, Value::I64(-1)]);
        assert_eq!(packet[..10], [0x17, 7, 0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(packet[10..12], [0b01, 1]);
        assert_eq!(packet[12..16], [kind::NULL, 0, kind::LONGLONG, 0]);
        assert_eq!(packet[16..], [0xff; 8]);
        assert_eq!(execution(1, &[]).len(), 10);
    }
}
