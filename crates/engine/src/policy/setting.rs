//! Values of policy keys, without any file format, and how each kind is read.

use std::fmt;
use std::time::Duration;

use super::settings::Jitter;

/// A value of a key, without any file format.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// The key's word for "no limit" or "not at all", see [`Key::off`](super::Key::off).
    Off,
    /// yes or no
    Bool(bool),
    /// a whole number
    Count(u64),
    /// a number or a share
    Number(f64),
    /// a time
    Time(Duration),
    /// a word
    Text(String),
    /// several words
    List(Vec<String>),
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Off => f.write_str("off"),
            Setting::Bool(value) => write!(f, "{value}"),
            Setting::Count(value) => write!(f, "{value}"),
            Setting::Number(value) => write!(f, "{value}"),
            Setting::Time(value) => f.write_str(&written(*value)),
            Setting::Text(value) => f.write_str(value),
            Setting::List(values) => write!(f, "[{}]", values.join(", ")),
        }
    }
}

/// A duration as files write it: the largest unit that divides it.
fn written(time: Duration) -> String {
    let nanos = time.as_nanos();
    if nanos == 0 {
        return "0s".to_owned();
    }
    for (unit, size) in [
        ("h", 3_600_000_000_000_u128),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
    ] {
        if nanos >= size && nanos.is_multiple_of(size) {
            return format!("{}{unit}", nanos / size);
        }
    }
    format!("{nanos}ns")
}

pub(super) fn wrong<T>(expected: &str, got: &Setting) -> Result<T, String> {
    Err(format!("expected {expected}, got {got}"))
}

pub(super) fn as_bool(value: &Setting) -> Result<bool, String> {
    match value {
        Setting::Bool(value) => Ok(*value),
        other => wrong("true or false", other),
    }
}

pub(super) fn as_count(value: &Setting) -> Result<u32, String> {
    match value {
        Setting::Count(count) => {
            u32::try_from(*count).map_err(|_| format!("{count} is above {}", u32::MAX))
        }
        other => wrong("a whole number", other),
    }
}

pub(super) fn as_number(value: &Setting) -> Result<f64, String> {
    match value {
        Setting::Number(number) => Ok(*number),
        Setting::Count(count) => Ok(*count as f64),
        other => wrong("a number", other),
    }
}

pub(super) fn as_time(value: &Setting) -> Result<Duration, String> {
    match value {
        Setting::Time(time) => Ok(*time),
        other => wrong("a duration such as \"500ms\"", other),
    }
}

pub(super) fn as_list(value: &Setting) -> Result<Vec<String>, String> {
    match value {
        Setting::List(values) => Ok(values.clone()),
        Setting::Text(one) => Ok(vec![one.clone()]),
        other => wrong("a list of texts", other),
    }
}

pub(super) fn or_off<T>(
    value: &Setting,
    read: fn(&Setting) -> Result<T, String>,
) -> Result<Option<T>, String> {
    if *value == Setting::Off {
        Ok(None)
    } else {
        read(value).map(Some)
    }
}

/// `none`, `full`, `equal`, `up_to(25%)`, `plus_minus(10%)`.
pub(super) fn as_jitter(value: &Setting) -> Result<Jitter, String> {
    let Setting::Text(text) = value else {
        return wrong("none, full, equal, up_to(25%) or plus_minus(10%)", value);
    };
    let share = |prefix: &str| -> Option<f64> {
        let inside = text
            .strip_prefix(prefix)?
            .strip_prefix('(')?
            .strip_suffix(')')?
            .trim();
        match inside.strip_suffix('%') {
            Some(percent) => percent.trim().parse::<f64>().ok().map(|p| p / 100.0),
            None => inside.parse().ok(),
        }
    };
    match text.as_str() {
        "none" => Ok(Jitter::None),
        "full" => Ok(Jitter::Full),
        "equal" => Ok(Jitter::Equal),
        _ => share("up_to")
            .map(Jitter::UpTo)
            .or_else(|| share("plus_minus").map(Jitter::PlusMinus))
            .ok_or_else(|| {
                format!("expected none, full, equal, up_to(25%) or plus_minus(10%), got {text}")
            }),
    }
}

pub(super) fn jitter_text(jitter: Jitter) -> Setting {
    Setting::Text(match jitter {
        Jitter::None => "none".into(),
        Jitter::Full => "full".into(),
        Jitter::Equal => "equal".into(),
        Jitter::UpTo(share) => format!("up_to({}%)", share * 100.0),
        Jitter::PlusMinus(share) => format!("plus_minus({}%)", share * 100.0),
    })
}

pub(super) fn text(value: &'static str) -> Setting {
    Setting::Text(value.to_owned())
}

pub(super) fn optional(value: Option<Setting>) -> Setting {
    value.unwrap_or(Setting::Off)
}
