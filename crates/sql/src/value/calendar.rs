//! Days and times as ISO 8601 text, in the proleptic Gregorian calendar over the whole range of the
//! databases: years before 1 are astronomical (0 is 1 BC), years beyond 9999 carry a sign.

use std::fmt::Write;

use super::{Day, Finite, Interval, Micros, TimeOfDay};

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// Year, month and day of a count of days since 1970-01-01. Howard Hinnant, "chrono-Compatible Low-Level
/// Date Algorithms" (2013), `civil_from_days`.
pub(crate) fn civil_from_days(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    // Both are small and positive by construction.
    (year, month as u32, day as u32)
}

/// Days since 1970-01-01 of a date that exists. The inverse of [`civil_from_days`], from the same source.
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let shifted_year = if month <= 2 { year - 1 } else { year };
    let era = shifted_year.div_euclid(400);
    let year_of_era = shifted_year.rem_euclid(400);
    let shifted_month = i64::from(if month > 2 { month - 3 } else { month + 9 });
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn days_in_month(year: i64, month: u32) -> u32 {
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Two digits of a number below 100. Exports write nothing more often: `write!` would take several times
/// as long.
fn push_two(out: &mut String, number: u64) {
    let digit = |number: u64| char::from(b'0' + (number % 10) as u8);
    out.push(digit(number / 10));
    out.push(digit(number));
}

fn write_date(out: &mut String, days: i64) {
    let (year, month, day) = civil_from_days(days);
    match year {
        0..=9999 => {
            push_two(out, year.unsigned_abs() / 100);
            push_two(out, year.unsigned_abs() % 100);
        }
        10_000.. => drop(write!(out, "+{year}")),
        _ => drop(write!(out, "-{:04}", year.unsigned_abs())),
    }
    out.push('-');
    push_two(out, month.into());
    out.push('-');
    push_two(out, day.into());
}

fn write_clock(out: &mut String, micros: u64) {
    let seconds = micros / 1_000_000;
    match seconds / 3600 {
        hours @ 0..=99 => push_two(out, hours),
        hours => drop(write!(out, "{hours}")),
    }
    out.push(':');
    push_two(out, seconds / 60 % 60);
    out.push(':');
    push_two(out, seconds % 60);
    let fraction = micros % 1_000_000;
    if fraction > 0 {
        out.push('.');
        for part in [fraction / 10_000, fraction / 100 % 100, fraction % 100] {
            push_two(out, part);
        }
        out.truncate(out.trim_end_matches('0').len());
    }
}

fn finite<T>(out: &mut String, value: Finite<T>, write: impl FnOnce(&mut String, T)) {
    match value {
        Finite::Infinity => out.push_str("infinity"),
        Finite::NegativeInfinity => out.push_str("-infinity"),
        Finite::At(at) => write(out, at),
    }
}

/// `2026-11-29`, `-0043-03-15`, `infinity`
pub(crate) fn date_text(out: &mut String, date: Finite<Day>) {
    finite(out, date, |out, Day(days)| write_date(out, i64::from(days)));
}

/// `2026-11-29T23:15:00.5`, with a `Z` where it is in UTC.
pub(crate) fn timestamp_text(out: &mut String, at: Finite<Micros>, zone: &str) {
    finite(out, at, |out, Micros(micros)| {
        write_date(out, micros.div_euclid(MICROS_PER_DAY));
        out.push('T');
        write_clock(out, micros.rem_euclid(MICROS_PER_DAY).unsigned_abs());
        out.push_str(zone);
    });
}

/// `23:15:00.5`, `-838:59:59`, `12:00:00+02:00`
pub(crate) fn time_text(out: &mut String, time: TimeOfDay) {
    if time.micros < 0 {
        out.push('-');
    }
    write_clock(out, time.micros.unsigned_abs());
    if let Some(offset) = time.offset {
        let (sign, east) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        let _ = write!(out, "{sign}{:02}:{:02}", east / 3600, east / 60 % 60);
        if east % 60 > 0 {
            let _ = write!(out, ":{:02}", east % 60);
        }
    }
}

/// `P1Y2M3DT4H5M6.7S`; each part with its own sign.
pub(crate) fn interval_text(out: &mut String, interval: Interval) {
    let begin = out.len();
    out.push('P');
    let mut part = |value: i64, unit: char| {
        if value != 0 {
            let _ = write!(out, "{value}{unit}");
        }
    };
    part(i64::from(interval.months / 12), 'Y');
    part(i64::from(interval.months % 12), 'M');
    part(i64::from(interval.days), 'D');
    if interval.micros != 0 {
        out.push('T');
        let seconds = interval.micros / MICROS_PER_SECOND;
        let mut part = |value: i64, unit: char| {
            if value != 0 {
                let _ = write!(out, "{value}{unit}");
            }
        };
        part(seconds / 3600, 'H');
        part(seconds / 60 % 60, 'M');
        let rest = interval.micros % (60 * MICROS_PER_SECOND);
        if rest != 0 {
            let sign = if rest < 0 { "-" } else { "" };
            let (whole, fraction) = (
                rest.unsigned_abs() / 1_000_000,
                rest.unsigned_abs() % 1_000_000,
            );
            let _ = write!(out, "{sign}{whole}");
            if fraction > 0 {
                let _ = write!(out, ".{}", format!("{fraction:06}").trim_end_matches('0'));
            }
            out.push('S');
        }
    }
    if out.len() == begin + 1 {
        out.push_str("T0S");
    }
}

fn parse_infinite<T>(text: &str) -> Option<Finite<T>> {
    match text {
        "infinity" => Some(Finite::Infinity),
        "-infinity" => Some(Finite::NegativeInfinity),
        _ => None,
    }
}

fn number(text: &str, digits: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let fits = digits.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if fits { text.parse().ok() } else { None }
}

fn parse_days(text: &str) -> Option<i64> {
    let (negative, digits) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let mut parts = digits.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let year = number(year, 4..=7)?;
    let year = if negative { -year } else { year };
    let month = u32::try_from(number(month, 2..=2)?).ok()?;
    let day = u32::try_from(number(day, 2..=2)?).ok()?;
    let exists = (1..=12).contains(&month) && (1..=days_in_month(year, month)).contains(&day);
    exists.then(|| days_from_civil(year, month, day))
}

/// Microseconds since midnight of `HH:MM[:SS[.ffffff]]`, hours of up to `hours` digits.
fn parse_clock(text: &str, hours: usize) -> Option<i64> {
    let mut parts = text.split(':');
    let (hour, minute) = (parts.next()?, parts.next()?);
    let second = parts.next().unwrap_or("00");
    if parts.next().is_some() {
        return None;
    }
    let (second, fraction) = second.split_once('.').unwrap_or((second, "0"));
    let (hour, minute) = (number(hour, 2..=hours)?, number(minute, 2..=2)?);
    let second = number(second, 2..=2)?;
    let micros = number(fraction, 1..=6)? * 10i64.pow(6 - u32::try_from(fraction.len()).ok()?);
    let fits = minute < 60 && second < 60;
    fits.then(|| ((hour * 60 + minute) * 60 + second) * MICROS_PER_SECOND + micros)
}

/// A time of day: up to and with `24:00:00`.
fn parse_day_clock(text: &str) -> Option<i64> {
    parse_clock(text, 2).filter(|micros| *micros <= MICROS_PER_DAY)
}

/// Splits `…Z` or `…±HH[:MM[:SS]]` off; seconds east.
fn split_offset(text: &str) -> Option<(&str, Option<i32>)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, Some(0)));
    }
    let Some(at) = text.find(['+', '-']) else {
        return Some((text, None));
    };
    let (clock, offset) = text.split_at(at);
    let mut parts = offset[1..].split(':');
    let mut seconds = 0;
    for unit in [3600, 60, 1] {
        if let Some(part) = parts.next() {
            seconds += number(part, 2..=2)? * unit;
        }
    }
    // A day: more than any zone there ever was.
    if parts.next().is_some() || seconds >= 86_400 {
        return None;
    }
    let seconds = i32::try_from(seconds).ok()?;
    let east = if offset.starts_with('-') {
        -seconds
    } else {
        seconds
    };
    Some((clock, Some(east)))
}

