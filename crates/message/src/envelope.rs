//! What INTERSECT 0.9 puts around a body: headers of requests, replies, events and lifecycle messages.
//!
//! There is no envelope on the wire: the body is the data, everything else is a header. What the SDK
//! accepts is accepted here, as its models in intersect-sdk-common 0.9.6 say; what it drops is dropped.

use std::sync::Arc;

use jiff::Timestamp;
use smol_str::{SmolStr, format_smolstr};
use uuid::Uuid;

use crate::broker::Headers;
use crate::identity::Identity;

/// Names of headers.
pub mod name {
    /// Unique for each message.
    pub const MESSAGE_ID: &str = "message_id";
    /// Of the caller's campaign.
    pub const CAMPAIGN_ID: &str = "campaign_id";
    /// The same for a request and its reply.
    pub const REQUEST_ID: &str = "request_id";
    /// Who sends.
    pub const SOURCE: &str = "source";
    /// To whom.
    pub const DESTINATION: &str = "destination";
    /// When it was made.
    pub const CREATED_AT: &str = "created_at";
    /// Of the sender.
    pub const SDK_VERSION: &str = "sdk_version";
    /// `Capability.function`.
    pub const OPERATION_ID: &str = "operation_id";
    /// Where the data is.
    pub const DATA_HANDLER: &str = "data_handler";
    /// Whether the body is an error's text.
    pub const HAS_ERROR: &str = "has_error";
    /// Of an event.
    pub const CAPABILITY_NAME: &str = "capability_name";
    /// Of an event.
    pub const EVENT_NAME: &str = "event_name";
    /// Of a lifecycle message.
    pub const LIFECYCLE_TYPE: &str = "lifecycle_type";
}

use name::*;

/// Digits of a part of a version: more than any version has, fewer than any reader chokes on.
const VERSION_DIGITS_MAX: usize = 9;
/// The media type of JSON.
pub const JSON: &str = "application/json";
/// The media type of error texts.
pub const TEXT: &str = "text/plain";
/// The version of the wire that is spoken where no other is known: that of intersect-sdk-common.
pub const SDK_VERSION_SPOKEN: &str = "0.9.6";

/// Where the data of a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataHandler {
    /// In the body.
    Message,
    /// In a store of objects; the body says where.
    Minio,
}

impl DataHandler {
    /// As it stands in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            DataHandler::Message => "MESSAGE",
            DataHandler::Minio => "MINIO",
        }
    }
}

/// A header that is missing or that the SDK would not accept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadFault {
    /// It is not there.
    #[error("header {0} is missing")]
    Missing(&'static str),
    /// It has another form than it must.
    #[error("header {name} is malformed: {value:?}")]
    Malformed {
        /// Which.
        name: &'static str,
        /// Its value, cut.
        value: String,
    },
    /// There are more than are taken.
    #[error("it has more than {} headers", Headers::COUNT_MAX)]
    TooMany,
}

/// The headers of a request or reply, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// Unique for each message. Ids are in the form in which the SDK writes them.
    pub message_id: SmolStr,
    /// The caller's campaign.
    pub campaign_id: SmolStr,
    /// The same in the reply.
    pub request_id: SmolStr,
    /// Who sends.
    pub source: SmolStr,
    /// To whom.
    pub destination: SmolStr,
    /// The sender's version.
    pub sdk_version: SmolStr,
    /// `Capability.function`.
    pub operation_id: SmolStr,
    /// Where the data is.
    pub data_handler: DataHandler,
    /// Whether the body is an error's text.
    pub has_error: bool,
}

