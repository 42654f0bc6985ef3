//! A client's socket with limits on slowness: on the head of a request that arrives bit by bit, and on
//! an answer that nobody reads. Connections that are merely idle are not its concern.
//!
//! It also tells what the HTTP library would tell in bare status lines or not at all: whatever is wrong
//! with a head is answered by a problem document. And it keeps the end of what a client sends back until
//! its request is answered: a client may close its sending side and wait for the answer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

use super::phase::{Phase, Step};
use crate::problem::Problem;

/// A client whose sending side is closed is left alone for so long: most answers are there by then.
const LEFT_ALONE: Duration = Duration::from_millis(500);
/// Then it is looked so often whether it is gone.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// A client that is gone can only be told from one that waits by sending something: an interim answer,
/// which every client of HTTP/1.1 passes over.
const INTERIM: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";
/// So many looks between two of them.
const LOOKS_BETWEEN: u32 = 20;
/// What a client may still send while its connection ends, so that it gets to read why.
const REST_BYTES_MAX: usize = 1 << 20;
/// How long that may take.
const REST_MAX: Duration = Duration::from_secs(1);

/// A stream of bytes whose other end may be gone.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin {
    /// Whether something that was sent was refused by the other end.
    fn is_gone(&self) -> bool;
}

impl Socket for TcpStream {
    fn is_gone(&self) -> bool {
        !matches!(self.take_error(), Ok(None))
    }
}

/// How slow a client may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// For the head of a request, from its first byte.
    pub(super) head: Duration,
    /// Between two reads of the answer.
    pub(super) answer: Duration,
}

/// Makes the whole answer of a problem that is found before there is a request.
pub(super) type Render = Box<dyn Fn(Problem) -> Vec<u8> + Send>;

/// A socket that fails with `TimedOut` when its client is too slow.
pub(super) struct Paced<S> {
    socket: S,
    phase: Phase,
    pace: Pace,
    render: Render,
    head: Option<Pin<Box<Sleep>>>,
    answer: Option<Pin<Box<Sleep>>>,
    /// What is written in the place of the library's own answer, and how much of it is.
    instead: Option<(Vec<u8>, usize)>,
    /// A problem document was written: the connection ends.
    has_told: bool,
    /// The client has closed its sending side.
    has_ended: bool,
    look: Option<Pin<Box<Sleep>>>,
    looks: u32,
    /// What came while the connection ended, and until when it is waited for more.
    rest: usize,
    rest_until: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(super) fn new(socket: S, phase: Phase, pace: Pace, render: Render) -> Self {
        Paced {
            socket,
            phase,
            pace,
            render,
            head: None,
            answer: None,
            instead: None,
            has_told: false,
            has_ended: false,
            look: None,
            looks: 0,
            rest: 0,
            rest_until: None,
        }
    }
}

/// Whether the limit has passed; it begins to run with the first call.
fn is_over(slot: &mut Option<Pin<Box<Sleep>>>, limit: Duration, cx: &mut Context<'_>) -> bool {
    let sleep = slot.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
    sleep.as_mut().poll(cx).is_ready()
}

fn too_slow<T>(what: &str) -> Poll<io::Result<T>> {
    let message = format!("the client is too slow: {what}");
    Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
}

fn slow_head(limit: Duration) -> Problem {
    Problem::new(
        "request_timeout",
        format!("the head of the request was not complete within {limit:?}"),
        "send it faster, or raise server.header_timeout",
    )
}

fn broken_head() -> Problem {
    Problem::bad_request(
        "the connection's sending side was closed before the head of the request was complete",
        "end the head with an empty line",
    )
}

/// What the library's own answer stands for; `None`: these bytes are none.
fn of_library(bytes: &[u8]) -> Option<Problem> {
    let text = std::str::from_utf8(bytes).ok()?;
    let rest = text.strip_prefix("HTTP/1.1 4")?;
    // Every answer of a route has an id.
    if !text.ends_with("\r\n\r\n") || text.contains("x-correlation-id") {
        return None;
    }
    Some(match rest.get(..2)? {
        "31" | "14" => Problem::new(
            "head_too_large",
            "the head of the request is too large: its address, its headers, or their number",
            "send less than 64 KiB in at most 64 headers; what is long belongs into the body",
        ),
        _ => Problem::bad_request(
            "this is no HTTP/1.1 request: its first line or a header is malformed",
            "send METHOD PATH HTTP/1.1, headers as Name: value without control characters, and an empty line; \
             HTTP/2 is not spoken here, and TLS only with [server.tls]",
        ),
    })
}

