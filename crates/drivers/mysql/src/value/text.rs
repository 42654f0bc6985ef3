//! Values from the rows of a plain text, where everything travels as it is written.

use mainstay_sql::Value;
use mainstay_sql::value::TimeOfDay;

use super::decode::{Decoder, Moment, date};
use crate::wire::Malformed;

pub(super) fn decode(decoder: &Decoder, bytes: &[u8]) -> Result<Value, Malformed> {
    let text = || std::str::from_utf8(bytes).map_err(|_| Malformed);
    fn parsed<T: std::str::FromStr>(text: &str) -> Result<T, Malformed> {
        text.parse().map_err(|_| Malformed)
    }
    Ok(match decoder {
        Decoder::Unsigned(8) => Value::U64(parsed(text()?)?),
        Decoder::Signed(_) | Decoder::Unsigned(_) => Value::I64(parsed(text()?)?),
        Decoder::Float => Value::F64(parsed::<f32>(text()?)?.into()),
        Decoder::Double => Value::F64(parsed(text()?)?),
        Decoder::Date => {
            let (year, month, day) = day(text()?)?;
            date(year, month, day)
        }
        Decoder::DateTime { is_utc } => moment(text()?)?.value(*is_utc),
        Decoder::Time => Value::Time(time(text()?)?),
        _ => decoder.written(bytes)?,
    })
}

fn part<T: std::str::FromStr>(text: Option<&str>) -> Result<T, Malformed> {
    text.and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// `2020-01-31`
fn day(text: &str) -> Result<(u16, u8, u8), Malformed> {
    let mut parts = text.split('-');
    Ok((
        part(parts.next())?,
        part(parts.next())?,
        part(parts.next())?,
    ))
}

/// `2020-01-31 23:59:59.5`
fn moment(text: &str) -> Result<Moment, Malformed> {
    let (date, clock) = text.split_once(' ').unwrap_or((text, "00:00:00"));
    let (year, month, day) = day(date)?;
    let (clock, micros) = fraction(clock)?;
    let mut parts = clock.split(':');
    Ok(Moment {
        year,
        month,
        day,
        hour: part(parts.next())?,
        minute: part(parts.next())?,
        second: part(parts.next())?,
        micros,
    })
}

/// `-838:59:59.999999`
fn time(text: &str) -> Result<TimeOfDay, Malformed> {
    let (is_negative, clock) = text
        .strip_prefix('-')
        .map_or((false, text), |rest| (true, rest));
    let (clock, micros) = fraction(clock)?;
    let mut parts = clock.split(':');
    let hours: i64 = part(parts.next())?;
    let minutes: i64 = part(parts.next())?;
    let seconds: i64 = part(parts.next())?;
    let micros = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + i64::from(micros);
    Ok(TimeOfDay {
        micros: if is_negative { -micros } else { micros },
        offset: None,
    })
}

/// Splits the microseconds off.
fn fraction(clock: &str) -> Result<(&str, u32), Malformed> {
    let Some((whole, digits)) = clock.split_once('.') else {
        return Ok((clock, 0));
    };
    if digits.len() > 6 {
        return Err(Malformed);
    }
    Ok((whole, part(Some(&format!("{digits:0<6}")))?))
}

#[cfg(test)]
mod tests {
    use mainstay_sql::value::{Finite, Micros};

    use super::*;

    #[test]
    fn texts_are_read_as_the_binary_form_is() {
        let table = [
            (Decoder::Signed(8), "-7", Value::I64(-7)),
            (
                Decoder::Unsigned(8),
                "18446744073709551615",
                Value::U64(u64::MAX),
            ),
            (Decoder::Double, "1e300", Value::F64(1e300)),
            (
                Decoder::DateTime { is_utc: false },
                "1970-01-02 00:00:00.5",
                Value::Timestamp(Finite::At(Micros(86_400_500_000))),
            ),
            (
                Decoder::Time,
                "-00:00:01.000001",
                Value::Time(TimeOfDay {
                    micros: -1_000_001,
                    offset: None,
                }),
            ),
            (
                Decoder::Date,
                "0000-00-00",
                Value::Other {
                    type_name: "date".into(),
                    text: "0000-00-00".into(),
                },
            ),
            (Decoder::Text, "x", Value::Text("x".into())),
        ];
        for (decoder, text, expected) in table {
            assert_eq!(decode(&decoder, text.as_bytes()), Ok(expected), "{text}");
        }
        for (decoder, text) in [
            (Decoder::Signed(8), "x"),
            (Decoder::Time, "1:2"),
            (Decoder::Date, "1-2"),
            (Decoder::Time, "1:2:3.1234567"),
        ] {
            assert_eq!(decode(&decoder, text.as_bytes()), Err(Malformed), "{text}");
        }
    }
}
