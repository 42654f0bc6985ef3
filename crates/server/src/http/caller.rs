//! What the headers of a request say about its caller.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use mainstay_engine::{Chance, CorrelationId};
use mainstay_sql::Options;

use super::app::App;
use super::keys::Holder;
use super::trace::Trace;
use crate::problem::Problem;

/// Longer session and idempotency keys are refused: each is kept.
const KEY_BYTES_MAX: usize = 256;

/// The caller of one request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// The caller's own id, else a new one.
    pub(crate) correlation_id: CorrelationId,
    /// Whose key it showed.
    pub(crate) holder: Holder,
    session: Option<Arc<str>>,
    deadline: Option<Duration>,
    idempotency_key: Option<Arc<str>>,
}

impl Caller {
    /// The id that answers and log lines carry: that of `X-Correlation-Id`, else the trace id of
    /// `traceparent`, else a new one. With the trace that the request belongs to or begins.
    pub(super) fn id(headers: &HeaderMap, chance: &Chance) -> (CorrelationId, Trace) {
        let own = text(headers, "x-correlation-id").and_then(CorrelationId::parse);
        let trace = Trace::read(headers, chance);
        let of_trace = trace.as_ref().map(Trace::id);
        let id = own.or(of_trace);
        let id = id.unwrap_or_else(|| CorrelationId::draw(chance));
        (id, trace.unwrap_or_else(|| Trace::begin(id, chance)))
    }

    /// Reads the headers.
    ///
    /// # Errors
    /// `bad_request` for a header that is there and cannot be understood.
    pub(super) fn read(
        headers: &HeaderMap,
        id: CorrelationId,
        holder: Holder,
    ) -> Result<Self, Problem> {
        if let Some(given) = headers.get("x-correlation-id")
            && given.to_str().ok().and_then(CorrelationId::parse).is_none()
        {
            return Err(Problem::bad_request(
                "X-Correlation-Id is not an id",
                "send 32 hexadecimal digits, with or without dashes, or leave it out",
            ));
        }
        Ok(Caller {
            correlation_id: id,
            holder,
            session: key(headers, "x-session")?,
            deadline: deadline(headers)?,
            idempotency_key: key(headers, "idempotency-key")?,
        })
    }

    /// The options that headers give; those of a body win.
    pub(crate) fn options(&self) -> Options {
        Options {
            deadline: self.deadline,
            session: self.session.clone(),
            idempotency_key: self.idempotency_key.clone(),
            // Two holders of keys never meet in one idempotency key.
            key_owner: self.holder.id.clone(),
            correlation_id: Some(self.correlation_id),
            ..Options::default()
        }
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn key(headers: &HeaderMap, name: &'static str) -> Result<Option<Arc<str>>, Problem> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(text) => checked_key(&format!("the header {name}"), text).map(Some),
        Err(_) => Err(Problem::bad_request(
            format!("the header {name} is not ASCII"),
            format!("send 1 to {KEY_BYTES_MAX} visible ASCII characters"),
        )),
    }
}

/// A session or idempotency key, from wherever it came: not empty, not longer than is kept, and fit to be
/// shown in a line.
pub(crate) fn checked_key(place: &str, text: &str) -> Result<Arc<str>, Problem> {
    let wrong = match text.len() {
        0 => "is empty".to_owned(),
        1..=KEY_BYTES_MAX => match text.chars().position(char::is_control) {
            None => return Ok(Arc::from(text)),
            Some(at) => format!("has a control character at {at}"),
        },
        bytes => format!("has {bytes} bytes"),
    };
    Err(Problem::bad_request(
        format!("{place} {wrong}"),
        format!("send 1 to {KEY_BYTES_MAX} bytes of visible text, or leave it out"),
    ))
}

fn deadline(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let Some(value) = headers.get("x-deadline-ms") else {
        return Ok(None);
    };
    let hint = "send the milliseconds that the call may take, as a whole number above 0";
    match value
        .to_str()
        .ok()
        .and_then(|text| text.trim().parse::<i64>().ok())
    {
        Some(millis) if millis > 0 => Ok(Some(Duration::from_millis(millis.unsigned_abs()))),
        Some(millis) => Err(Problem::bad_request(
            format!("X-Deadline-Ms is {millis}: the deadline passed before the call began"),
            hint,
        )),
        None => Err(Problem::bad_request(
            "X-Deadline-Ms is not a whole number",
            hint,
        )),
    }
}

/// A page in a browser on this machine could reach a loopback port without its user's knowledge: by a
/// request from a foreign origin, or by a name of its own that resolves to 127.0.0.1. Without keys both
/// are refused.
pub(super) fn refuse_foreign_pages(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = |what: String| {
        Problem::new(
            "not_allowed",
            what,
            "call it as localhost, 127.0.0.1 or [::1], and not from a page of another origin",
        )
    };
    let host = shown(headers, header::HOST).unwrap_or_default();
    if !host.is_empty() && !is_loopback(&host) {
        return Err(refused(format!(
            "the host {host:?} is not a name of this machine"
        )));
    }
    let Some(origin) = shown(headers, header::ORIGIN) else {
        return Ok(());
    };
    let (_, of_origin) = origin.split_once("://").unwrap_or(("", &origin));
    if is_loopback(of_origin) {
        return Ok(());
    }
    Err(refused(format!("the origin {origin:?} is another one")))
}

/// A header with whatever stands in it: what is not text is no name of this machine either.
fn shown(headers: &HeaderMap, name: header::HeaderName) -> Option<Cow<'_, str>> {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority
            .rsplit_once(':')
            .map_or(authority, |(host, _)| host),
    };
    let is_address = |host: &str| {
        let address = host.parse::<std::net::IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
    };
    host.eq_ignore_ascii_case("localhost") || is_address(host)
}

