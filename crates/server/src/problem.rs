//! What a client is told when something is wrong: RFC 9457 documents with stable codes. The one table
//! from codes to status numbers is here.

use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use mainstay_engine::audit::AttemptRecord;
use mainstay_engine::{CorrelationId, Sent};
use mainstay_sql::SqlError;
use serde::Serialize;

/// Every code with its status and what it means in a few words.
const CODES: &[Row] = &[
    ("no_primary", 503, "No primary"),
    ("no_endpoint", 503, "No endpoint fits"),
    ("circuit_open", 503, "Circuits are open"),
    ("queue_full", 503, "Too many wait already"),
    ("queue_timeout", 503, "Waited too long for a place"),
    ("pool_timeout", 503, "Waited too long for a connection"),
    ("paused", 503, "The source is paused"),
    ("draining", 503, "Being drained"),
    ("fenced", 503, "This instance may not write"),
    ("cancelled", 503, "Cancelled at the back end"),
    ("attempts_failed", 502, "Every attempt failed"),
    ("rate_limited", 429, "Over the rate limit"),
    ("deadline_exceeded", 504, "The deadline passed"),
    (
        "request_timeout",
        408,
        "The request took too long to arrive",
    ),
    ("outcome_unknown", 500, "It may have taken effect"),
    ("internal", 500, "A fault of Mainstay"),
    ("transaction_lost", 409, "The transaction is gone"),
    ("constraint", 409, "A constraint refused it"),
    ("contention", 409, "In conflict with other work"),
    ("conflict", 409, "Does not fit the present state"),
    ("bad_statement", 400, "The statement is wrong"),
    ("bad_request", 400, "The request is wrong"),
    ("bad_value", 400, "A value does not fit"),
    ("idempotency_unavailable", 400, "No idempotency keys here"),
    (
        "idempotency_mismatch",
        422,
        "The key belongs to another request",
    ),
    ("policy_refused", 422, "The settings make no sense"),
    ("body_too_large", 413, "The body is too large"),
    ("head_too_large", 431, "The head is too large"),
    ("unsupported_encoding", 415, "The body is encoded"),
    ("answer_too_large", 413, "The answer is too large"),
    ("not_authenticated", 401, "Not authenticated"),
    ("not_allowed", 403, "Not allowed"),
    ("unknown_source", 404, "No such source"),
    ("unknown_entity", 404, "No such table or view"),
    ("unknown_column", 404, "No such column"),
    ("unknown_endpoint", 404, "No such endpoint"),
    ("unknown_transaction", 404, "No such transaction"),
    ("unknown_key", 404, "No such key"),
    ("unknown_service", 404, "No such message service"),
    ("unknown_target", 404, "No such target"),
    ("unknown_job", 404, "No such open job"),
    ("unknown_route", 404, "No such route"),
    (
        "method_not_allowed",
        405,
        "The route does not take this method",
    ),
    ("not_available", 501, "Not in this version"),
];

/// What to do about an answer that does not fit a plain one.
pub(crate) const TOO_LARGE_HINT: &str = "ask for it as lines (Accept: application/x-ndjson on query and find, of reads outside transactions), which have no such limit, \
     for fewer rows or a page of them, or raise server.answer_max";

/// Code, status, title.
type Row = (&'static str, u16, &'static str);

fn row(code: &str) -> &'static Row {
    const UNLISTED: &Row = &("internal", 500, "A fault of Mainstay");
    CODES.iter().find(|row| row.0 == code).unwrap_or(UNLISTED)
}

/// One thing wrong, on its way to the client.
#[derive(Debug, Clone)]
pub struct Problem {
    parts: Box<Parts>,
}

#[derive(Debug, Clone, Serialize)]
struct Parts {
    #[serde(rename = "type")]
    kind: String,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    #[serde(serialize_with = "as_text")]
    sent: Sent,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blame: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    endpoint: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AttemptRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    correlation_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after: Option<f64>,
    /// What the database or we named: constraint, column, line.
    #[serde(flatten)]
    place: serde_json::Map<String, serde_json::Value>,
}

fn as_text<S: serde::Serializer>(sent: &Sent, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(sent.as_str())
}

impl Problem {
    /// Every code that a client may be told, with its status: for whoever documents them.
    pub fn codes() -> impl Iterator<Item = (&'static str, u16)> {
        CODES.iter().map(|(code, status, _)| (*code, *status))
    }

    /// A problem that no back end has to do with: nothing was sent.
    pub fn new(code: &'static str, detail: impl Into<String>, hint: impl Into<String>) -> Self {
        let (code, status, title) = *row(code);
        Problem {
            parts: Box::new(Parts {
                kind: format!("urn:mainstay:problem:{code}"),
                title,
                status,
                detail: detail.into(),
                code,
                sent: Sent::No,
                category: None,
                blame: None,
                endpoint: None,
                attempts: Vec::new(),
                correlation_id: None,
                hint: Some(hint.into()),
                retry_after: None,
                place: serde_json::Map::new(),
            }),
        }
    }