impl<S: Socket> Paced<S> {
    /// Writes a problem document where nothing else is being written. It fits the buffer of the socket, or
    /// nobody reads.
    fn tell(&mut self, cx: &mut Context<'_>, problem: Problem) {
        let bytes = (self.render)(problem);
        let _ = Pin::new(&mut self.socket).poll_write(cx, &bytes);
        self.has_told = true;
    }

    /// Keeps the end of what the client sends back while it waits for its answer. Ready: it is gone.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.phase.step() != Step::Work {
            // Writing finds out whether it is gone.
            return Poll::Pending;
        }
        let look = self
            .look
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(LEFT_ALONE)));
        loop {
            ready!(look.as_mut().poll(cx));
            // HTTP/1.0 has no interim answers. Proxies that speak it to us close behind a client that left, and
            // nobody else closes only the sending side.
            if self.socket.is_gone() || !self.phase.is_modern() {
                return Poll::Ready(Ok(()));
            }
            if self.looks.is_multiple_of(LOOKS_BETWEEN) {
                match Pin::new(&mut self.socket).poll_write(cx, INTERIM) {
                    Poll::Ready(Ok(count)) if count == INTERIM.len() => {}
                    _ => return Poll::Ready(Ok(())),
                }
            }
            self.looks = self.looks.wrapping_add(1);
            look.as_mut().reset(Instant::now() + LOOK_EVERY);
        }
    }

    /// Writes a problem document in the place of the library's own answer. `None`: these bytes are none.
    fn poll_instead(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Option<Poll<io::Result<usize>>> {
        if self.instead.is_none() {
            if self.phase.step() > Step::Head {
                return None;
            }
            let document = (self.render)(of_library(bytes)?);
            self.instead = Some((document, 0));
        }
        let (document, written) = self.instead.as_mut()?;
        while *written < document.len() {
            match Pin::new(&mut self.socket).poll_write(cx, &document[*written..]) {
                Poll::Ready(Ok(0)) => {
                    return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into())));
                }
                Poll::Ready(Ok(count)) => *written += count,
                other => return Some(other),
            }
        }
        self.instead = None;
        self.has_told = true;
        Some(Poll::Ready(Ok(bytes.len())))
    }

    /// Reads what is still on its way: an end with unread bytes would take the document from the client.
    fn poll_rest(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut space = [0; 4096];
        loop {
            if self.rest > REST_BYTES_MAX || is_over(&mut self.rest_until, REST_MAX, cx) {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.socket).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.rest += buffer.filled().len(),
                _ => return Poll::Ready(()),
            }
        }
    }
}

impl<S: Socket> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let mut read = Poll::Ready(Ok(()));
        if !this.has_ended {
            read = Pin::new(&mut this.socket).poll_read(cx, buffer);
            let has_more = buffer.filled().len() > before;
            let is_good = matches!(read, Poll::Ready(Ok(())));
            this.has_ended = is_good && !has_more && buffer.remaining() > 0;
            // Some clients send an empty line behind a body.
            let is_blank = |byte: &u8| matches!(byte, b'\r' | b'\n');
            if !buffer.filled()[before..].iter().all(is_blank) {
                // Anything else than idle stays as it is.
                this.phase.advance(Step::Idle, Step::Head);
            }
        }
        let step = this.phase.step();
        if step != Step::Head {
            this.head = None;
        } else if this.has_ended {
            this.tell(cx, broken_head());
        } else if is_over(&mut this.head, this.pace.head, cx) {
            this.tell(cx, slow_head(this.pace.head));
            return too_slow("the head of its request is not complete");
        }
        match this.has_ended && step >= Step::Work {
            true => this.poll_waiting(cx),
            false => read,
        }
    }
}