impl RequestHead {
    /// Checks the headers of a request or reply.
    ///
    /// # Errors
    /// The first that is missing or malformed, in the order of the SDK's model.
    pub fn read(headers: &Headers) -> Result<Self, HeadFault> {
        check_count(headers)?;
        let message_id = id(headers, MESSAGE_ID)?;
        let campaign_id = id(headers, CAMPAIGN_ID)?;
        let request_id = id(headers, REQUEST_ID)?;
        let source = checked(headers, SOURCE, is_name)?;
        let destination = checked(headers, DESTINATION, is_name)?;
        checked(headers, CREATED_AT, is_time)?;
        Ok(RequestHead {
            message_id,
            campaign_id,
            request_id,
            source,
            destination,
            sdk_version: checked(headers, SDK_VERSION, is_version)?,
            operation_id: checked(headers, OPERATION_ID, |_| true)?,
            data_handler: data_handler(headers)?,
            has_error: has_error(headers)?,
        })
    }
}

/// The headers of an event, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventHead {
    /// Unique for each message.
    pub message_id: SmolStr,
    /// Who has published it.
    pub source: SmolStr,
    /// Its capability.
    pub capability: SmolStr,
    /// Its name.
    pub event: SmolStr,
    /// Where the data is.
    pub data_handler: DataHandler,
}

impl EventHead {
    /// Checks the headers of an event.
    ///
    /// # Errors
    /// The first that is missing or malformed.
    pub fn read(headers: &Headers) -> Result<Self, HeadFault> {
        check_count(headers)?;
        let message_id = id(headers, MESSAGE_ID)?;
        let source = checked(headers, SOURCE, is_name)?;
        checked(headers, CREATED_AT, is_time)?;
        checked(headers, SDK_VERSION, is_version)?;
        Ok(EventHead {
            message_id,
            source,
            data_handler: data_handler(headers)?,
            capability: checked(headers, CAPABILITY_NAME, is_word)?,
            event: checked(headers, EVENT_NAME, is_word)?,
        })
    }
}

/// What a lifecycle message says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lifecycle {
    /// The service has started.
    Startup,
    /// The service ends.
    Shutdown,
    /// The service lives.
    Polling,
    /// Functions may be called again.
    FunctionsAllowed,
    /// Functions may not be called for now.
    FunctionsBlocked,
}

impl Lifecycle {
    /// As it stands in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Startup => "LCT_STARTUP",
            Lifecycle::Shutdown => "LCT_SHUTDOWN",
            Lifecycle::Polling => "LCT_POLLING",
            Lifecycle::FunctionsAllowed => "LCT_FUNCTIONS_ALLOWED",
            Lifecycle::FunctionsBlocked => "LCT_FUNCTIONS_BLOCKED",
        }
    }

    /// The value of that name.
    pub fn parse(text: &str) -> Option<Self> {
        const ALL: [Lifecycle; 5] = [
            Lifecycle::Startup,
            Lifecycle::Shutdown,
            Lifecycle::Polling,
            Lifecycle::FunctionsAllowed,
            Lifecycle::FunctionsBlocked,
        ];
        ALL.into_iter().find(|kind| kind.as_str() == text)
    }

    /// Checks the headers of a lifecycle message; gives who sent it and what it says.
    ///
    /// # Errors
    /// The first that is missing or malformed.
    pub fn read(headers: &Headers) -> Result<(SmolStr, Lifecycle), HeadFault> {
        check_count(headers)?;
        id(headers, MESSAGE_ID)?;
        let source = checked(headers, SOURCE, is_name)?;
        let kind = checked(headers, LIFECYCLE_TYPE, |text| {
            Lifecycle::parse(text).is_some()
        })?;
        let kind = Lifecycle::parse(&kind).ok_or(HeadFault::Missing(LIFECYCLE_TYPE))?;
        Ok((source, kind))
    }
}

fn check_count(headers: &Headers) -> Result<(), HeadFault> {
    match headers.len() > Headers::COUNT_MAX {
        true => Err(HeadFault::TooMany),
        false => Ok(()),
    }
}

fn checked(
    headers: &Headers,
    name: &'static str,
    is_good: impl Fn(&str) -> bool,
) -> Result<SmolStr, HeadFault> {
    let value = headers.get(name).ok_or(HeadFault::Missing(name))?;
    match is_good(value) {
        true => Ok(value.into()),
        false => Err(malformed(name, value)),
    }
}

