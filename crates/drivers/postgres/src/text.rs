//! The text forms of values, as PostgreSQL itself writes them in its ISO style. They are what a text
//! parameter holds, what array literals are made of, and what a value is given as that no other form fits.

use std::fmt::Write as _;

use mainstay_sql::Value;
use mainstay_sql::value::{Finite, Interval, TimeOfDay};

pub(crate) const MICROS_PER_DAY: i64 = 86_400_000_000;

/// Appends the text form. NULL has none outside of arrays; it is written as nothing.
pub(crate) fn write_value(value: &Value, out: &mut String) {
    match value {
        Value::Null => {}
        Value::Bool(v) => out.push(if *v { 't' } else { 'f' }),
        Value::I64(v) => put(out, format_args!("{v}")),
        Value::U64(v) => put(out, format_args!("{v}")),
        Value::F64(v) => write_float(*v, out),
        Value::Decimal(v) => out.push_str(v.as_str()),
        Value::Text(v) | Value::Json(v) | Value::Other { text: v, .. } => out.push_str(v),
        Value::Bytes(v) => {
            out.push_str("\\x");
            v.iter().for_each(|b| put(out, format_args!("{b:02x}")));
        }
        Value::Uuid(v) => put(out, format_args!("{v}")),
        Value::Date(v) => write_finite(*v, out, |day, out| write_date(i64::from(day.0), out)),
        Value::Time(v) => write_time_of_day(*v, out),
        Value::Timestamp(v) => write_finite(*v, out, |at, out| {
            write_timestamp(i128::from(at.0), "", out)
        }),
        Value::TimestampTz(v) => {
            write_finite(*v, out, |at, out| {
                write_timestamp(i128::from(at.0), "+00", out)
            });
        }
        Value::Interval(v) => write_interval(*v, out),
        Value::Array(items) => write_array(items, out),
    }
}

fn put(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = out.write_fmt(text);
}

fn write_float(value: f64, out: &mut String) {
    match value {
        v if v.is_nan() => out.push_str("NaN"),
        v if v.is_infinite() => out.push_str(if v > 0.0 { "Infinity" } else { "-Infinity" }),
        v if v != 0.0 && !(1e-5..1e15).contains(&v.abs()) => put(out, format_args!("{v:e}")),
        v => put(out, format_args!("{v}")),
    }
}

fn write_finite<T>(value: Finite<T>, out: &mut String, write: impl FnOnce(T, &mut String)) {
    match value {
        Finite::NegativeInfinity => out.push_str("-infinity"),
        Finite::Infinity => out.push_str("infinity"),
        Finite::At(at) => write(at, out),
    }
}

/// Days since 1970 as a date; years before 1 carry `BC` at the end, which the caller writes behind a time.
fn write_day(days: i64, out: &mut String) -> &'static str {
    let (year, month, day) = civil(days);
    let (shown, era) = if year > 0 {
        (year, "")
    } else {
        (1 - year, " BC")
    };
    put(out, format_args!("{shown:04}-{month:02}-{day:02}"));
    era
}

fn write_date(days: i64, out: &mut String) {
    let era = write_day(days, out);
    out.push_str(era);
}

/// Microseconds since 1970; wider than 64 bits, as PostgreSQL counts from 2000 and reaches further.
pub(crate) fn write_timestamp(micros: i128, zone: &str, out: &mut String) {
    let day = i128::from(MICROS_PER_DAY);
    let days = micros.div_euclid(day) as i64;
    let era = write_day(days, out);
    out.push(' ');
    write_clock(micros.rem_euclid(day) as i64, out);
    out.push_str(zone);
    out.push_str(era);
}

fn write_time_of_day(time: TimeOfDay, out: &mut String) {
    write_clock(time.micros, out);
    if let Some(offset) = time.offset {
        let (sign, seconds) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        put(out, format_args!("{sign}{:02}", seconds / 3600));
        if seconds % 3600 != 0 {
            put(out, format_args!(":{:02}", seconds / 60 % 60));
        }
        if seconds % 60 != 0 {
            put(out, format_args!(":{:02}", seconds % 60));
        }
    }
}

