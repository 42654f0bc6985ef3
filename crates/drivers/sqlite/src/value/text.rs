//! The text forms of typed values. Each `parse_*` gives a value only for the very text that its writer makes
//! of it, so that what is read can be written back and compared without a difference.

use mainstay_sql::Decimal;
use mainstay_sql::value::{Day, Finite, Micros, TimeOfDay};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// 0000-01-01 and 9999-12-31: the days that SQLite's own functions know.
const DAY_MIN: i64 = -719_528;
const DAY_MAX: i64 = 2_932_896;

pub(super) fn date(value: Finite<Day>) -> Option<String> {
    let Finite::At(Day(day)) = value else {
        return None;
    };
    write_day(i64::from(day))
}

pub(super) fn time(value: TimeOfDay) -> Option<String> {
    if !(0..MICROS_PER_DAY).contains(&value.micros) {
        return None;
    }
    let mut text = write_clock(value.micros);
    if let Some(offset) = value.offset {
        text.push_str(&write_offset(offset)?);
    }
    Some(text)
}

pub(super) fn timestamp(value: Finite<Micros>) -> Option<String> {
    let Finite::At(Micros(micros)) = value else {
        return None;
    };
    let day = write_day(micros.div_euclid(MICROS_PER_DAY))?;
    let clock = write_clock(micros.rem_euclid(MICROS_PER_DAY));
    Some(format!("{day} {clock}"))
}

pub(super) fn timestamp_tz(value: Finite<Micros>) -> Option<String> {
    timestamp(value).map(|text| text + "+00:00")
}

pub(super) fn parse_date(text: &str) -> Option<Finite<Day>> {
    Some(Finite::At(Day(i32::try_from(parse_day(text)?).ok()?)))
}

pub(super) fn parse_time(text: &str) -> Option<TimeOfDay> {
    let at = text.find(['+', '-']).unwrap_or(text.len());
    let (clock, offset) = text.split_at(at);
    Some(TimeOfDay {
        micros: parse_clock(clock)?,
        offset: match offset {
            "" => None,
            offset => Some(parse_offset(offset)?),
        },
    })
}

pub(super) fn parse_timestamp(text: &str) -> Option<Finite<Micros>> {
    let (day, clock) = text.split_at_checked(10)?;
    let clock = clock.strip_prefix(' ')?;
    let micros = parse_day(day)?
        .checked_mul(MICROS_PER_DAY)?
        .checked_add(parse_clock(clock)?)?;
    Some(Finite::At(Micros(micros)))
}

pub(super) fn parse_timestamp_tz(text: &str) -> Option<Finite<Micros>> {
    parse_timestamp(text.strip_suffix("+00:00")?)
}

pub(super) fn parse_decimal(text: &str) -> Option<Decimal> {
    let is_finite = text.ends_with(|c: char| c.is_ascii_digit());
    let value = Decimal::parse(text).filter(|_| is_finite)?;
    (value.as_str() == text).then_some(value)
}

pub(super) fn parse_uuid(text: &str) -> Option<uuid::Uuid> {
    let value = uuid::Uuid::try_parse(text).ok()?;
    (value.hyphenated().to_string() == text).then_some(value)
}

pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

fn write_day(day: i64) -> Option<String> {
    if !(DAY_MIN..=DAY_MAX).contains(&day) {
        return None;
    }
    let (year, month, day) = civil(day);
    Some(format!("{year:04}-{month:02}-{day:02}"))
}

/// Fractions are written with three or six digits, the forms that SQLite and others make.
fn write_clock(micros: i64) -> String {
    let seconds = micros / MICROS_PER_SECOND;
    let part = micros % MICROS_PER_SECOND;
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match (part, part % 1000) {
        (0, _) => format!("{hour:02}:{minute:02}:{second:02}"),
        (_, 0) => format!("{hour:02}:{minute:02}:{second:02}.{:03}", part / 1000),
        _ => format!("{hour:02}:{minute:02}:{second:02}.{part:06}"),
    }
}

fn write_offset(offset: i32) -> Option<String> {
    let minutes = offset.unsigned_abs() / 60;
    if offset % 60 != 0 || minutes >= 24 * 60 {
        return None;
    }
    let sign = if offset < 0 { '-' } else { '+' };
    Some(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60))
}

/// `2024-02-29`, and nothing that is written otherwise.
fn parse_day(text: &str) -> Option<i64> {
    let &[a, b, c, d, b'-', m, n, b'-', t, u] = text.as_bytes() else {
        return None;
    };
    let (year, month, day) = (two(a, b)? * 100 + two(c, d)?, two(m, n)?, two(t, u)?);
    let exists = (1..=12).contains(&month) && (1..=last_day(year, month)).contains(&day);
    exists.then(|| days(year, month, day))
}

fn last_day(year: i64, month: i64) -> i64 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `12:00:00`, with three digits behind a point where they do, else six; never with zeros alone.
fn parse_clock(text: &str) -> Option<i64> {
    let (clock, part) = text.as_bytes().split_at_checked(8)?;
    let &[h, i, b':', m, n, b':', s, t] = clock else {
        return None;
    };
    let (hour, minute, second) = (two(h, i)?, two(m, n)?, two(s, t)?);
    let micros = match *part {
        [] => 0,
        [b'.', a, b, c] => (two(a, b)? * 10 + two(b'0', c)?) * 1000,
        [b'.', a, b, c, d, e, f] => (two(a, b)? * 100 + two(c, d)?) * 100 + two(e, f)?,
        _ => return None,
    };
    let is_shortest = match part.len() {
        4 => micros > 0,
        7 => micros % 1000 > 0,
        _ => true,
    };
    let is_clock = hour < 24 && minute < 60 && second < 60 && is_shortest;
    is_clock.then(|| (hour * 3600 + minute * 60 + second) * MICROS_PER_SECOND + micros)
}