impl FromRequestParts<Arc<App>> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.ok_or_else(Problem::internal)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter();
        pairs
            .map(|(name, value)| {
                let name = axum::http::HeaderName::from_static(name);
                (name, HeaderValue::from_bytes(value.as_bytes()).unwrap())
            })
            .collect()
    }

    #[test]
    fn the_callers_id_wins_over_its_trace_and_nonsense_is_passed_over() {
        let chance = Chance::seeded(1);
        let read = |pairs: &[(&'static str, &str)]| Caller::id(&headers(pairs), &chance);
        let id = |pairs: &[(&'static str, &str)]| read(pairs).0.to_string();
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let own = "0123456789abcdef0123456789abcdef";
        assert_eq!(
            id(&[("x-correlation-id", own), ("traceparent", trace)]),
            own
        );
        assert_eq!(id(&[("traceparent", trace)]), trace[3..35]);
        for broken in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-0-0",
            "00-0-0-0",
        ] {
            let (id, begun) = read(&[("traceparent", broken)]);
            assert_ne!(id.to_string(), trace[3..35]);
            assert_eq!(begun.id(), id, "{broken}");
        }
        let (_, goes_on) = read(&[("x-correlation-id", own), ("traceparent", trace)]);
        assert_eq!(goes_on.id().to_string(), trace[3..35]);
    }

    #[test]
    fn headers_that_cannot_be_understood_are_refused() {
        let long = "k".repeat(257);
        let table = [
            ("x-deadline-ms", "0"),
            ("x-deadline-ms", "-5"),
            ("x-deadline-ms", "soon"),
            ("x-deadline-ms", "99999999999999999999"),
            ("x-correlation-id", "xyz"),
            ("x-session", ""),
            ("x-session", long.as_str()),
            ("x-session", "a\tb"),
            ("idempotency-key", "\u{e9}"),
        ];
        for (name, value) in table {
            let read = Caller::read(
                &headers(&[(name, value)]),
                CorrelationId(1),
                Holder::anybody(),
            );
            assert_eq!(read.unwrap_err().code(), "bad_request", "{name}: {value}");
        }
    }

    #[test]
    fn pages_of_other_origins_are_refused() {
        let table = [
            ("host", "localhost:7717", true),
            ("host", "127.0.0.1", true),
            ("host", "127.9.9.9:1", true),
            ("host", "[::1]:7717", true),
            ("host", "rebound.example:7717", false),
            ("host", "10.0.0.1:7717", false),
            ("origin", "http://localhost:3000", true),
            ("origin", "https://page.example", false),
            ("origin", "null", false),
            ("host", "r\u{e9}bound", false),
            ("origin", "http://r\u{e9}bound", false),
        ];
        for (name, value, admitted) in table {
            let checked = refuse_foreign_pages(&headers(&[(name, value)]));
            assert_eq!(checked.is_ok(), admitted, "{name}: {value}");
        }
    }
}