pub(crate) fn parse_date(text: &str) -> Option<Finite<Day>> {
    parse_infinite(text).or_else(|| {
        let days = parse_days(text)?;
        i32::try_from(days).ok().map(|days| Finite::At(Day(days)))
    })
}

/// A point in time; `zoned`: with an offset, which is taken off, else without one.
pub(crate) fn parse_timestamp(text: &str, zoned: bool) -> Option<Finite<Micros>> {
    parse_infinite(text).or_else(|| {
        let (date, clock) = text.split_once(['T', 't', ' '])?;
        let days = parse_days(date)?;
        let (clock, offset) = split_offset(clock)?;
        if offset.is_some() != zoned {
            return None;
        }
        let micros = parse_day_clock(clock)?;
        let offset = i64::from(offset.unwrap_or(0)) * MICROS_PER_SECOND;
        days.checked_mul(MICROS_PER_DAY)?
            .checked_add(micros)?
            .checked_sub(offset)
            .map(|micros| Finite::At(Micros(micros)))
    })
}

pub(crate) fn parse_time(text: &str) -> Option<TimeOfDay> {
    if let Some(length) = text.strip_prefix('-') {
        let micros = -parse_clock(length, 9)?;
        return Some(TimeOfDay {
            micros,
            offset: None,
        });
    }
    let (clock, offset) = split_offset(text)?;
    let micros = if offset.is_some() {
        parse_day_clock(clock)?
    } else {
        parse_clock(clock, 9)?
    };
    Some(TimeOfDay { micros, offset })
}