impl<S: Socket> Paced<S> {
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match poll {
            Poll::Ready(done) => {
                self.answer = None;
                Poll::Ready(done)
            }
            Poll::Pending if is_over(&mut self.answer, self.pace.answer, cx) => {
                too_slow("it does not read its answer")
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Socket> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let poll = match this.poll_instead(cx, bytes) {
            Some(poll) => poll,
            None => Pin::new(&mut this.socket).poll_write(cx, bytes),
        };
        this.written(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let first = bytes.iter().find(|slice| !slice.is_empty());
        let poll = match first.and_then(|first| this.poll_instead(cx, first)) {
            Some(poll) => poll,
            None => Pin::new(&mut this.socket).poll_write_vectored(cx, bytes),
        };
        this.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        // An encrypted socket may keep back what it was given.
        let flushed = Pin::new(&mut this.socket).poll_flush(cx);
        ready!(this.written(cx, flushed))?;
        // All that was handed over is written: the next request may come, or the end.
        if self.phase.advance(Step::Answered, Step::Idle) && self.has_ended {
            cx.waker().wake_by_ref();
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.rest_until.is_none() {
            let ended = Pin::new(&mut this.socket).poll_shutdown(cx);
            ready!(this.written(cx, ended))?;
        }
        if this.has_told && !this.has_ended {
            ready!(this.poll_rest(cx));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Version;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;

    impl Socket for DuplexStream {
        fn is_gone(&self) -> bool {
            false
        }
    }

    fn paced(socket: DuplexStream, phase: &Phase) -> Paced<DuplexStream> {
        let render = |problem: Problem| problem.code().as_bytes().to_vec();
        Paced::new(socket, phase.clone(), PACE, Box::new(render))
    }

    const PACE: Pace = Pace {
        head: Duration::from_secs(10),
        answer: Duration::from_secs(30),
    };

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_in_is_cut_and_an_idle_connection_is_not() {
        let (mut client, server) = duplex(64);
        let phase = Phase::default();
        let mut paced = paced(server, &phase);
        let mut buffer = [0; 16];
        let idle = tokio::time::timeout(Duration::from_secs(60), paced.read(&mut buffer));
        assert!(idle.await.is_err(), "an idle connection was cut");
        client.write_all(b"GET").await.unwrap();
        assert_eq!(paced.read(&mut buffer).await.unwrap(), 3);
        let cut = paced.read(&mut buffer).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
        let mut told = [0; 15];
        client.read_exact(&mut told).await.unwrap();
        assert_eq!(&told, b"request_timeout");
        phase.begin(Version::HTTP_11, false);
        let busy = tokio::time::timeout(Duration::from_secs(60), paced.read(&mut buffer));
        assert!(
            busy.await.is_err(),
            "a request that is being answered was cut"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_given_up() {
        let (_client, server) = duplex(4);
        let mut paced = paced(server, &Phase::default());
        let cut = paced.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn bare_answers_of_the_library_and_nothing_else_are_replaced() {
        let table = [
            (
                "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n",
                Some("bad_request"),
            ),
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n",
                Some("head_too_large"),
            ),
            ("HTTP/1.1 414 URI Too Long\r\n\r\n", Some("head_too_large")),
            (
                "HTTP/1.1 404 Not Found\r\nx-correlation-id: 1\r\n\r\n",
                None,
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\n", None),
            ("HTTP/1.1 4", None),
            ("", None),
            ("{\"rows\": []}", None),
        ];
        for (bytes, code) in table {
            let problem = of_library(bytes.as_bytes());
            assert_eq!(problem.map(|problem| problem.code()), code, "{bytes}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_what_a_client_sends_is_kept_back_until_it_is_answered() {
        let (mut client, server) = duplex(1024);
        let phase = Phase::default();
        let mut paced = paced(server, &phase);
        client.write_all(b"GET").await.unwrap();
        client.shutdown().await.unwrap();
        let mut buffer = [0; 16];
        assert_eq!(paced.read(&mut buffer).await.unwrap(), 3);
        phase.begin(Version::HTTP_11, false);
        let held = tokio::time::timeout(Duration::from_secs(7), paced.read(&mut buffer));
        assert!(held.await.is_err(), "the work was cut");
        phase.answer();
        phase.advance(Step::Answer, Step::Answered);
        paced.write_all(b"answer").await.unwrap();
        paced.flush().await.unwrap();
        assert_eq!(paced.read(&mut buffer).await.unwrap(), 0);
        drop(paced);
        let mut told = String::new();
        client.read_to_string(&mut told).await.unwrap();
        let interim = std::str::from_utf8(INTERIM).unwrap();
        // At 0.5 s and 5 s later.
        assert_eq!(told, format!("{interim}{interim}answer"));
    }
}
