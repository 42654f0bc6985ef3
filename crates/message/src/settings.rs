//! The settings of a service that is proxied, as plain data that has been checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Category, Policy, Safety};

use crate::expression::{Expression, Pointer};
use crate::identity::Identity;

/// How targets share the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spread {
    /// The first target of the first group that is well; the next one only when it is not.
    ActiveStandby,
    /// All targets in turn.
    RoundRobin,
    /// All targets in turn, in proportion to their weights.
    Weighted,
}

impl Spread {
    /// Every value.
    pub const ALL: &'static [Spread] =
        &[Spread::ActiveStandby, Spread::RoundRobin, Spread::Weighted];

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            Spread::ActiveStandby => "active_standby",
            Spread::RoundRobin => "round_robin",
            Spread::Weighted => "weighted",
        }
    }

    /// The value of that name.
    pub fn parse(text: &str) -> Option<Self> {
        Spread::ALL
            .iter()
            .copied()
            .find(|spread| spread.as_str() == text)
    }
}

/// How long things may take.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeouts {
    /// From forwarding a request to its first good reply, each try. Default 5 s.
    pub ack_timeout: Duration,
    /// From the acknowledgement, and from each result, to the next result of a job. Default 60 s.
    pub result_timeout: Duration,
    /// Between two health checks of a target. Default 30 s.
    pub heartbeat_interval: Duration,
    /// Failed checks in a row after which a target without open work is unhealthy. Default 3.
    pub missed_intervals: u32,
    /// How long checks must have been good before traffic goes back to a target. Default 0.
    pub failback_after: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Timeouts {
            ack_timeout: Duration::from_secs(5),
            result_timeout: Duration::from_secs(60),
            heartbeat_interval: Duration::from_secs(30),
            missed_intervals: 3,
            failback_after: Duration::ZERO,
        }
    }
}

/// What an operation's reply is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationKind {
    /// The result.
    Plain,
    /// The acknowledgement of a job, whose results come later.
    Job,
}

impl OperationKind {
    /// Every value.
    pub const ALL: &'static [OperationKind] = &[OperationKind::Plain, OperationKind::Job];

    /// The name in files.
    pub fn as_str(self) -> &'static str {
        match self {
            OperationKind::Plain => "plain",
            OperationKind::Job => "job",
        }
    }

    /// The value of that name.
    pub fn parse(text: &str) -> Option<Self> {
        OperationKind::ALL
            .iter()
            .copied()
            .find(|kind| kind.as_str() == text)
    }
}

/// One operation of the fronted capability.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSettings {
    /// Whether it may be driven again. Default `IdempotentWrite`, as the original does.
    pub safety: Safety,
    /// Whether the file says so; `check` warns where it does not.
    pub safety_declared: bool,
    /// Default plain.
    pub kind: OperationKind,
    /// Instead of the service's.
    pub ack_timeout: Option<Duration>,
    /// Instead of the service's.
    pub result_timeout: Option<Duration>,
    /// Where requests, acknowledgements and results of a job have its key. Without it results are told
    /// apart by nothing but their target.
    pub job_key: Option<Pointer>,
    /// Holds for the last result of a job. Without it every job ends with its first result.
    pub last_result: Option<Expression>,
    /// Holds for a good reply. Without it every reply without an error is one.
    pub acknowledged: Option<Expression>,
}

impl Default for OperationSettings {
    fn default() -> Self {
        OperationSettings {
            safety: Safety::IdempotentWrite,
            safety_declared: false,
            kind: OperationKind::Plain,
            ack_timeout: None,
            result_timeout: None,
            job_key: None,
            last_result: None,
            acknowledged: None,
        }
    }
}

/// One service that does the work.
#[derive(Debug, Clone, PartialEq)]
pub struct TargetSettings {
    /// Unique within the proxied service.
    pub name: Arc<str>,
    /// One of the service's groups.
    pub group: Arc<str>,
    /// Its own name.
    pub destination: Identity,
    /// The broker that it is on, by name; `None`: the first.
    pub broker: Option<Arc<str>>,
    /// Fronted function -> its own operation (`Capability.function`).
    pub operation_map: BTreeMap<Arc<str>, Arc<str>>,
    /// Its share where the strategy is weighted. Default 1.
    pub weight: f64,
    /// Requests and jobs open on it at once; `None`: no limit.
    pub max_in_flight: Option<u32>,
    /// The service's policy with what is said of this target; `max_in_flight` is its
    /// `limits.concurrency`.
    pub policy: Arc<Policy>,
}

