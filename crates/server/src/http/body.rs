//! The body of a request: bounded in size and time, then read as JSON.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde::de::DeserializeOwned;

use super::app::App;
use super::object::Only;
use super::{numbers, unique};
use crate::problem::Problem;

/// A body in JSON. An empty one is read as `{}`.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned> FromRequest<Arc<App>> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, Problem> {
        parse(&collect(request, app).await?).map(Json)
    }
}

/// The whole body.
async fn collect(request: Request, app: &App) -> Result<Bytes, Problem> {
    refuse_encoded(request.headers())?;
    let settings = app.settings();
    let max = settings.body_max;
    let declared = request.headers().get(header::CONTENT_LENGTH);
    let declared = declared.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > max) {
        return Err(too_large(max));
    }
    let read = tokio::time::timeout(settings.request_timeout, frames(request, max));
    read.await.unwrap_or_else(|_| {
        Err(Problem::new(
            "request_timeout",
            format!(
                "the body was not complete within {:?}",
                settings.request_timeout
            ),
            "send it faster, or raise server.request_timeout",
        ))
    })
}

/// A body that is compressed would be read as if it were not.
fn refuse_encoded(headers: &HeaderMap) -> Result<(), Problem> {
    let plain = [
        (header::CONTENT_ENCODING, "identity"),
        (header::TRANSFER_ENCODING, "chunked"),
    ];
    for (name, plain) in plain {
        let values = headers.get_all(&name).into_iter();
        let mut values = values.map(|value| value.to_str().unwrap_or("?").trim());
        if let Some(other) = values.find(|value| !value.eq_ignore_ascii_case(plain)) {
            let other: String = other.chars().take(40).collect();
            return Err(Problem::new(
                "unsupported_encoding",
                format!("the body is sent with {name}: {other}, which is not read here"),
                "send the JSON as it is, without compression",
            ));
        }
    }
    Ok(())
}

async fn frames(request: Request, max: u64) -> Result<Bytes, Problem> {
    let mut body = request.into_body();
    let mut first: Option<Bytes> = None;
    let mut rest = BytesMut::new();
    let mut length = 0_u64;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            Problem::bad_request(
                format!("the body broke off: {error}"),
                "send it again, whole",
            )
        })?;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        length += data.len() as u64;
        if length > max {
            return Err(too_large(max));
        }
        match first.take() {
            // Most bodies come in one piece, which need not be copied.
            None if rest.is_empty() => first = Some(data),
            None => rest.extend_from_slice(&data),
            Some(before) => {
                rest.extend_from_slice(&before);
                rest.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| rest.freeze()))
}

fn too_large(max: u64) -> Problem {
    Problem::new(
        "body_too_large",
        format!("the body has more than {max} bytes"),
        "send less at once, or raise server.body_max",
    )
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let message = format!("the body is not UTF-8: byte {at} does not belong there");
        Problem::bad_request(message, "send JSON in UTF-8").with("body_byte", at)
    })?;
    let text = if text.trim_ascii().is_empty() {
        "{}"
    } else {
        text
    };
    // What the route makes of a body has the better message, where it objects too.
    let Only(parsed) = serde_json::from_str(text).map_err(not_understood)?;
    unique::check(text).map_err(not_understood)?;
    match numbers::inexact(text) {
        Some(found) => Err(would_change(text, &found)),
        None => Ok(parsed),
    }
}

fn would_change(text: &str, found: &numbers::Inexact<'_>) -> Problem {
    let shown: String = found.number.chars().take(60).collect();
    let before = &text[..found.at];
    let line = before.rfind('\n').map_or(0, |end| end + 1);
    Problem::new(
        "bad_value",
        format!("the body: the number {shown} has more digits than a number of JSON carries"),
        "send it as text with its type, such as {\"type\": \"decimal\", \"value\": \"1.00000000000000000001\"}",
    )
    .with("body_line", before.matches('\n').count() + 1)
    .with("body_column", found.at - line + 1)
}

