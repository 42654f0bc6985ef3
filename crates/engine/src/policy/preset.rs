//! The presets: complete settings for common situations.

use std::borrow::Cow;
use std::time::Duration;

use super::settings::*;
use crate::failure::named;

named! {
    /// A complete set of settings to start from.
    Preset {
        /// Patient: five attempts with long waits.
        Conservative = "conservative",
        /// The default for data.
        Balanced = "balanced",
        /// One attempt an endpoint, fast to leave it.
        AggressiveFailover = "aggressive_failover",
        /// For shard sets: seven attempts on the same endpoint.
        Sharded = "sharded",
        /// For search back ends.
        Search = "search",
        /// For message services.
        Service = "service",
        /// For functions and traits of the library.
        Component = "component",
    }
}

impl Preset {
    /// The settings that the preset stands for.
    pub fn settings(self) -> Settings {
        let (retry, circuit) = match self {
            Preset::Conservative => (
                RetrySettings {
                    attempts_max: 5,
                    delay: Duration::from_secs(1),
                    delay_max: Some(Duration::from_secs(60)),
                    deadline: Some(Duration::from_secs(120)),
                    ..retry()
                },
                CircuitSettings {
                    failures: 3,
                    open_for: Duration::from_secs(600),
                    successes: 3,
                    ..CircuitSettings::default()
                },
            ),
            Preset::Balanced => (retry(), CircuitSettings::default()),
            Preset::AggressiveFailover => (
                RetrySettings {
                    attempts_max: 1,
                    delay: Duration::from_millis(100),
                    delay_max: Some(Duration::from_secs(5)),
                    deadline: Some(Duration::from_secs(15)),
                    attempt_timeout: Some(Duration::from_secs(2)),
                    ..retry()
                },
                CircuitSettings {
                    failures: 2,
                    open_for: Duration::from_secs(30),
                    successes: 1,
                    ..CircuitSettings::default()
                },
            ),
            Preset::Sharded => sharded(),
            Preset::Search => (
                RetrySettings {
                    attempts_max: 4,
                    delay: Duration::from_millis(100),
                    delay_max: Some(Duration::from_secs(10)),
                    jitter: Jitter::PlusMinus(0.1),
                    deadline: Some(Duration::from_secs(30)),
                    attempt_timeout: Some(Duration::from_secs(10)),
                    ..retry()
                },
                CircuitSettings::default(),
            ),
            Preset::Service => (
                RetrySettings {
                    attempts_max: 2,
                    order: RetryOrder::SameFirst,
                    delay_max: None,
                    jitter: Jitter::None,
                    budget: None,
                    deadline: None,
                    attempt_timeout: None,
                    ..retry()
                },
                off(),
            ),
            Preset::Component => (
                RetrySettings {
                    attempts_max: 3,
                    order: RetryOrder::SameFirst,
                    series: Series::RandomLinear,
                    delay: Duration::from_secs(1),
                    delay_max: None,
                    jitter: Jitter::None,
                    budget: None,
                    deadline: None,
                    attempt_timeout: None,
                    ..retry()
                },
                off(),
            ),
        };
        let mut settings = Settings {
            name: Cow::Borrowed(self.as_str()),
            version: 1,
            retry,
            circuit,
            pool: PoolSettings::default(),
            health: HealthSettings::default(),
            limits: LimitSettings::default(),
            route: RouteSettings::default(),
            audit: AuditSettings::default(),
        };
        if matches!(self, Preset::Sharded | Preset::Component | Preset::Service) {
            settings.health.enabled = false;
            settings.circuit.probe_reopens = false;
        }
        settings
    }
}

/// The retry settings of `balanced`.
fn retry() -> RetrySettings {
    RetrySettings {
        attempts_max: 3,
        endpoints_max: None,
        order: RetryOrder::NextFirst,
        series: Series::Exponential,
        delay: Duration::from_millis(500),
        factor: 2.0,
        delay_max: Some(Duration::from_secs(30)),
        jitter: Jitter::UpTo(0.25),
        budget: Some(BudgetSettings::default()),
        deadline: Some(Duration::from_secs(60)),
        attempt_timeout: Some(Duration::from_secs(30)),
        attempt_timeout_is_set: false,
        connect_timeout: Duration::from_secs(2),
        on: Vec::new(),
        never: Vec::new(),
    }
}

fn off() -> CircuitSettings {
    CircuitSettings {
        mode: CircuitMode::Off,
        ..CircuitSettings::default()
    }
}

fn sharded() -> (RetrySettings, CircuitSettings) {
    (
        RetrySettings {
            attempts_max: 7,
            order: RetryOrder::SameFirst,
            series: Series::Lengthening,
            delay: Duration::from_millis(250),
            delay_max: None,
            jitter: Jitter::None,
            budget: None,
            deadline: Some(Duration::from_secs(75)),
            attempt_timeout: Some(Duration::from_secs(8)),
            ..retry()
        },
        CircuitSettings {
            mode: CircuitMode::Operations,
            failures: 20,
            open_for: Duration::from_secs(5),
            successes: 1,
            ..CircuitSettings::default()
        },
    )
}
