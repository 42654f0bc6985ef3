//! The settings themselves, group by group, as plain data with their defaults.

use std::borrow::Cow;
use std::time::Duration;

use crate::failure::named;

/// All settings of a source or endpoint. The defaults are those of the preset `balanced`.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Appears in audit entries and metrics.
    pub name: Cow<'static, str>,
    /// Appears in audit entries and answers; the admin API raises it with each change.
    pub version: u64,
    /// When and how often another attempt is made.
    pub retry: RetrySettings,
    /// When an endpoint is left alone.
    pub circuit: CircuitSettings,
    /// How connections are kept.
    pub pool: PoolSettings,
    /// How endpoints are probed.
    pub health: HealthSettings,
    /// How much is let in.
    pub limits: LimitSettings,
    /// Where calls go.
    pub route: RouteSettings,
    /// What is written down.
    pub audit: AuditSettings,
}

named! {
    /// Where the next attempt after a failure goes.
    RetryOrder {
        /// The next candidate at once; back-off only after a whole round.
        NextFirst = "next_first",
        /// All tries on one endpoint with back-off between them, then the next.
        SameFirst = "same_first",
    }
}

named! {
    /// The series of waits between attempts, n = 1, 2, 3 …, base b, factor f.
    Series {
        /// b
        Constant = "constant",
        /// n·b
        Linear = "linear",
        /// (2n−1)·b
        Lengthening = "lengthening",
        /// floor(n²/2)·b
        HalfSquare = "half_square",
        /// 2^(n−1)·b
        Squaring = "squaring",
        /// b·f^(n−1)
        Exponential = "exponential",
        /// uniform(b, 3·previous)
        Decorrelated = "decorrelated",
        /// b·(n − 1 + random): the series of preset `component`
        RandomLinear = "random_linear",
    }
}

/// How a wait is spread, so that callers do not come back in step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Jitter {
    /// Exactly the series.
    None,
    /// Between the wait and (1 + share) times it.
    UpTo(f64),
    /// Between nothing and the wait.
    Full,
    /// Between half the wait and the wait.
    Equal,
    /// Between (1 − share) and (1 + share) times the wait.
    PlusMinus(f64),
}

/// The retry budget: how many attempts beyond the first a source may make.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetSettings {
    /// Share of the calls of the window. Default 0.2.
    pub ratio: f64,
    /// The sliding window. Default 10 s.
    pub window: Duration,
    /// Always allowed per second of the window, however few calls there are. Default 10.
    pub floor_per_second: u32,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        BudgetSettings {
            ratio: 0.2,
            window: Duration::from_secs(10),
            floor_per_second: 10,
        }
    }
}

/// Group `retry`.
#[derive(Debug, Clone, PartialEq)]
pub struct RetrySettings {
    /// Rounds over the candidates (`next_first`) or tries on one endpoint (`same_first`), the first
    /// included; at least 1.
    pub attempts_max: u32,
    /// How many endpoints one call may try; `None`: all.
    pub endpoints_max: Option<u32>,
    /// Next endpoint first, or same endpoint first.
    pub order: RetryOrder,
    /// Series of waits.
    pub series: Series,
    /// The series' base b.
    pub delay: Duration,
    /// The factor f of `exponential`.
    pub factor: f64,
    /// Cap before and after jitter; `None`: no cap.
    pub delay_max: Option<Duration>,
    /// Spread of the waits.
    pub jitter: Jitter,
    /// `None`: no budget.
    pub budget: Option<BudgetSettings>,
    /// The whole call; `None`: unbounded.
    pub deadline: Option<Duration>,
    /// One attempt; `None`: unbounded. Cut to half the deadline unless the user set it.
    pub attempt_timeout: Option<Duration>,
    /// Whether `attempt_timeout` was set by the user and so is taken as it is.
    pub attempt_timeout_is_set: bool,
    /// Opening a connection, inside the attempt's limit.
    pub connect_timeout: Duration,
    /// Back-end codes that are always worth another try, whatever the tables say.
    pub on: Vec<String>,
    /// Back-end codes that are never worth another try.
    pub never: Vec<String>,
}

