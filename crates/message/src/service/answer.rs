//! Replies as callers get them: a target's under the fronted name, or an error's text.

use bytes::Bytes;
use smol_str::SmolStr;

use crate::broker::Headers;
use crate::envelope::{TEXT, relayed_reply_headers, reply_headers};
use crate::pending::Reply;
use crate::request::{Request, responses_of};
use crate::store::StoredMessage;

use super::attempt::ErrorReply;
use super::shared::Shared;

/// A reply to a caller.
pub(super) struct Answer {
    headers: Headers,
    content_type: Option<SmolStr>,
    body: Bytes,
}

impl Shared {
    /// A reply that is nothing but an error's text.
    pub(super) fn error(&self, request: &Request, text: String) -> Answer {
        Answer {
            headers: reply_headers(&request.head, &self.version(), true),
            content_type: Some(TEXT.into()),
            body: text.into(),
        }
    }
}

/// What a target said, and by which name it knows the operation.
pub(super) struct Told<'a> {
    has_error: bool,
    headers: &'a Headers,
    content_type: &'a Option<SmolStr>,
    body: &'a Bytes,
    operation: &'a str,
}

impl<'a> Told<'a> {
    pub(super) fn reply(reply: &'a Reply, operation: &'a str) -> Self {
        Told {
            has_error: reply.head.has_error,
            headers: &reply.delivery.headers,
            content_type: &reply.delivery.content_type,
            body: &reply.delivery.body,
            operation,
        }
    }

    pub(super) fn error(reply: &'a ErrorReply) -> Self {
        Told {
            has_error: true,
            headers: &reply.headers,
            content_type: &reply.content_type,
            body: &reply.body,
            operation: &reply.operation,
        }
    }
}

/// A target's reply as its caller gets it.
pub(super) fn relayed(request: &Request, told: Told<'_>) -> Answer {
    let fronted = request.head.operation_id.as_str();
    // Texts of errors name the operation that was called.
    let body = match told.has_error && told.operation != fronted {
        true => String::from_utf8_lossy(told.body)
            .replace(told.operation, fronted)
            .into(),
        false => told.body.clone(),
    };
    Answer {
        headers: relayed_reply_headers(told.headers, &request.head),
        content_type: told.content_type.clone(),
        body,
    }
}

/// An answer as it is published. `None`: its caller's name is none that a topic can be made of.
pub(super) fn stored(request: &Request, answer: Answer) -> Option<StoredMessage> {
    Some(StoredMessage {
        topic: responses_of(&request.head.source)?.as_str().into(),
        content_type: answer.content_type,
        headers: answer.headers,
        body: answer.body,
    })
}