    /// A request that makes no sense.
    pub fn bad_request(detail: impl Into<String>, hint: impl Into<String>) -> Self {
        Problem::new("bad_request", detail, hint)
    }

    /// A fault of our own. The effect is unknown, since nobody knows how far it came.
    pub fn internal() -> Self {
        let mut problem = Problem::new(
            "internal",
            "a fault of Mainstay ended the request",
            "please report it with the correlation id; the log has more",
        );
        problem.parts.sent = Sent::Maybe;
        problem
    }

    /// It is about the answer alone: the statement that it belongs to was carried out.
    #[must_use]
    pub fn carried_out(mut self) -> Self {
        self.parts.sent = Sent::Maybe;
        let hint = self.parts.hint.unwrap_or_default();
        self.parts.hint = Some(format!(
            "the statement was carried out, only its answer is too large; {hint}"
        ));
        self
    }

    /// Adds a member of its own, such as a line number.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.parts.place.insert(name.to_owned(), value.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.parts.retry_after = Some(after.as_secs_f64());
        self
    }

    /// Whether what was asked for may have taken effect.
    pub fn sent(&self) -> Sent {
        self.parts.sent
    }

    /// Its stable code.
    pub fn code(&self) -> &'static str {
        self.parts.code
    }

    /// The document as a whole answer of HTTP/1.1 that ends its connection, with its status.
    pub(crate) fn alone(self, id: CorrelationId) -> (u16, Vec<u8>) {
        let (status, wait, body) = self.written(id);
        let mut answer = format!("HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\n");
        if let Some(seconds) = wait {
            answer.push_str(&format!("retry-after: {seconds}\r\n"));
        }
        answer.push_str(&format!(
            "x-correlation-id: {id}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        ));
        let mut bytes = answer.into_bytes();
        bytes.extend_from_slice(&body);
        (status.as_u16(), bytes)
    }

    /// It ended a stream whose first rows are out.
    #[must_use]
    pub(crate) fn of_stream(mut self) -> Self {
        let hint = "the rows so far are not the whole answer; ask again";
        self.parts.hint.get_or_insert_with(|| hint.to_owned());
        self
    }

    /// The document as the member of a line.
    pub(crate) fn member(self, correlation_id: CorrelationId) -> Vec<u8> {
        self.written(correlation_id).2
    }

    /// The document with its headers.
    pub(crate) fn render(self, correlation_id: CorrelationId) -> Response {
        let (status, wait, body) = self.written(correlation_id);
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"mainstay\"");
            headers.insert(header::WWW_AUTHENTICATE, scheme);
        }
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = wait {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// Status, whole seconds to wait (never too few) and the document.
    fn written(mut self, correlation_id: CorrelationId) -> (StatusCode, Option<u64>, Vec<u8>) {
        let parts = &mut self.parts;
        parts
            .correlation_id
            .get_or_insert_with(|| correlation_id.to_string());
        let usual = || usual_hint(parts.code, parts.sent).to_owned();
        parts.hint.get_or_insert_with(usual);
        if parts.sent != Sent::No {
            parts.retry_after = None;
        }
        let status =
            StatusCode::from_u16(parts.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        // Numbers and text only: nothing in it can fail to be written.
        let body = serde_json::to_vec(&parts).unwrap_or_default();
        let wait = parts.retry_after;
        let wait = wait.map(|after| after.ceil().clamp(1.0, 86_400.0) as u64);
        (status, wait, body)
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} [{}]", self.parts.detail, self.parts.code)?;
        match &self.parts.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

impl From<SqlError> for Problem {
    fn from(error: SqlError) -> Self {
        let detail = error.detail();
        let failure = &detail.failure;
        let (code, status, title) = *row(detail.code.as_str());
        let is_too_large = code == "answer_too_large";
        let mut place = serde_json::Map::new();
        for (kind, name) in &detail.place {
            name_place(&mut place, kind, name);
        }
        if let Some(code) = &failure.code {
            place.insert("back_end_code".to_owned(), code.as_ref().into());
        }
        Problem {
            parts: Box::new(Parts {
                kind: format!("urn:mainstay:problem:{code}"),
                title,
                status,
                detail: match is_too_large {
                    // What the rows take in memory would mislead: the limit is one of their JSON.
                    true => "the answer is larger than server.answer_max".to_owned(),
                    false => failure.message.to_string(),
                },
                code,
                sent: failure.sent,
                category: Some(failure.category.as_str()),
                blame: Some(failure.blame.as_str()),
                endpoint: detail
                    .endpoint
                    .as_ref()
                    .map(|endpoint| endpoint.to_string()),
                attempts: detail.attempts.clone(),
                correlation_id: detail.correlation_id.map(|id| id.to_string()),
                hint: match is_too_large {
                    true => Some(TOO_LARGE_HINT.to_owned()),
                    false => detail.hint.clone().or_else(|| advice(&failure.message)),
                },
                retry_after: failure.retry_after.map(|after| after.as_secs_f64()),
                place,
            }),
        }
    }
}

/// Adds what the database named. A member is one text, whatever number of columns a constraint has.
fn name_place(place: &mut serde_json::Map<String, serde_json::Value>, kind: &str, name: &str) {
    // `type` is the problem's own.
    let kind = if kind == "type" { "value_type" } else { kind };
    let named = match place.get(kind).and_then(|known| known.as_str()) {
        Some(known) => format!("{known}, {name}"),
        None => name.to_owned(),
    };
    place.insert(kind.to_owned(), named.into());
}

/// What to do where nobody who knows more has said it.
fn usual_hint(code: &str, sent: Sent) -> &'static str {
    match code {
        "no_endpoint" | "no_primary" => {
            "see GET /v1/sources/{source} for the roles, drains and health of its endpoints"
        }
        "circuit_open" => "wait for the next trial, or see GET /v1/sources/{source}/watchdog",
        "paused" => "wait, or POST /v1/admin/resume",
        "queue_full" | "queue_timeout" | "pool_timeout" | "rate_limited" => {
            "send fewer at once, try again later, or raise the limit in the policy"
        }
        _ if sent == Sent::Maybe => "look whether it took effect before you send it again",
        _ => "the correlation id finds the call in GET /v1/sources/{source}/audit",
    }
}

/// A refusal's message ends in what to do, behind its last semicolon.
fn advice(message: &str) -> Option<String> {
    let (_, advice) = message.rsplit_once("; ")?;
    Some(advice.to_owned())
}

/// The problem travels beside an empty answer to the one place that writes it down.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(axum::body::Body::empty());
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_of_the_data_face_has_a_row_of_its_own() {
        use mainstay_sql::Code;
        let codes = [
            Code::NoPrimary,
            Code::NoEndpoint,
            Code::CircuitOpen,
            Code::QueueFull,
            Code::QueueTimeout,
            Code::PoolTimeout,
            Code::Paused,
            Code::Draining,
            Code::AttemptsFailed,
            Code::RateLimited,
            Code::DeadlineExceeded,
            Code::OutcomeUnknown,
            Code::Internal,
            Code::TransactionLost,
            Code::Constraint,
            Code::Contention,
            Code::Conflict,
            Code::BadStatement,
            Code::BadRequest,
            Code::BadValue,
            Code::AnswerTooLarge,
            Code::NotAllowed,
            Code::UnknownSource,
            Code::UnknownEntity,
            Code::UnknownColumn,
            Code::UnknownEndpoint,
            Code::UnknownTransaction,
            Code::IdempotencyUnavailable,
            Code::IdempotencyMismatch,
            Code::PolicyRefused,
            Code::NotAvailable,
            Code::Cancelled,
        ];
        for code in codes {
            assert_eq!(row(code.as_str()).0, code.as_str());
        }
        let mut names: Vec<_> = CODES.iter().map(|row| row.0).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CODES.len());
    }

    #[test]
    fn a_member_is_one_text_also_where_several_columns_are_named() {
        use mainstay_engine::{Category, Failure};
        use mainstay_sql::Code;
        let failure = Failure::new(Category::Persistent, "UNIQUE constraint failed: t.a, t.b");
        let error = SqlError::new(Code::Constraint, failure);
        let error = error
            .place("column", "a".to_owned())
            .place("column", "b".to_owned())
            .place("type", "f64".to_owned());
        let (_, _, body) = Problem::from(error).written(CorrelationId(1));
        let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(document["column"], "a, b");
        assert_eq!(document["type"], "urn:mainstay:problem:constraint");
        assert_eq!(document["value_type"], "f64");
    }

    #[test]
    fn every_document_says_what_to_do() {
        use mainstay_engine::{Category, Failure};
        for code in [mainstay_sql::Code::NoEndpoint, mainstay_sql::Code::Internal] {
            let failure = Failure::new(Category::Transient, "nobody said what to do");
            let problem = Problem::from(SqlError::new(code, failure));
            let (_, _, body) = problem.written(CorrelationId(1));
            let document: serde_json::Value = serde_json::from_slice(&body).unwrap();
            assert!(
                document["hint"]
                    .as_str()
                    .is_some_and(|hint| hint.len() > 20),
                "{document}"
            );
        }
    }

    #[test]
    fn a_pause_is_named_only_where_nothing_was_sent() {
        let after = Duration::from_millis(1200);
        let problem = Problem::new("circuit_open", "d", "h").retry_after(after);
        let response = problem.clone().render(CorrelationId(1));
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
        let mut sent = problem;
        sent.parts.sent = Sent::Maybe;
        let response = sent.render(CorrelationId(1));
        assert!(response.headers().get(header::RETRY_AFTER).is_none());
    }
}
