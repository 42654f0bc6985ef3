//! Answers as lines (NDJSON): a header, a line a row, and always a last line that says how it ended. A
//! reader that does not find one knows that rows are missing.
//!
//! The rows are written while the connection asks for more, in the connection's own task: a client that
//! does not read holds two batches, and one that leaves drops the stream with its lease.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::poll;
use hyper::body::{Body, Frame};
use mainstay_engine::CorrelationId;
use mainstay_sql::{Answer, RowStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::answer::{Writer, told};
use crate::problem::Problem;

/// The media type of lines.
const LINES: &str = "application/x-ndjson";
/// What is handed to the socket at once, where rows come faster than it takes them.
const CHUNK_BYTES: usize = 64 << 10;

/// Whether a client asks for lines, and does not like a whole document better.
pub(super) fn wanted(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    let ranges = accepted.filter_map(|value| value.to_str().ok());
    let (mut lines, mut whole) = (0, 0);
    for range in ranges.flat_map(|value| value.split(',')) {
        let (name, weight) = weighed(range);
        if name.eq_ignore_ascii_case(LINES) {
            lines = lines.max(weight);
        } else if name.eq_ignore_ascii_case("application/json") {
            whole = whole.max(weight);
        }
    }
    lines > 0 && lines >= whole
}

/// A media range with its weight in thousandths.
fn weighed(range: &str) -> (&str, u32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default();
    let weight = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let weight = weight.map_or(Some(1.0), |weight| weight.parse::<f64>().ok());
    (
        name,
        (weight.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u32,
    )
}

/// An answer that is there in whole.
pub(super) fn whole(answer: &Answer) -> Response {
    let mut writer = Writer::unbounded();
    writer.header_line(&answer.columns);
    writer.row_lines(&answer.columns, &answer.rows);
    let affected = answer.affected.filter(|_| answer.columns.is_empty());
    writer.done_line(answer.rows.len() as u64, affected, &answer.meta);
    told(
        response(axum::body::Body::from(writer.take())),
        &answer.meta,
    )
}

/// An answer that is still coming.
pub(super) fn streamed(stream: RowStream, id: CorrelationId) -> Response {
    let (chunks, written) = mpsc::channel(1);
    let lines = Lines {
        writing: Some(Box::pin(write(stream, id, chunks))),
        written,
    };
    response(axum::body::Body::new(lines))
}

fn response(body: axum::body::Body) -> Response {
    let mut response = Response::new(body);
    let kind = HeaderValue::from_static(LINES);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// Writes a stream down. The next batch is asked for before the present one is written, so that the
/// driver reads it meanwhile.
async fn write(mut stream: RowStream, id: CorrelationId, chunks: mpsc::Sender<Bytes>) {
    let begun = Instant::now();
    let mut writer = Writer::unbounded();
    let columns = stream.columns.clone();
    writer.header_line(&columns);
    let mut rows = 0_u64;
    let mut batch = stream.next().await;
    loop {
        match batch {
            Ok(Some(part)) => {
                let mut next = pin!(stream.next());
                let ready = poll!(next.as_mut());
                rows += part.rows.len() as u64;
                writer.row_lines(&columns, &part.rows);
                drop(part);
                let is_full = writer.len() >= CHUNK_BYTES;
                if (is_full || ready.is_pending()) && send(&mut writer, &chunks).await.is_err() {
                    return;
                }
                batch = match ready {
                    Poll::Ready(next) => next,
                    Poll::Pending => next.await,
                };
            }
            Ok(None) => {
                let mut meta = stream.meta.clone();
                meta.elapsed += begun.elapsed();
                writer.done_line(rows, None, &meta);
                break;
            }
            Err(error) => {
                tracing::debug!(correlation_id = %id, %error, rows, "a stream broke");
                writer.problem_line(&Problem::from(error).of_stream().member(id));
                break;
            }
        }
    }
    // The connection goes on without what the stream held.
    drop(stream);
    let _ = send(&mut writer, &chunks).await;
}

async fn send(
    writer: &mut Writer,
    chunks: &mpsc::Sender<Bytes>,
) -> Result<(), mpsc::error::SendError<Bytes>> {
    chunks.send(Bytes::from(writer.take())).await
}

/// A body whose writing goes on while it is asked for frames.
struct Lines {
    /// `None`: all is written.
    writing: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    written: mpsc::Receiver<Bytes>,
}

impl Body for Lines {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        loop {
            // Not `poll_recv`, which says that there is nothing when the task has had its share of time.
            if let Ok(chunk) = this.written.try_recv() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            let Some(writing) = &mut this.writing else {
                return Poll::Ready(None);
            };
            if writing.as_mut().poll(cx).is_ready() {
                this.writing = None;
                continue;
            }
            // It goes on when it is woken; what it has written before that goes out now.
            return match this.written.try_recv() {
                Ok(chunk) => Poll::Ready(Some(Ok(Frame::data(chunk)))),
                Err(_) => Poll::Pending,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use http_body_util::BodyExt;
    use mainstay_sql::stream::{Batch, Batches};
    use mainstay_sql::{BoxFuture, Column, ColumnType, Meta, SqlError, Value};

    use super::*;

    /// Batches that are there at once, like those of a driver that is faster than its reader.
    struct Ready(u64);

    impl Batches for Ready {
        fn next(&mut self) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
            let batch = (self.0 > 0).then(|| Batch {
                rows: vec![vec![Value::Text("x".repeat(100_000))]],
            });
            self.0 = self.0.saturating_sub(1);
            Box::pin(std::future::ready(Ok(batch)))
        }
    }

    /// In a task of a runtime, where each has its share of time.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_stream_whose_rows_are_always_there_comes_to_its_end() {
        const BATCHES: u64 = 2000;
        let column = Column {
            name: "a".into(),
            column_type: ColumnType::Text,
            native: "text".into(),
        };
        let columns: Arc<[Column]> = Arc::new([column]);
        let stream = RowStream::new(columns, Meta::default(), Box::new(Ready(BATCHES)));
        let body = streamed(
            stream,
            CorrelationId::draw(&mainstay_engine::Chance::seeded(1)),
        )
        .into_body();
        let tasks = mainstay_engine::tasks::Tasks::new();
        let (read, all) = tokio::sync::oneshot::channel();
        tasks.spawn(async move {
            let _ = read.send(body.collect().await.unwrap().to_bytes());
        });
        let patience = Duration::from_secs(60);
        let all = tokio::time::timeout(patience, all).await.unwrap().unwrap();
        let lines = all.split(|byte| *byte == b'\n').count() as u64;
        // The header, the end, and nothing after it.
        assert_eq!(lines, BATCHES + 3);
    }

    #[test]
    fn lines_are_for_those_who_ask_for_them() {
        let table = [
            ("application/x-ndjson", true),
            ("application/X-NDJSON; charset=utf-8", true),
            ("application/json, application/x-ndjson", true),
            ("application/x-ndjson;q=0.5, application/json", false),
            ("application/json;q=0.2, application/x-ndjson;q=0.9", true),
            ("application/x-ndjson;q=0", false),
            ("application/x-ndjson;q=many", false),
            ("application/json", false),
            ("*/*", false),
            ("", false),
        ];
        for (accept, expected) in table {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT, accept.parse().unwrap());
            assert_eq!(wanted(&headers), expected, "{accept}");
        }
        assert!(!wanted(&HeaderMap::new()));
    }
}