fn write_clock(micros: i64, out: &mut String) {
    if micros < 0 {
        out.push('-');
    }
    let micros = micros.unsigned_abs();
    let seconds = micros / 1_000_000;
    put(
        out,
        format_args!(
            "{:02}:{:02}:{:02}",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60
        ),
    );
    write_fraction(micros % 1_000_000, out);
}

fn write_fraction(micros: u64, out: &mut String) {
    if micros != 0 {
        let digits = format!("{micros:06}");
        out.push('.');
        out.push_str(digits.trim_end_matches('0'));
    }
}

fn write_interval(value: Interval, out: &mut String) {
    put(
        out,
        format_args!("{} mons {} days ", value.months, value.days),
    );
    if value.micros < 0 {
        out.push('-');
    }
    let micros = value.micros.unsigned_abs();
    put(out, format_args!("{}", micros / 1_000_000));
    write_fraction(micros % 1_000_000, out);
    out.push_str(" secs");
}

/// The literal of an array whose lower bounds are 1.
fn write_array(items: &[Value], out: &mut String) {
    out.push('{');
    for (index, item) in items.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        match item {
            Value::Null => out.push_str("NULL"),
            Value::Array(inner) => write_array(inner, out),
            other => {
                let mut text = String::new();
                write_value(other, &mut text);
                write_element(&text, out);
            }
        }
    }
    out.push('}');
}

/// Quoted where the server would quote it.
fn write_element(text: &str, out: &mut String) {
    let is_special = |c: char| {
        matches!(c, '{' | '}' | '"' | '\\' | ',') || c.is_ascii_whitespace() || c == '\u{b}'
    };
    if !text.is_empty() && !text.eq_ignore_ascii_case("null") && !text.contains(is_special) {
        out.push_str(text);
        return;
    }
    out.push('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

/// Year, month and day of a day since 1970-01-01 in the proleptic Gregorian calendar, with a year 0.
fn civil(days: i64) -> (i64, i64, i64) {
    // Eras of 400 years that begin on March 1st, so that the leap day is the last of its year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use mainstay_sql::value::{Day, Micros};

    use super::*;

    fn text(value: Value) -> String {
        let mut out = String::new();
        write_value(&value, &mut out);
        out
    }

    #[test]
    fn values_are_written_as_the_server_writes_them() {
        let table = [
            (Value::Bool(true), "t"),
            (Value::F64(f64::NEG_INFINITY), "-Infinity"),
            (Value::F64(0.1), "0.1"),
            (Value::F64(-0.0), "-0"),
            (Value::F64(1e300), "1e300"),
            (Value::Bytes(vec![0, 255].into()), "\\x00ff"),
            (Value::Date(Finite::At(Day(0))), "1970-01-01"),
            (Value::Date(Finite::At(Day(-719_163))), "0001-12-31 BC"),
            (Value::Date(Finite::At(Day(-719_162))), "0001-01-01"),
            (Value::Date(Finite::Infinity), "infinity"),
            (
                Value::Timestamp(Finite::At(Micros(-1))),
                "1969-12-31 23:59:59.999999",
            ),
            (
                Value::TimestampTz(Finite::At(Micros(951_782_400_500_000))),
                "2000-02-29 00:00:00.5+00",
            ),
            (
                Value::Time(TimeOfDay {
                    micros: MICROS_PER_DAY,
                    offset: None,
                }),
                "24:00:00",
            ),
            (
                Value::Time(TimeOfDay {
                    micros: 1_000_000,
                    offset: Some(-19_800),
                }),
                "00:00:01-05:30",
            ),
            (
                Value::Interval(Interval {
                    months: -1,
                    days: 2,
                    micros: -1_500_000,
                }),
                "-1 mons 2 days -1.5 secs",
            ),
        ];
        for (value, expected) in table {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn array_literals_quote_what_would_be_misread() {
        let items = vec![
            Value::Null,
            Value::Text("null".into()),
            Value::Text(String::new()),
            Value::Text("a,b".into()),
            Value::Text("q\"\\".into()),
            Value::Text("plain".into()),
        ];
        assert_eq!(
            text(Value::Array(items)),
            r#"{NULL,"null","","a,b","q\"\\",plain}"#
        );
        let nested = vec![
            Value::Array(vec![Value::I64(1)]),
            Value::Array(vec![Value::Null]),
        ];
        assert_eq!(text(Value::Array(nested)), "{{1},{NULL}}");
    }
}
