//! Single values: durations and sizes with their units, numbers, words, lists.

use std::borrow::Cow;
use std::time::Duration;

use mainstay_engine::policy::{Kind, Setting};

use crate::problem::Wrong;
use crate::suggestion;
use crate::tree::{Node, Value, value_alone};

/// No time of a configuration is longer: a deadline must still fit the clock.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Values that a later version reads, so that they are not taken for slips of the keyboard.
pub(crate) const LATER: &[(&str, &str)] = &[
    ("circuit.mode", "three_state"),
    ("route.strategy", "consistent_hash"),
];

/// The old name of the series `lengthening`.
pub(crate) const OLD_SERIES: &str = "fibonacci";

/// Characters of a wrong value that a message repeats.
const SHOWN_MAX: usize = 60;

const TIME_UNITS: &[(&str, u128)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("min", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

const SIZE_UNITS: &[(&str, u128)] = &[
    ("B", 1),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
];

/// A value for a policy key.
pub(crate) fn setting(
    path: &str,
    kind: Kind,
    off: Option<&str>,
    node: &Node,
) -> Result<Setting, Wrong> {
    let value = typed(node);
    if let (Some(off), Value::Text(text)) = (off, value.as_ref())
        && text == off
    {
        return Ok(Setting::Off);
    }
    let read = match kind {
        Kind::Bool => bool(node).map(Setting::Bool),
        Kind::Count => count(node).map(Setting::Count),
        Kind::Number => number(node).map(Setting::Number),
        Kind::Time => time(node).map(Setting::Time),
        Kind::Choice(words) => choice(path, words, node).map(Setting::Text),
        Kind::Text => text(node).map(Setting::Text),
        Kind::List => list(node).map(Setting::List),
    };
    read.map_err(|wrong| match off {
        Some(off) if wrong.hint.is_none() => wrong.hint(format!("or {off:?}")),
        _ => wrong,
    })
}

/// A value from outside a file gets the type that it would have in one; any other is as written.
pub(crate) fn typed(node: &Node) -> Cow<'_, Value> {
    match &node.value {
        Value::Loose(raw) => Cow::Owned(
            value_alone(raw.trim(), &node.mark).unwrap_or_else(|| Value::Text(raw.clone())),
        ),
        value => Cow::Borrowed(value),
    }
}

fn expected<T>(what: &str, got: &Value) -> Result<T, Wrong> {
    Err(match got {
        Value::Text(text) => Wrong::new(format!("expected {what}, got {:?}", short(text))),
        Value::Bool(value) => Wrong::new(format!("expected {what}, got {value}")),
        Value::Integer(value) => Wrong::new(format!("expected {what}, got {value}")),
        Value::Number(value) => Wrong::new(format!("expected {what}, got {value}")),
        other => Wrong::new(format!("expected {what}, got {}", other.kind())),
    })
}

pub(crate) fn bool(node: &Node) -> Result<bool, Wrong> {
    match typed(node).as_ref() {
        Value::Bool(value) => Ok(*value),
        other => expected("true or false", other),
    }
}

/// A whole number from 0.
pub(crate) fn count(node: &Node) -> Result<u64, Wrong> {
    match typed(node).as_ref() {
        Value::Integer(value) => u64::try_from(*value)
            .map_err(|_| Wrong::new(format!("expected a whole number from 0, got {value}"))),
        other => expected("a whole number", other),
    }
}

/// A number that is finite.
pub(crate) fn number(node: &Node) -> Result<f64, Wrong> {
    match typed(node).as_ref() {
        Value::Integer(value) => Ok(*value as f64),
        Value::Number(value) if value.is_finite() => Ok(*value),
        other => expected("a number", other),
    }
}

/// Text; a value from outside a file is text whatever it looks like.
pub(crate) fn text(node: &Node) -> Result<String, Wrong> {
    match (&node.value, typed(node).as_ref()) {
        (_, Value::Text(text)) => no_control(text.clone()),
        (Value::Loose(raw), _) => no_control(raw.clone()),
        (_, other @ (Value::Integer(_) | Value::Number(_) | Value::Bool(_))) => {
            expected("text", other).map_err(|wrong: Wrong| wrong.hint("write it in quotes"))
        }
        (_, other) => expected("text", other),
    }
}

fn no_control(text: String) -> Result<String, Wrong> {
    match text.chars().find(|c| c.is_control()) {
        Some(control) => Err(Wrong::new(format!(
            "contains the control character {:?}",
            control
        ))),
        None => Ok(text),
    }
}

/// One of these words.
pub(crate) fn choice(path: &str, words: &[&str], node: &Node) -> Result<String, Wrong> {
    let value = typed(node);
    let listed = format!("one of {}", current(words).join(", "));
    let Value::Text(word) = value.as_ref() else {
        return expected(&listed, value.as_ref());
    };
    if words.contains(&word.as_str()) {
        return Ok(word.clone());
    }
    if LATER.contains(&(path, word.as_str())) {
        return Err(Wrong::unavailable(word).hint(listed));
    }
    let hint = match suggestion::nearest(word, words.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => listed,
    };
    Err(Wrong::new(format!("{:?} is not known", short(word))).hint(hint))
}

/// The words without those that are only accepted because they were once in use.
pub(crate) fn current<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let words = words.iter().copied();
    words.filter(|word| *word != OLD_SERIES).collect()
}

