//! One request and its answer, on one connection.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;

use crate::connect::Stream;

/// What is read of an answer that tells of an error.
const COMPLAINT_BYTES_MAX: usize = 64 << 10;
/// Room for a body is not taken on its word beyond this.
const ROOM_BYTES_MAX: usize = 1 << 20;

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: Option<String>,
    /// Whole if the status is a success, else its beginning.
    pub(crate) content: Bytes,
}

/// Why nothing came back.
pub(crate) enum Broken {
    TooLarge,
    Off(String),
}

impl From<hyper::Error> for Broken {
    fn from(error: hyper::Error) -> Self {
        // Its source says more, where there is one.
        let source = std::error::Error::source(&error);
        Broken::Off(match source {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        })
    }
}

/// Makes the request and reads the answer, of which a success has at most `length_max` bytes.
///
/// Nothing runs beside it: when it is dropped the connection is closed.
pub(crate) async fn exchange(
    stream: Box<dyn Stream>,
    request: Request<Full<Bytes>>,
    length_max: usize,
) -> Result<Answer, Broken> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut connection = pin!(connection);
    let mut talk = pin!(talk(sender, request, length_max));
    tokio::select! {
        biased;
        answer = &mut talk => answer,
        // The connection may be over while the answer is still being read; if there is none, it says why.
        ended = &mut connection => match (talk.await, ended) {
            (Err(Broken::Off(_)), Err(error)) => Err(error.into()),
            (answer, _) => answer,
        },
    }
}

async fn talk(
    mut sender: SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
    length_max: usize,
) -> Result<Answer, Broken> {
    let is_read = request.method() == Method::GET;
    let response = sender.send_request(request).await?;
    let status = response.status();
    let content_type = response.headers().get(CONTENT_TYPE).and_then(text);
    let content = match status.is_success() {
        true if is_read => whole(response, length_max).await?,
        true => Bytes::new(),
        false => beginning(response.into_body()).await,
    };
    Ok(Answer {
        status,
        content_type,
        content,
    })
}

fn text(value: &HeaderValue) -> Option<String> {
    Some(value.to_str().ok()?.to_owned())
}

async fn whole(response: Response<Incoming>, length_max: usize) -> Result<Bytes, Broken> {
    let is_chunked = is_chunked(response.headers());
    let mut body = response.into_body();
    let announced = body.size_hint().exact();
    if announced.is_none() && !is_chunked {
        // It would end wherever the connection does.
        return Err(Broken::Off("its answer has no length".to_owned()));
    }
    if announced.is_some_and(|length| length > length_max as u64) {
        return Err(Broken::TooLarge);
    }
    let room = announced.unwrap_or(0).min(ROOM_BYTES_MAX as u64);
    let mut content = BytesMut::with_capacity(room as usize);
    while let Some(frame) = body.frame().await {
        let Ok(part) = frame?.into_data() else {
            continue;
        };
        if content.len() + part.len() > length_max {
            return Err(Broken::TooLarge);
        }
        content.extend_from_slice(&part);
    }
    Ok(content.freeze())
}

fn is_chunked(headers: &HeaderMap) -> bool {
    let encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let mut encodings = encodings.filter_map(|value| value.to_str().ok());
    encodings.any(|value| value.to_ascii_lowercase().contains("chunked"))
}

/// As much as there is: it only says more of an error that is known.
async fn beginning(mut body: Incoming) -> Bytes {
    let mut content = BytesMut::new();
    while let Some(Ok(frame)) = body.frame().await {
        if let Ok(part) = frame.into_data() {
            content.extend_from_slice(&part);
        }
        if content.len() >= COMPLAINT_BYTES_MAX {
            break;
        }
    }
    content.freeze()
}
