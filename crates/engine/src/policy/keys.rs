//! The table of policy keys: path, kind, meaning, how to read and how to set. Files, `explain` and the
//! admin API all go through it.

use std::fmt;

use super::setting::*;
use super::settings::*;

/// What values a key takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Count,
    /// A number.
    Number,
    /// A duration with its unit.
    Time,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// A list of texts.
    List,
}

/// One setting by its path.
pub struct Key {
    /// Where it stands under `policy`, such as `circuit.failures`.
    pub path: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// The word that means "no limit" or "not at all", where there is one; it is read as
    /// [`Setting::Off`].
    pub off: Option<&'static str>,
    /// What it does, in one line.
    pub doc: &'static str,
    /// Reads it.
    pub get: fn(&Settings) -> Setting,
    /// Sets it; says what would be right if the value does not fit.
    pub set: fn(&mut Settings, Setting) -> Result<(), String>,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("path", &self.path)
            .field("kind", &self.kind)
            .finish()
    }
}

/// The key of that path.
pub fn key(path: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.path == path)
}

macro_rules! choice {
    ($group:ident . $field:ident, $type:ty, [$($word:literal),+], $doc:literal) => {
        Key {
            path: concat!(stringify!($group), ".", stringify!($field)),
            kind: Kind::Choice(&[$($word),+]),
            off: None,
            doc: $doc,
            get: |s| text(s.$group.$field.as_str()),
            set: |s, v| {
                let parsed = match &v { Setting::Text(word) => <$type>::parse(word), _ => None };
                match parsed {
                    Some(value) => { s.$group.$field = value; Ok(()) }
                    None => wrong(concat!("one of ", $($word, " "),+), &v),
                }
            },
        }
    };
}

macro_rules! plain {
    ($group:ident . $field:ident, $kind:ident, $read:ident, $doc:literal) => {
        Key {
            path: concat!(stringify!($group), ".", stringify!($field)),
            kind: Kind::$kind,
            off: None,
            doc: $doc,
            get: |s| Setting::$kind(s.$group.$field.clone().into()),
            set: |s, v| {
                s.$group.$field = $read(&v)?;
                Ok(())
            },
        }
    };
    ($group:ident . $field:ident, $kind:ident, $read:ident, off $off:literal, $doc:literal) => {
        Key {
            path: concat!(stringify!($group), ".", stringify!($field)),
            kind: Kind::$kind,
            off: Some($off),
            doc: $doc,
            get: |s| optional(s.$group.$field.map(|value| Setting::$kind(value.into()))),
            set: |s, v| {
                s.$group.$field = or_off(&v, $read)?;
                Ok(())
            },
        }
    };
}