fn not_understood(error: serde_json::Error) -> Problem {
    let message = error.to_string();
    let hint = match error.classify() {
        _ if message.contains("duplicate field") => "give each key of an object once",
        _ if message.contains("recursion limit") => "nest arrays and objects at most 127 deep",
        _ if message.contains("expected an object") => "send an object with named fields there",
        serde_json::error::Category::Data => "see the description of the route for its fields",
        _ => "send one JSON object",
    };
    Problem::bad_request(format!("the body: {message}"), hint)
        .with("body_line", error.line())
        .with("body_column", error.column())
}

/// Parameters behind the `?` of an address.
pub(crate) struct Params<T>(pub(crate) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<App>> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<App>) -> Result<Self, Problem> {
        match Query::<T>::try_from_uri(&parts.uri) {
            Ok(Query(params)) => Ok(Params(params)),
            Err(error) => Err(Problem::bad_request(
                format!("the parameters of the address: {}", error.body_text()),
                "see the description of the route for its parameters",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Wanted {
        count: u32,
    }

    #[test]
    fn wrong_bodies_are_refused_with_their_place() {
        let table: [(&[u8], &str); 8] = [
            (b"{\"count\": 1", "EOF"),
            (b"{\"count\": \"a\"}", "invalid type"),
            (b"{\"cuont\": 1}", "unknown field"),
            (b"{\"count\": 1, \"count\": 2}", "duplicate field"),
            (b"{\"count\": 1} x", "trailing"),
            (b"\xff", "not UTF-8"),
            (b"[1]", "expected an object"),
            (b"{[", "must be a string"),
        ];
        for (body, expected) in table {
            let problem = parse::<Wanted>(body).unwrap_err();
            assert_eq!(problem.code(), "bad_request");
            assert!(format!("{problem:?}").contains(expected), "{problem:?}");
        }
        assert_eq!(parse::<Wanted>(b" \n").unwrap().count, 0);
    }

    #[test]
    fn a_key_given_twice_anywhere_is_refused_by_name() {
        type Any = serde_json::Map<String, serde_json::Value>;
        for body in [
            r#"{"values": {"a": 1, "b": 2, "a": 3}}"#,
            r#"{"values": [{"x": {"a": 1, "a": 3}}]}"#,
            r#"{"a": 1, "a": 1}"#,
        ] {
            let problem = parse::<Any>(body.as_bytes()).unwrap_err();
            let shown = format!("{problem:?}");
            assert_eq!(problem.code(), "bad_request");
            assert!(shown.contains("the key \\\"a\\\" twice"), "{shown}");
        }
        let deep = format!("{{\"a\": {}{}}}", "[".repeat(200), "]".repeat(200));
        let problem = parse::<serde_json::Value>(deep.as_bytes()).unwrap_err();
        assert!(format!("{problem:?}").contains("127 deep"), "{problem:?}");
    }

    #[test]
    fn a_number_that_no_double_holds_is_refused_with_its_place() {
        type Any = serde_json::Map<String, serde_json::Value>;
        let body = b"{\n  \"params\": [1, 1.00000000000000000001]}";
        let problem = parse::<Any>(body).unwrap_err();
        assert_eq!(problem.code(), "bad_value");
        let shown = format!("{problem:?}");
        for part in [
            "1.00000000000000000001",
            "body_line",
            "Number(2)",
            "Number(17)",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn encoded_bodies_are_refused_and_plain_ones_are_not() {
        let table: [(&'static str, &str, bool); 7] = [
            ("content-encoding", "gzip", false),
            ("content-encoding", "identity, br", false),
            ("content-encoding", "identity", true),
            ("content-encoding", "Identity", true),
            ("transfer-encoding", "gzip, chunked", false),
            ("transfer-encoding", "chunked", true),
            ("content-type", "gzip", true),
        ];
        for (name, value, admitted) in table {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(
                refuse_encoded(&headers).is_ok(),
                admitted,
                "{name}: {value}"
            );
        }
    }
}