/// `+05:30`; nothing east is written with a minus.
fn parse_offset(text: &str) -> Option<i32> {
    let &[sign, h, i, b':', m, n] = text.as_bytes() else {
        return None;
    };
    let (hours, minutes) = (two(h, i)?, two(m, n)?);
    let seconds = i32::try_from(hours * 3600 + minutes * 60).ok()?;
    let is_offset = hours < 24 && minutes < 60 && (sign == b'+' || seconds > 0);
    is_offset.then_some(if sign == b'-' { -seconds } else { seconds })
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| i64::from(byte - b'0'));
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// Days since 1970-01-01 of a day in the proleptic Gregorian calendar (Howard Hinnant's `days_from_civil`).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The inverse of [`days`].
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_that_sqlite_knows_survives_its_text() {
        for day in DAY_MIN..=DAY_MAX {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
        assert_eq!(write_day(DAY_MIN).as_deref(), Some("0000-01-01"));
        assert_eq!(write_day(0).as_deref(), Some("1970-01-01"));
        assert_eq!(write_day(DAY_MAX).as_deref(), Some("9999-12-31"));
        assert_eq!(write_day(DAY_MAX + 1), None);
        assert_eq!(write_day(DAY_MIN - 1), None);
    }

    #[test]
    fn texts_of_another_form_stay_text() {
        for text in [
            "2024-02-30",
            "2023-02-29",
            "2024-1-01",
            "24-01-01",
            "2024-01-01 ",
            "",
            "x",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in [
            "24:00:00",
            "12:00",
            "12:00:60",
            "12:00:00.5",
            "12:00:00.000",
            "1:00:00",
        ] {
            assert_eq!(parse_time(text), None, "{text}");
        }
        for text in [
            "2024-01-01T00:00:00",
            "2024-01-01",
            "2024-01-01 00:00",
            "infinity",
        ] {
            assert_eq!(parse_timestamp(text), None, "{text}");
        }
        for text in ["2024-01-01 00:00:00Z", "2024-01-01 00:00:00+01:00"] {
            assert_eq!(parse_timestamp_tz(text), None, "{text}");
        }
        for text in ["1e5", "NaN", "Infinity", "+1", "1.", "", " 1"] {
            assert_eq!(parse_decimal(text), None, "{text}");
        }
        for text in ["{", "", "nope", "{}x"] {
            assert!(!is_json(text), "{text}");
        }
        let upper = "6F9619FF-8B86-D011-B42D-00C04FC964FF";
        assert_eq!(parse_uuid(upper), None);
        assert!(parse_uuid(&upper.to_ascii_lowercase()).is_some());
    }

    /// Texts like those of the writers, with a few characters changed.
    fn alike() -> Vec<String> {
        let mut texts = Vec::new();
        for text in [
            "2024-02-29",
            "0000-01-01",
            "1900-02-28",
            "12:00:00",
            "23:59:59.999999",
            "00:00:00.500",
            "00:00:00.000500",
            "12:00:00+05:30",
            "12:00:00.120-00:30",
            "2024-02-29 12:00:00",
            "9999-12-31 23:59:59.999",
            "2024-02-29 12:00:00.000001+00:00",
        ] {
            texts.push(text.to_owned());
            for at in 0..text.len() {
                for other in [
                    "", "0", "1", "3", "6", "9", "-", "+", ":", ".", " ", "T", "a", "00", "é",
                ] {
                    texts.push(format!("{}{other}{}", &text[..at], &text[at + 1..]));
                    texts.push(format!("{}{other}{}", &text[..at], &text[at..]));
                }
            }
        }
        texts
    }

    #[test]
    fn only_the_text_that_a_writer_makes_is_read_as_its_value() {
        let mut read = 0;
        for text in alike() {
            let written = [
                parse_date(&text).map(|value| date(value).unwrap()),
                parse_time(&text).map(|value| time(value).unwrap()),
                parse_timestamp(&text).map(|value| timestamp(value).unwrap()),
                parse_timestamp_tz(&text).map(|value| timestamp_tz(value).unwrap()),
            ];
            for written in written.into_iter().flatten() {
                read += 1;
                assert_eq!(written, text);
            }
        }
        assert!(read > 500, "{read}");
    }

    #[test]
    fn texts_of_the_right_form_come_back_the_same() {
        for text in [
            "12:00:00",
            "23:59:59.999999",
            "00:00:00.500",
            "12:00:00+05:30",
            "01:02:03-08:00",
        ] {
            assert_eq!(time(parse_time(text).unwrap()).as_deref(), Some(text));
        }
        for text in [
            "2024-02-29 12:00:00",
            "0000-01-01 00:00:00",
            "1969-12-31 23:59:59.999",
        ] {
            assert_eq!(
                timestamp(parse_timestamp(text).unwrap()).as_deref(),
                Some(text)
            );
        }
    }
}