/// Every key, group by group.
pub const KEYS: &[Key] = &[
    plain!(
        retry.attempts_max,
        Count,
        as_count,
        "rounds over the candidates, or tries on one endpoint, the first included"
    ),
    plain!(retry.endpoints_max, Count, as_count, off "all", "endpoints that one call may try"),
    choice!(
        retry.order,
        RetryOrder,
        ["next_first", "same_first"],
        "next endpoint at once, or same endpoint first"
    ),
    Key {
        path: "retry.series",
        kind: Kind::Choice(&[
            "constant",
            "linear",
            "lengthening",
            "half_square",
            "squaring",
            "exponential",
            "decorrelated",
            "random_linear",
            "fibonacci",
        ]),
        off: None,
        doc: "series of waits between attempts",
        get: |s| text(s.retry.series.as_str()),
        set: |s, v| {
            // `fibonacci` is the old name of `lengthening`.
            let parsed = match &v {
                Setting::Text(word) if word == "fibonacci" => Some(Series::Lengthening),
                Setting::Text(word) => Series::parse(word),
                _ => None,
            };
            match parsed {
                Some(series) => {
                    s.retry.series = series;
                    Ok(())
                }
                None => wrong(
                    "one of constant, linear, lengthening, half_square, squaring, exponential, decorrelated, random_linear",
                    &v,
                ),
            }
        },
    },
    plain!(retry.delay, Time, as_time, "base of the series"),
    plain!(
        retry.factor,
        Number,
        as_number,
        "factor of the exponential series"
    ),
    plain!(retry.delay_max, Time, as_time, off "none", "cap of a wait, before and after jitter"),
    Key {
        path: "retry.jitter",
        kind: Kind::Text,
        off: None,
        doc: "spread of the waits: none, full, equal, up_to(25%), plus_minus(10%)",
        get: |s| jitter_text(s.retry.jitter),
        set: |s, v| {
            s.retry.jitter = as_jitter(&v)?;
            Ok(())
        },
    },
    Key {
        path: "retry.budget",
        kind: Kind::Bool,
        off: None,
        doc: "whether attempts after the first are limited to a share of the calls",
        get: |s| Setting::Bool(s.retry.budget.is_some()),
        set: |s, v| {
            s.retry.budget = if as_bool(&v)? {
                Some(s.retry.budget.unwrap_or_default())
            } else {
                None
            };
            Ok(())
        },
    },
    Key {
        path: "retry.budget_ratio",
        kind: Kind::Number,
        off: None,
        doc: "that share",
        get: |s| Setting::Number(s.retry.budget.unwrap_or_default().ratio),
        set: |s, v| {
            let ratio = as_number(&v)?;
            s.retry.budget = Some(BudgetSettings {
                ratio,
                ..s.retry.budget.unwrap_or_default()
            });
            Ok(())
        },
    },
    Key {
        path: "retry.budget_floor",
        kind: Kind::Count,
        off: None,
        doc: "attempts after the first per second that are always allowed",
        get: |s| Setting::Count(s.retry.budget.unwrap_or_default().floor_per_second.into()),
        set: |s, v| {
            let floor_per_second = as_count(&v)?;
            s.retry.budget = Some(BudgetSettings {
                floor_per_second,
                ..s.retry.budget.unwrap_or_default()
            });
            Ok(())
        },
    },
    plain!(retry.deadline, Time, as_time, off "none", "limit of the whole call"),
    Key {
        path: "retry.attempt_timeout",
        kind: Kind::Time,
        off: Some("none"),
        doc: "limit of one attempt",
        get: |s| optional(s.retry.attempt_timeout.map(Setting::Time)),
        set: |s, v| {
            s.retry.attempt_timeout = or_off(&v, as_time)?;
            s.retry.attempt_timeout_is_set = true;
            Ok(())
        },
    },
    plain!(
        retry.connect_timeout,
        Time,
        as_time,
        "limit of opening a connection, inside the attempt's"
    ),
    plain!(
        retry.on,
        List,
        as_list,
        "back-end codes that are always worth another try"
    ),
    plain!(
        retry.never,
        List,
        as_list,
        "back-end codes that are never worth another try"
    ),
    choice!(
        circuit.mode,
        CircuitMode,
        [
            "off",
            "weighted_consecutive",
            "window",
            "rate",
            "operations"
        ],
        "how failures are counted"
    ),
    plain!(
        circuit.failures,
        Count,
        as_count,
        "opens at this count; 0 disables the circuit"
    ),
    plain!(
        circuit.open_for,
        Time,
        as_time,
        "how long it stays open before a trial"
    ),
    plain!(
        circuit.open_growth,
        Number,
        as_number,
        "factor on open_for for each opening in a row"
    ),
    plain!(
        circuit.open_for_max,
        Time,
        as_time,
        "upper bound of a grown open_for"
    ),
    plain!(
        circuit.successes,
        Count,
        as_count,
        "successes in a row that close it"
    ),
    plain!(
        circuit.trials_max,
        Count,
        as_count,
        "trials at once while half-open"
    ),
    plain!(
        circuit.window,
        Time,
        as_time,
        "window of modes window and rate"
    ),
    plain!(
        circuit.failure_ratio,
        Number,
        as_number,
        "mode rate: opens at this share of failures"
    ),
    plain!(circuit.slow_after, Time, as_time, off "off", "mode rate: a call at least this long is slow"),
    plain!(
        circuit.slow_ratio,
        Number,
        as_number,
        "mode rate: opens at this share of slow calls"
    ),
    plain!(
        circuit.calls_min,
        Count,
        as_count,
        "mode rate: says nothing below so many calls"
    ),
    plain!(
        circuit.probe_reopens,
        Bool,
        as_bool,
        "two good health checks make the trial due at once"
    ),
    plain!(
        pool.idle_max,
        Count,
        as_count,
        "connections kept while nobody uses them"
    ),
    plain!(
        pool.active_max,
        Count,
        as_count,
        "connections in use at once"
    ),
    plain!(
        pool.wait_max,
        Time,
        as_time,
        "how long a caller waits for a connection"
    ),
    plain!(
        pool.waiting_max,
        Count,
        as_count,
        "callers that wait for a connection at once; more are refused as queue_full"
    ),
    plain!(
        pool.idle_for,
        Time,
        as_time,
        "an idle connection is closed after this"
    ),
    plain!(
        pool.lifetime_max,
        Time,
        as_time,
        "any connection is replaced after this"
    ),
    plain!(
        pool.min_idle,
        Count,
        as_count,
        "connections kept open even if nobody asks"
    ),
    plain!(
        pool.check_after,
        Time,
        as_time,
        "a connection idle for longer is checked before it is lent"
    ),
    plain!(
        pool.cleanups_max,
        Count,
        as_count,
        "clean-ups of abandoned connections at once"
    ),
    plain!(
        pool.cleanup_max,
        Time,
        as_time,
        "limit of one clean-up, then the socket is closed"
    ),
    plain!(
        health.enabled,
        Bool,
        as_bool,
        "whether endpoints are probed"
    ),
    plain!(health.interval, Time, as_time, "between two checks"),
    plain!(health.timeout, Time, as_time, "limit of one check"),
    plain!(
        health.down_after,
        Count,
        as_count,
        "failed checks in a row: down"
    ),
    plain!(
        health.up_after,
        Count,
        as_count,
        "good checks in a row: recovered"
    ),
    plain!(
        health.healthy_after,
        Count,
        as_count,
        "good checks in a row: gets reads again"
    ),
    plain!(
        health.urgent_interval,
        Time,
        as_time,
        "between checks while there is no primary"
    ),
    plain!(health.urgent_for, Time, as_time, "how long that is kept up"),
    plain!(limits.rate, Number, as_number, off "off", "calls per second"),
    plain!(limits.burst, Count, as_count, off "auto", "calls at once before the rate binds"),
    choice!(
        limits.over_rate,
        OverRate,
        ["route_elsewhere", "queue", "reject"],
        "what happens to a call over the rate"
    ),
    plain!(limits.concurrency, Count, as_count, off "off", "calls at once"),
    plain!(
        limits.queue_depth,
        Count,
        as_count,
        "calls that may wait for a place"
    ),
    plain!(limits.queue_wait, Time, as_time, "how long they wait"),
    choice!(
        route.strategy,
        Strategy,
        [
            "weighted_latency",
            "p2c",
            "least_outstanding",
            "round_robin",
            "weighted_round_robin",
            "health_weighted",
            "lowest_latency",
            "primary_with_standby"
        ],
        "how one of several candidates is chosen"
    ),
    choice!(
        route.read_from,
        ReadFrom,
        ["any", "replica", "primary"],
        "which roles reads use"
    ),
    plain!(route.lag_max, Time, as_time, off "off", "a replica further behind gets no reads"),
    plain!(
        route.last_resort,
        Bool,
        as_bool,
        "try the least bad if health or lag would exclude everything"
    ),
    plain!(
        route.primary_wait,
        Time,
        as_time,
        "how long a write waits for a primary"
    ),
    plain!(
        route.read_your_writes,
        Bool,
        as_bool,
        "reads of a session see its writes"
    ),
    plain!(
        route.read_your_writes_wait,
        Time,
        as_time,
        "how long such a read waits for a replica"
    ),
    choice!(
        audit.sink,
        AuditSink,
        ["none", "file"],
        "where audit entries go"
    ),
    plain!(
        audit.recent_max,
        Count,
        as_count,
        "last entries kept for the admin API"
    ),
    plain!(
        audit.redact,
        Bool,
        as_bool,
        "take secrets and literals out of all that is written"
    ),
];