named! {
    /// How a circuit counts.
    CircuitMode {
        /// No circuit.
        Off = "off",
        /// Weights of failures in a row add up; a success resets.
        WeightedConsecutive = "weighted_consecutive",
        /// Failures within `window`.
        Window = "window",
        /// Ratio of failures or of slow calls over a sliding window.
        Rate = "rate",
        /// Whole calls that failed after all their attempts.
        Operations = "operations",
    }
}

/// Group `circuit`. Two circuits with equal settings are the same circuit across a reload.
#[derive(Debug, Clone, PartialEq)]
pub struct CircuitSettings {
    /// How failures are counted.
    pub mode: CircuitMode,
    /// Opens at this count; 0 disables the circuit.
    pub failures: u32,
    /// How long it stays open before a trial.
    pub open_for: Duration,
    /// Factor on `open_for` for each opening in a row; 1.0: none.
    pub open_growth: f64,
    /// Upper bound of a grown `open_for`.
    pub open_for_max: Duration,
    /// Successes in a row that close it again.
    pub successes: u32,
    /// Trials at once while half-open.
    pub trials_max: u32,
    /// Window of modes `window` and `rate`.
    pub window: Duration,
    /// Mode `rate`: opens at this share of failures.
    pub failure_ratio: f64,
    /// Mode `rate`: a call at least this long is slow; `None`: none is.
    pub slow_after: Option<Duration>,
    /// Mode `rate`: opens at this share of slow calls.
    pub slow_ratio: f64,
    /// Mode `rate`: says nothing below so many calls in the window.
    pub calls_min: u32,
    /// Two good health checks in a row after the opening make the trial due at once.
    pub probe_reopens: bool,
}

/// Group `pool`: the connections of one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolSettings {
    /// Kept while nobody uses them.
    pub idle_max: u32,
    /// In use at once.
    pub active_max: u32,
    /// How long a caller waits for one.
    pub wait_max: Duration,
    /// Callers that wait for one at once; more are refused.
    pub waiting_max: u32,
    /// An idle one is closed after this.
    pub idle_for: Duration,
    /// Any one is replaced after this, jittered by up to 10 %.
    pub lifetime_max: Duration,
    /// Kept open even if nobody asks.
    pub min_idle: u32,
    /// One idle for longer is checked before it is lent.
    pub check_after: Duration,
    /// Clean-ups (cancel at the server, drain) at once; beyond them the connection is closed.
    pub cleanups_max: u32,
    /// A clean-up that takes longer ends with the socket closed.
    pub cleanup_max: Duration,
}

/// Group `health`.
#[derive(Debug, Clone, PartialEq)]
pub struct HealthSettings {
    /// Whether endpoints are probed at all.
    pub enabled: bool,
    /// Between two checks.
    pub interval: Duration,
    /// One check.
    pub timeout: Duration,
    /// Failed checks in a row after which an endpoint is down.
    pub down_after: u32,
    /// Good checks in a row after which the watchdog calls it recovered.
    pub up_after: u32,
    /// Good checks in a row after which it gets reads again.
    pub healthy_after: u32,
    /// Between checks while a source has no primary.
    pub urgent_interval: Duration,
    /// How long `urgent_interval` is kept up.
    pub urgent_for: Duration,
}

named! {
    /// What happens to a call over the rate limit.
    OverRate {
        /// Try another endpoint.
        RouteElsewhere = "route_elsewhere",
        /// Wait in the queue.
        Queue = "queue",
        /// Refuse at once.
        Reject = "reject",
    }
}

/// Group `limits`. At the source they bound the whole, at an endpoint that endpoint.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitSettings {
    /// Calls per second; `None`: no limit.
    pub rate: Option<f64>,
    /// Calls at once before the rate binds; `None`: one second's worth.
    pub burst: Option<u32>,
    /// What happens over the rate.
    pub over_rate: OverRate,
    /// Calls at once; `None`: no limit.
    pub concurrency: Option<u32>,
    /// Calls that may wait for a place.
    pub queue_depth: u32,
    /// How long they wait.
    pub queue_wait: Duration,
}

named! {
    /// Which roles a read may go to.
    ReadFrom {
        /// Primary and replicas alike.
        Any = "any",
        /// Replicas, the primary only if none is left.
        Replica = "replica",
        /// The primary only.
        Primary = "primary",
    }
}