fn malformed(name: &'static str, value: &str) -> HeadFault {
    /// More of a bad value helps nobody.
    const SHOWN_MAX: usize = 80;
    HeadFault::Malformed {
        name,
        value: value.chars().take(SHOWN_MAX).collect(),
    }
}

/// An id as the SDK writes it anew, whatever form it came in.
fn id(headers: &Headers, name: &'static str) -> Result<SmolStr, HeadFault> {
    let text = headers.get(name).ok_or(HeadFault::Missing(name))?;
    match Uuid::parse_str(text) {
        Ok(id) => Ok(written(id)),
        Err(_) => Err(malformed(name, text)),
    }
}

fn written(id: Uuid) -> SmolStr {
    let mut text = Uuid::encode_buffer();
    SmolStr::new(id.hyphenated().encode_lower(&mut text))
}

fn data_handler(headers: &Headers) -> Result<DataHandler, HeadFault> {
    match headers.get(DATA_HANDLER) {
        None | Some("MESSAGE") => Ok(DataHandler::Message),
        Some("MINIO") => Ok(DataHandler::Minio),
        Some(other) => Err(malformed(DATA_HANDLER, other)),
    }
}

/// Truth values as pydantic reads them from texts.
fn has_error(headers: &Headers) -> Result<bool, HeadFault> {
    let Some(text) = headers.get(HAS_ERROR) else {
        return Ok(false);
    };
    match text.to_ascii_lowercase().as_str() {
        "true" | "t" | "1" | "yes" | "y" | "on" => Ok(true),
        "false" | "f" | "0" | "no" | "n" | "off" => Ok(false),
        _ => Err(malformed(HAS_ERROR, text)),
    }
}

/// `^[a-z0-9][-a-z0-9.]*[-a-z0-9]$`
fn is_name(text: &str) -> bool {
    let is_inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    match text.as_bytes() {
        [first, middle @ .., last] => {
            *first != b'-'
                && is_inner(*first)
                && middle.iter().all(|b| is_inner(*b) || *b == b'.')
                && is_inner(*last)
        }
        _ => false,
    }
}

/// `^\d+\.\d+\.\d+$`, and no part longer than [`VERSION_DIGITS_MAX`]: services of the SDK stop for good at one of
/// thousands of digits.
fn is_version(text: &str) -> bool {
    let mut parts = 0;
    let all_digits = text.split('.').all(|part| {
        parts += 1;
        (1..=VERSION_DIGITS_MAX).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit())
    });
    all_digits && parts == 3
}

/// `^[a-zA-Z0-9]\w*$`
fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// A point in time with its offset, or seconds since 1970, as pydantic takes them.
fn is_time(text: &str) -> bool {
    text.parse::<Timestamp>().is_ok() || text.parse::<f64>().is_ok_and(f64::is_finite)
}

/// Whether a service of one version takes messages of another: equal major, and equal minor while major
/// is 0.
pub fn is_compatible(ours: &str, theirs: &str) -> bool {
    let parts = |text: &str| -> Option<(u64, u64)> {
        let mut parts = text.split('.').map(|part| part.parse().ok());
        Some((parts.next()??, parts.next()??))
    };
    match (parts(ours), parts(theirs)) {
        (Some((0, ours)), Some((0, theirs))) => ours == theirs,
        (Some((ours, _)), Some((theirs, _))) => ours == theirs,
        _ => false,
    }
}

/// A fresh id.
pub fn fresh_id() -> SmolStr {
    written(Uuid::new_v4())
}

/// The time as the SDK writes it.
pub fn now() -> SmolStr {
    let now = jiff::Timestamp::now();
    let seconds = now.strftime("%Y-%m-%dT%H:%M:%S%.6f");
    format_smolstr!("{seconds}+00:00")
}