/// What a text in an error reply means.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorRule {
    /// The reply begins with it.
    pub prefix: Arc<str>,
    /// The category: `transient` is tried again and fails over, `persistent` is the caller's own.
    pub category: Category,
}

/// Targets that announce themselves are taken in.
#[derive(Debug, Clone, PartialEq)]
pub struct Discovery {
    /// Names, where each part may hold `*` for any characters: `org.fac.sys.-.worker-*`.
    pub pattern: Arc<str>,
    /// The group that they join.
    pub group: Arc<str>,
    /// Their weight.
    pub weight: f64,
    /// The broker to listen at; `None`: the first.
    pub broker: Option<Arc<str>>,
    /// Their open work at once.
    pub max_in_flight: Option<u32>,
    /// Their policy: the service's, with `max_in_flight` as its `limits.concurrency`.
    pub policy: Arc<Policy>,
}

/// A store of objects that requests may point into (data handler `MINIO`).
#[derive(Clone, PartialEq, Eq)]
pub struct ObjectStoreSettings {
    /// Its base address, as the SDK writes it into payloads: `http://host:port`.
    pub url: Arc<str>,
    /// The access key.
    pub user: Arc<str>,
    /// The secret key.
    pub password: Arc<str>,
}

impl std::fmt::Debug for ObjectStoreSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectStoreSettings")
            .field("url", &self.url)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

/// What is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLimits {
    /// Requests in their first phase at once; more are refused with an error reply. Default 10,000.
    pub requests_max: usize,
    /// Accepted jobs open at once; more are refused. Default 100,000.
    pub jobs_max: usize,
    /// Bytes of a body. Default 64 MiB.
    pub body_max: usize,
    /// Bytes of all headers of a message together: the SDK's own bound, 128 KiB.
    pub headers_max: usize,
}

impl Default for MessageLimits {
    fn default() -> Self {
        MessageLimits {
            requests_max: 10_000,
            jobs_max: 100_000,
            body_max: 64 << 20,
            headers_max: 128 << 10,
        }
    }
}

/// A proxied service.
#[derive(Debug, Clone, PartialEq)]
pub struct ServiceSettings {
    /// What it is called here.
    pub name: Arc<str>,
    /// The fronted name.
    pub identity: Identity,
    /// The proxy's own name towards targets.
    pub caller: Identity,
    /// The fronted capability.
    pub capability_name: Arc<str>,
    /// How targets share the work.
    pub spread: Spread,
    /// Groups of targets, the preferred one first.
    pub group_order: Vec<Arc<str>>,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// Operations by function name; those that targets map and that are not here have the defaults.
    pub operations: BTreeMap<Arc<str>, OperationSettings>,
    /// Targets in the order of the file.
    pub targets: Vec<TargetSettings>,
    /// Names of the brokers, the first being the default of targets.
    pub brokers: Vec<Arc<str>>,
    /// Brokers at which callers are: there the identity is taken over.
    pub fronts: Vec<Arc<str>>,
    /// Called to see whether a target lives. Default `intersect_sdk.system_capability`.
    pub status_operation: Arc<str>,
    /// What error replies mean, before the SDK's own texts.
    pub rules: Vec<ErrorRule>,
    /// Targets that announce themselves.
    pub discover: Vec<Discovery>,
    /// The event that tells callers of a job that cannot be finished. Default `job_failed`; `None`: none.
    pub job_failed_event: Option<Arc<str>>,
    /// Where arguments by reference are.
    pub object_stores: Vec<ObjectStoreSettings>,
    /// What is bounded.
    pub limits: MessageLimits,
    /// Retries and routing; its attempt limit is the operation's `ack_timeout`.
    pub policy: Arc<Policy>,
}

/// The default of [`ServiceSettings::status_operation`]: what every service of the SDK answers.
pub const STATUS_OPERATION: &str = "intersect_sdk.system_capability";
/// The default of [`ServiceSettings::job_failed_event`].
pub const JOB_FAILED_EVENT: &str = "job_failed";

impl ServiceSettings {
    /// The settings of an operation; those of one that only targets know are the defaults.
    pub fn operation(&self, function: &str) -> OperationSettings {
        self.operations.get(function).cloned().unwrap_or_default()
    }
}