named! {
    /// How one of several candidates is chosen.
    Strategy {
        /// Power of two choices on latency and load.
        WeightedLatency = "weighted_latency",
        /// Alias of `weighted_latency`.
        P2c = "p2c",
        /// Fewest in flight.
        LeastOutstanding = "least_outstanding",
        /// In turn.
        RoundRobin = "round_robin",
        /// In turn by weight, smoothly.
        WeightedRoundRobin = "weighted_round_robin",
        /// Weight ÷ (failure rate + 0.01).
        HealthWeighted = "health_weighted",
        /// The fastest.
        LowestLatency = "lowest_latency",
        /// The primary while it lives, then the others.
        PrimaryWithStandby = "primary_with_standby",
    }
}

/// Group `route`.
#[derive(Debug, Clone, PartialEq)]
pub struct RouteSettings {
    /// How one of several candidates is chosen.
    pub strategy: Strategy,
    /// Which roles reads use.
    pub read_from: ReadFrom,
    /// A replica further behind gets no reads; `None`: lag does not matter.
    pub lag_max: Option<Duration>,
    /// If health or lag would exclude everything, the least bad is tried.
    pub last_resort: bool,
    /// How long a write waits for a primary.
    pub primary_wait: Duration,
    /// Reads of a session see that session's writes.
    pub read_your_writes: bool,
    /// How long such a read waits for a replica before it goes to the primary.
    pub read_your_writes_wait: Duration,
}

named! {
    /// Where audit entries go.
    AuditSink {
        /// Nowhere; calls are still counted.
        None = "none",
        /// One JSON object a line, a file a UTC day.
        File = "file",
    }
}

/// Group `audit`.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditSettings {
    /// Where entries go.
    pub sink: AuditSink,
    /// The last entries kept in memory for the admin API; 0: none.
    pub recent_max: u32,
    /// Secrets and literals are taken out of everything that is written.
    pub redact: bool,
}

impl Default for Settings {
    fn default() -> Self {
        super::Preset::Balanced.settings()
    }
}

impl Default for CircuitSettings {
    fn default() -> Self {
        CircuitSettings {
            mode: CircuitMode::WeightedConsecutive,
            failures: 5,
            open_for: Duration::from_secs(300),
            open_growth: 1.0,
            // An hour: longer than any open_for of a preset, short enough that a person sees a trial.
            open_for_max: Duration::from_secs(3600),
            successes: 2,
            trials_max: 1,
            window: Duration::from_secs(10),
            failure_ratio: 0.5,
            slow_after: None,
            slow_ratio: 1.0,
            calls_min: 20,
            probe_reopens: true,
        }
    }
}

impl Default for PoolSettings {
    fn default() -> Self {
        PoolSettings {
            idle_max: 10,
            active_max: 50,
            wait_max: Duration::from_secs(5),
            // As many as a process is built to hold: each is a waiting call of some kilobytes.
            waiting_max: 10_000,
            idle_for: Duration::from_secs(300),
            lifetime_max: Duration::from_secs(1800),
            min_idle: 0,
            check_after: Duration::from_secs(30),
            cleanups_max: 4,
            cleanup_max: Duration::from_secs(2),
        }
    }
}

impl Default for HealthSettings {
    fn default() -> Self {
        HealthSettings {
            enabled: true,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            down_after: 2,
            up_after: 3,
            healthy_after: 2,
            urgent_interval: Duration::from_millis(250),
            urgent_for: Duration::from_secs(60),
        }
    }
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings {
            rate: None,
            burst: None,
            over_rate: OverRate::RouteElsewhere,
            concurrency: None,
            queue_depth: 100,
            queue_wait: Duration::from_secs(5),
        }
    }
}

impl Default for RouteSettings {
    fn default() -> Self {
        RouteSettings {
            strategy: Strategy::WeightedLatency,
            read_from: ReadFrom::Any,
            lag_max: Some(Duration::from_secs(10)),
            last_resort: true,
            primary_wait: Duration::ZERO,
            read_your_writes: true,
            read_your_writes_wait: Duration::from_millis(50),
        }
    }
}

impl Default for AuditSettings {
    fn default() -> Self {
        AuditSettings {
            sink: AuditSink::None,
            recent_max: 1000,
            redact: true,
        }
    }
}