/// The headers of a reply of our own to a request, in the SDK's order.
pub fn reply_headers(to: &RequestHead, version: &str, has_error: bool) -> Headers {
    let mut headers = Headers::with_capacity(10);
    headers.push(MESSAGE_ID, fresh_id());
    headers.push(CAMPAIGN_ID, to.campaign_id.clone());
    headers.push(REQUEST_ID, to.request_id.clone());
    headers.push(SOURCE, to.destination.clone());
    headers.push(DESTINATION, to.source.clone());
    headers.push(CREATED_AT, now());
    headers.push(SDK_VERSION, version);
    headers.push(OPERATION_ID, to.operation_id.clone());
    headers.push(DATA_HANDLER, DataHandler::Message.as_str());
    headers.push(HAS_ERROR, if has_error { "true" } else { "false" });
    headers
}

/// A caller's headers as a target gets them: another source, destination and operation, fresh ids, and
/// everything else passed on.
pub fn forwarded_headers(
    from: &Headers,
    caller: &Identity,
    to: &Identity,
    operation_id: &Arc<str>,
    request_id: &SmolStr,
) -> Headers {
    let mut headers = from.clone();
    headers.set(MESSAGE_ID, fresh_id());
    headers.set(REQUEST_ID, request_id.clone());
    headers.set(SOURCE, caller.as_str());
    headers.set(DESTINATION, to.as_str());
    headers.set(CREATED_AT, now());
    headers.set(OPERATION_ID, Arc::clone(operation_id));
    headers
}

/// A target's reply as the caller gets it.
pub fn relayed_reply_headers(from: &Headers, to: &RequestHead) -> Headers {
    let mut headers = from.clone();
    headers.set(MESSAGE_ID, fresh_id());
    headers.set(CAMPAIGN_ID, to.campaign_id.clone());
    headers.set(REQUEST_ID, to.request_id.clone());
    headers.set(SOURCE, to.destination.clone());
    headers.set(DESTINATION, to.source.clone());
    headers.set(OPERATION_ID, to.operation_id.clone());
    headers
}

/// The headers of a request of our own, in the SDK's order.
pub fn request_headers(
    from: &Identity,
    to: &str,
    operation_id: &str,
    request_id: &SmolStr,
    version: &str,
) -> Headers {
    let mut headers = Headers::with_capacity(10);
    headers.push(MESSAGE_ID, fresh_id());
    headers.push(CAMPAIGN_ID, fresh_id());
    headers.push(REQUEST_ID, request_id.clone());
    headers.push(SOURCE, from.as_str());
    headers.push(DESTINATION, to);
    headers.push(CREATED_AT, now());
    headers.push(SDK_VERSION, version);
    headers.push(OPERATION_ID, operation_id);
    headers.push(DATA_HANDLER, DataHandler::Message.as_str());
    headers.push(HAS_ERROR, "false");
    headers
}

/// The headers of an event of our own, in the SDK's order.
pub fn event_headers(from: &Identity, capability: &str, event: &str, version: &str) -> Headers {
    let mut headers = Headers::with_capacity(7);
    headers.push(MESSAGE_ID, fresh_id());
    headers.push(SOURCE, from.as_str());
    headers.push(CREATED_AT, now());
    headers.push(SDK_VERSION, version);
    headers.push(DATA_HANDLER, DataHandler::Message.as_str());
    headers.push(CAPABILITY_NAME, capability);
    headers.push(EVENT_NAME, event);
    headers
}

/// The headers of a lifecycle message of our own, in the SDK's order.
pub fn lifecycle_headers(from: &Identity, kind: Lifecycle, version: &str) -> Headers {
    let mut headers = Headers::with_capacity(5);
    headers.push(MESSAGE_ID, fresh_id());
    headers.push(SOURCE, from.as_str());
    headers.push(CREATED_AT, now());
    headers.push(SDK_VERSION, version);
    headers.push(LIFECYCLE_TYPE, kind.as_str());
    headers
}

#[cfg(test)]
mod tests;