/// The beginning of a text, to show it in a message.
fn short(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

/// A list of texts; one text alone stands for a list of one, and whole numbers for their digits,
/// since some back ends have numbers for codes.
pub(crate) fn list(node: &Node) -> Result<Vec<String>, Wrong> {
    match typed(node).as_ref() {
        Value::List(items) => items.iter().map(item).collect(),
        Value::Text(_) | Value::Integer(_) => Ok(vec![item(node)?]),
        other => expected("a list of texts", other),
    }
}

fn item(node: &Node) -> Result<String, Wrong> {
    match &node.value {
        Value::Integer(code) => Ok(code.to_string()),
        _ => text(node),
    }
}

/// The value, if it lies within these bounds, which the hint names.
pub(crate) fn within<T: PartialOrd + std::fmt::Debug>(
    value: T,
    bounds: std::ops::RangeInclusive<T>,
    hint: &str,
) -> Result<T, Wrong> {
    match bounds.contains(&value) {
        true => Ok(value),
        false => Err(Wrong::new(format!("{value:?} is out of bounds")).hint(hint)),
    }
}

/// A duration with its unit.
pub(crate) fn time(node: &Node) -> Result<Duration, Wrong> {
    let value = typed(node);
    let text = match value.as_ref() {
        Value::Text(text) => text,
        Value::Integer(bare) if *bare < 0 => return negative(bare),
        Value::Number(bare) if *bare < 0.0 => return negative(bare),
        Value::Integer(bare) => return bare_time(bare),
        Value::Number(bare) => return bare_time(bare),
        other => return expected("a duration such as \"500ms\"", other),
    };
    if let Some(rest) = text.strip_prefix('-')
        && with_unit(rest, TIME_UNITS).is_some()
    {
        return negative(text);
    }
    let nanos = with_unit(text, TIME_UNITS).ok_or_else(|| {
        Wrong::new(format!("{:?} is not a duration", short(text)))
            .hint("a number and ns, us, ms, s, min, h or d, such as \"500ms\"")
    })?;
    u64::try_from(nanos)
        .map(Duration::from_nanos)
        .ok()
        .filter(|time| *time <= TIME_MAX)
        .ok_or_else(|| Wrong::new(format!("{:?} is longer than a year", short(text))))
}

/// A duration as files write it: a number with its unit, such as `500ms`, at most a year. `None`: it is
/// none.
pub fn duration(text: &str) -> Option<Duration> {
    let nanos = u64::try_from(with_unit(text, TIME_UNITS)?).ok()?;
    Some(Duration::from_nanos(nanos)).filter(|time| *time <= TIME_MAX)
}

/// A size in bytes with its unit.
pub(crate) fn size(node: &Node) -> Result<u64, Wrong> {
    let value = typed(node);
    let text = match value.as_ref() {
        Value::Text(text) => text,
        Value::Integer(bare) => return bare_bytes(*bare),
        other => return expected("a size such as \"64MiB\"", other),
    };
    with_unit(text, SIZE_UNITS)
        .and_then(|bytes| u64::try_from(bytes).ok())
        .ok_or_else(|| {
            Wrong::new(format!("{:?} is not a size", short(text)))
                .hint("a number and B, KiB, MiB, GiB, kB, MB or GB, such as \"64MiB\"")
        })
}

fn negative<T>(time: &impl std::fmt::Display) -> Result<T, Wrong> {
    Err(Wrong::new(format!("{time} is negative")).hint("a time is at least 0, such as \"500ms\""))
}

fn bare_time<T>(bare: &impl std::fmt::Display) -> Result<T, Wrong> {
    Err(Wrong::new(format!("{bare} has no unit"))
        .hint(format!("write \"{bare}s\" or \"{bare}ms\"")))
}

/// A bare number is shown as bytes in the largest unit that divides it.
fn bare_bytes<T>(bare: i128) -> Result<T, Wrong> {
    let fits = |size: i128| bare != 0 && bare % size == 0;
    let written = match bare {
        _ if fits(1 << 30) => format!("{}GiB", bare >> 30),
        _ if fits(1 << 20) => format!("{}MiB", bare >> 20),
        _ if fits(1 << 10) => format!("{}KiB", bare >> 10),
        _ => format!("{bare}B"),
    };
    Err(Wrong::new(format!("{bare} has no unit"))
        .hint(format!("if bytes are meant, write \"{written}\"")))
}

/// `12unit` or `1.5unit` in the smallest unit; `None` if it is written otherwise or too large.
fn with_unit(text: &str, units: &[(&str, u128)]) -> Option<u128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = text.split_at(end);
    let size = units
        .iter()
        .find(|(name, _)| *name == unit.trim_start())
        .map(|(_, size)| *size)?;
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    // 18 digits behind the point are more than any unit can tell apart.
    if whole.is_empty() || part.is_empty() || part.len() > 18 {
        return None;
    }
    let part_size = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
    let part = part.parse::<u128>().ok()?.checked_mul(size)? / part_size;
    whole
        .parse::<u128>()
        .ok()?
        .checked_mul(size)?
        .checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mark::{Mark, Origin};

    fn node(value: Value) -> Node {
        Node {
            value,
            mark: Mark::whole(Origin::BuiltIn),
        }
    }

    #[test]
    fn durations_need_a_unit_and_fit_a_year() {
        for (text, nanos) in [
            ("1ns", 1),
            ("500ms", 500_000_000),
            ("1.5s", 1_500_000_000),
            ("2 s", 2_000_000_000),
            ("5min", 300_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            ("0.25us", 250),
        ] {
            let read = time(&node(Value::Text(text.into())));
            assert_eq!(read, Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "s",
            "5",
            "5m",
            "-5s",
            "1e3s",
            "5 minutes",
            ".5s",
            "5.s",
            "1.2.3s",
            "1000000h",
            "99999999999999999999999999999999999999999s",
            "٣s",
        ] {
            assert!(time(&node(Value::Text(text.into()))).is_err(), "{text}");
        }
        let bare = time(&node(Value::Integer(30))).unwrap_err();
        assert_eq!(bare.message, "30 has no unit");
        assert!(bare.hint.unwrap().contains("\"30s\""));
    }

    #[test]
    fn sizes_need_a_unit() {
        for (bare, hint) in [
            (8 << 20, "\"8MiB\""),
            (3 << 30, "\"3GiB\""),
            (1537, "\"1537B\""),
            (2048, "\"2KiB\""),
            (0, "\"0B\""),
            (-5, "\"-5B\""),
        ] {
            let wrong = size(&node(Value::Integer(bare))).unwrap_err();
            assert!(wrong.hint.unwrap().ends_with(hint), "{bare}");
        }
        for (text, bytes) in [
            ("1B", 1),
            ("64MiB", 64 << 20),
            ("1.5KiB", 1536),
            ("2GB", 2_000_000_000),
        ] {
            assert_eq!(size(&node(Value::Text(text.into()))), Ok(bytes), "{text}");
        }
        for value in [
            Value::Integer(5),
            Value::Number(1.0),
            Value::Text("5".into()),
            Value::Text("5mb".into()),
            Value::Bool(true),
            Value::Empty,
        ] {
            assert!(size(&node(value.clone())).is_err(), "{value:?}");
        }
    }

    #[test]
    fn a_value_from_outside_takes_the_type_of_its_key() {
        let loose = |text: &str| node(Value::Loose(text.into()));
        assert_eq!(text(&loose("123")), Ok("123".into()));
        assert_eq!(text(&loose("\"quoted\"")), Ok("quoted".into()));
        assert_eq!(text(&loose("true")), Ok("true".into()));
        assert_eq!(count(&loose(" 7 ")), Ok(7));
        assert_eq!(bool(&loose("true")), Ok(true));
        assert_eq!(time(&loose("2s")), Ok(Duration::from_secs(2)));
        assert!(time(&loose("2")).is_err());
        assert_eq!(
            list(&loose("[\"a\", \"b\"]")),
            Ok(vec!["a".into(), "b".into()])
        );
        assert_eq!(list(&loose("40001")), Ok(vec!["40001".into()]));
        assert!(list(&loose("true")).is_err());
    }
}