pub(crate) fn parse_interval(text: &str) -> Option<Interval> {
    let rest = text.strip_prefix('P')?;
    let (dates, times) = match rest.split_once('T') {
        Some((_, "")) => return None,
        Some((dates, times)) => (dates, times),
        None => (rest, ""),
    };
    if rest.is_empty() {
        return None;
    }
    let (mut months, mut days, mut micros) = (0i64, 0i64, 0i64);
    each_part(dates, &['Y', 'M', 'W', 'D'], |value, unit| {
        let value: i64 = value.parse().ok()?;
        match unit {
            'Y' => months = months.checked_add(value.checked_mul(12)?)?,
            'M' => months = months.checked_add(value)?,
            'W' => days = days.checked_add(value.checked_mul(7)?)?,
            _ => days = days.checked_add(value)?,
        }
        Some(())
    })?;
    each_part(times, &['H', 'M', 'S'], |value, unit| {
        let part = match unit {
            'S' => parse_seconds(value)?,
            unit => {
                let value: i64 = value.parse().ok()?;
                let seconds = if unit == 'H' { 3600 } else { 60 };
                value.checked_mul(seconds * MICROS_PER_SECOND)?
            }
        };
        micros = micros.checked_add(part)?;
        Some(())
    })?;
    Some(Interval {
        months: i32::try_from(months).ok()?,
        days: i32::try_from(days).ok()?,
        micros,
    })
}

fn parse_seconds(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let micros = number(fraction, 1..=6)? * 10i64.pow(6 - u32::try_from(fraction.len()).ok()?);
    let micros = number(whole, 1..=18)?
        .checked_mul(MICROS_PER_SECOND)?
        .checked_add(micros)?;
    Some(if negative { -micros } else { micros })
}

/// Numbers with their units, each unit once and in this order.
fn each_part(
    text: &str,
    units: &[char],
    mut take: impl FnMut(&str, char) -> Option<()>,
) -> Option<()> {
    let mut rest = text;
    let mut left = units;
    while !rest.is_empty() {
        let at = rest.find(|c: char| c.is_ascii_alphabetic())?;
        let unit = rest[at..].chars().next()?;
        let index = left.iter().position(|known| *known == unit)?;
        take(&rest[..at], unit)?;
        left = &left[index + 1..];
        rest = &rest[at + 1..];
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse_over_the_whole_range() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (11_016, (2000, 2, 29)),
            (-719_528, (0, 1, 1)),
            (-719_529, (-1, 12, 31)),
            // PostgreSQL's first and last day.
            (-2_440_588, (-4713, 11, 24)),
            (2_145_042_905, (5_874_897, 12, 31)),
        ] {
            assert_eq!(civil_from_days(days), date);
            assert_eq!(days_from_civil(date.0, date.1, date.2), days);
        }
        let mut days = i64::from(i32::MIN);
        while days < i64::from(i32::MAX) {
            let (year, month, day) = civil_from_days(days);
            assert_eq!(days_from_civil(year, month, day), days);
            days += 99_991;
        }
    }

    #[test]
    fn what_is_no_date_or_time_is_refused() {
        for text in [
            "",
            "2026",
            "2026-02-29",
            "2026-13-01",
            "2026-00-01",
            "2026-1-1",
            "26-01-01",
            "2026-01-01x",
            "٢٠٢٦-01-01",
            "99999999-01-01",
            "2026-01-01-01",
            "--2026-01-01",
        ] {
            assert_eq!(parse_date(text), None, "{text}");
        }
        for text in [
            "25:00:00Z",
            "12:60:00",
            "12:00:60",
            "12:00:00.1234567",
            "1:00:00",
            "12",
            "12:00:00+99",
        ] {
            assert_eq!(
                parse_time(text).filter(|t| t.offset.is_some()),
                None,
                "{text}"
            );
        }
        for text in [
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01T25:00:00Z",
            "9999999-01-01T00:00:00Z",
        ] {
            assert_eq!(parse_timestamp(text, true), None, "{text}");
        }
        assert_eq!(parse_timestamp("2026-01-01T00:00:00Z", false), None);
        for text in [
            "P",
            "PT",
            "P1",
            "1D",
            "P1D1M",
            "PT1D",
            "P1.5D",
            "PT1.5H",
            "P99999999999Y",
        ] {
            assert_eq!(parse_interval(text), None, "{text}");
        }
    }

    #[test]
    fn offsets_are_taken_off() {
        let at = |text| parse_timestamp(text, true).unwrap();
        assert_eq!(at("2026-01-01T02:00:00+02:00"), at("2026-01-01 00:00:00Z"));
        assert_eq!(at("2026-01-01T00:00:00-00:30"), at("2026-01-01T00:30Z"));
    }
}
