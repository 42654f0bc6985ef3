//! What is written down about a call.

use std::borrow::Cow;
use std::fmt::Display;

use serde::{Serialize, Serializer};

use crate::attempt::EndpointId;
use crate::failure::{Category, Sent, named};
use crate::operation::{CorrelationId, Name, Safety};

named! {
    /// How a call ended.
    CallOutcome {
        /// It worked.
        Success = "success",
        /// Its last attempt failed.
        Failure = "failure",
        /// We refused it; nothing was sent.
        Rejected = "rejected",
        /// Its caller went away.
        Cancelled = "cancelled",
        /// It neither worked nor failed.
        Neutral = "neutral",
        /// The caller's own code panicked.
        Panicked = "panicked",
    }
}

named! {
    /// What the cache had to do with a call.
    CacheState {
        /// It was not asked.
        Off = "off",
        /// It had a fresh answer.
        Fresh = "fresh",
        /// It had a stale answer.
        Stale = "stale",
        /// It had none.
        Miss = "miss",
        /// It gave the last good answer of a back end that is offline.
        Frozen = "frozen",
    }
}

/// One call with all its attempts, as it is written down. Names of operations and messages must be
/// redacted by whoever fills it in, if the policy says so.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AuditEntry {
    /// Follows the call through logs and answers; 32 hexadecimal digits.
    #[serde(serialize_with = "as_text")]
    pub correlation_id: CorrelationId,
    /// What the caller calls the work.
    #[serde(serialize_with = "as_text")]
    pub operation: Name,
    /// The source that was called.
    #[serde(serialize_with = "as_text")]
    pub source: Name,
    /// The endpoint that answered or was tried last; `None`: none was chosen.
    #[serde(serialize_with = "as_optional_text")]
    pub endpoint: Option<EndpointId>,
    /// Whether the caller got what it wanted.
    pub succeeded: bool,
    /// How it ended.
    #[serde(serialize_with = "as_text")]
    pub outcome: CallOutcome,
    /// Every attempt, in order.
    pub attempts: Vec<AttemptRecord>,
    /// The whole call, waiting and back-off included, in microseconds.
    pub elapsed_us: u64,
    /// Why it failed or was refused, for a reader.
    pub failure_reason: Option<String>,
    /// When it began, UTC.
    #[serde(serialize_with = "as_text")]
    pub started: jiff::Timestamp,
    /// Whether it might be repeated.
    #[serde(serialize_with = "as_text")]
    pub safety: Safety,
    /// Whether the caller or the configuration said so, instead of it being found in the work.
    pub safety_declared: bool,
    /// Whether a failed call may have taken effect; `None`: it succeeded.
    #[serde(serialize_with = "as_optional_text")]
    pub sent: Option<Sent>,
    /// The label of the policy that decided.
    pub policy_name: Cow<'static, str>,
    /// Its version.
    pub policy_version: u64,
    /// Why this endpoint was chosen.
    pub route_reason: Option<Cow<'static, str>>,
    /// What the cache had to do with it.
    #[serde(serialize_with = "as_text")]
    pub cache: CacheState,
}

/// One try on one endpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AttemptRecord {
    /// Where.
    #[serde(serialize_with = "as_text")]
    pub endpoint: EndpointId,
    /// Which attempt of the call, from 1.
    pub number: u32,
    /// Whether it worked.
    pub succeeded: bool,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// What kind of failure.
    #[serde(serialize_with = "as_optional_text")]
    pub category: Option<Category>,
    /// The back end's own code.
    pub code: Option<Cow<'static, str>>,
    /// What happened, for a reader.
    pub message: Option<Cow<'static, str>>,
    /// Whether the failed attempt may have taken effect.
    #[serde(serialize_with = "as_optional_text")]
    pub sent: Option<Sent>,
    /// When it began, UTC.
    #[serde(serialize_with = "as_text")]
    pub started: jiff::Timestamp,
}

fn as_text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_optional_text<S: Serializer>(
    value: &Option<impl Display>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => serializer.collect_str(value),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
pub(in crate::audit) mod tests {
    use super::*;

    /// A call that began at the given time and had to try twice.
    pub(in crate::audit) fn entry(id: u128, started: &str) -> AuditEntry {
        let started: jiff::Timestamp = started.parse().unwrap();
        let attempt = |number, category: Option<Category>| AttemptRecord {
            endpoint: if number == 1 { "a" } else { "b" }.into(),
            number,
            succeeded: category.is_none(),
            duration_us: 1500,
            category,
            code: category.map(|_| "57P01".into()),
            message: category.map(|_| "terminating \"connection\"\nby command".into()),
            sent: category.map(|_| Sent::No),
            started,
        };
        AuditEntry {
            correlation_id: CorrelationId(id),
            operation: "orders.find".into(),
            source: "orders".into(),
            endpoint: Some("b".into()),
            succeeded: true,
            outcome: CallOutcome::Success,
            attempts: vec![attempt(1, Some(Category::Transient)), attempt(2, None)],
            elapsed_us: 3200,
            failure_reason: None,
            started,
            safety: Safety::Read,
            safety_declared: false,
            sent: None,
            policy_name: "balanced".into(),
            policy_version: 3,
            route_reason: Some("lowest latency".into()),
            cache: CacheState::Off,
        }
    }

    #[test]
    fn an_entry_is_one_line_of_json_with_stable_names() {
        let line = serde_json::to_string(&entry(0xab, "2026-11-29T23:00:00.25Z")).unwrap();
        assert!(!line.contains('\n'));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        let expected = serde_json::json!({
            "correlation_id": "000000000000000000000000000000ab",
            "operation": "orders.find",
            "source": "orders",
            "endpoint": "b",
            "succeeded": true,
            "outcome": "success",
            "attempts": [
                {
                    "endpoint": "a", "number": 1, "succeeded": false, "duration_us": 1500,
                    "category": "transient", "code": "57P01",
                    "message": "terminating \"connection\"\nby command", "sent": "no",
                    "started": "2026-11-29T23:00:00.25Z"
                },
                {
                    "endpoint": "b", "number": 2, "succeeded": true, "duration_us": 1500,
                    "category": null, "code": null, "message": null, "sent": null,
                    "started": "2026-11-29T23:00:00.25Z"
                }
            ],
            "elapsed_us": 3200,
            "failure_reason": null,
            "started": "2026-11-29T23:00:00.25Z",
            "safety": "read",
            "safety_declared": false,
            "sent": null,
            "policy_name": "balanced",
            "policy_version": 3,
            "route_reason": "lowest latency",
            "cache": "off"
        });
        assert_eq!(value, expected);
    }
}