#[cfg(test)]
mod tests {
    use super::super::{Policy, Preset};
    use super::*;

    #[test]
    fn every_key_can_be_read_and_set_to_what_was_read() {
        for preset in Preset::ALL {
            for key in KEYS {
                let mut settings = preset.settings();
                let value = (key.get)(&settings);
                (key.set)(&mut settings, value.clone())
                    .unwrap_or_else(|problem| panic!("{}: {problem}", key.path));
                assert_eq!((key.get)(&settings), value, "{}", key.path);
            }
        }
    }

    #[test]
    fn every_preset_is_valid_and_paths_are_unique() {
        for preset in Preset::ALL {
            Policy::new(preset.settings()).expect("a preset is valid");
        }
        let mut paths: Vec<_> = KEYS.iter().map(|key| key.path).collect();
        paths.sort_unstable();
        let count = paths.len();
        paths.dedup();
        assert_eq!(paths.len(), count);
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_refused_with_what_was_expected() {
        let mut settings = Preset::Balanced.settings();
        for key in KEYS {
            let odd = match key.kind {
                Kind::Bool | Kind::List => Setting::Count(3),
                _ => Setting::Bool(true),
            };
            let problem = (key.set)(&mut settings, odd).expect_err(key.path);
            assert!(problem.starts_with("expected "), "{}: {problem}", key.path);
        }
    }
}
