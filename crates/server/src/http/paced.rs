//! A client's socket with limits on slowness: on the head of a request that arrives bit by bit, and on
//! an answer that nobody reads. Connections that are merely idle are not its concern.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// Between two requests.
const IDLE: u8 = 0;
/// The head of a request has begun to arrive.
const HEAD: u8 = 1;
/// The head is complete.
const BUSY: u8 = 2;

/// What a connection is doing, shared between its socket and the service that answers.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase(Arc<AtomicU8>);

impl Phase {
    /// The head of a request is complete.
    pub(super) fn begin(&self) {
        self.0.store(BUSY, Ordering::Relaxed);
    }

    /// The request is answered.
    pub(super) fn end(&self) {
        self.0.store(IDLE, Ordering::Relaxed);
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

/// A socket that fails with `TimedOut` when its client is too slow.
pub(super) struct Paced<S> {
    socket: S,
    phase: Phase,
    pace: Pace,
    head: Option<Pin<Box<Sleep>>>,
    answer: Option<Pin<Box<Sleep>>>,
}

impl<S> Paced<S> {
    pub(super) fn new(socket: S, phase: Phase, pace: Pace) -> Self {
        Paced {
            socket,
            phase,
            pace,
            head: None,
            answer: None,
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

impl<S: AsyncRead + Unpin> AsyncRead for Paced<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.socket).poll_read(cx, buffer);
        let phase = &this.phase.0;
        if read.is_ready() && buffer.filled().len() > before {
            // Anything else than idle stays as it is.
            let _ = phase.compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed);
        }
        if phase.load(Ordering::Relaxed) != HEAD {
            this.head = None;
        } else if is_over(&mut this.head, this.pace.head, cx) {
            return too_slow("the head of its request is not complete");
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> Paced<S> {
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

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.written(cx, poll)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let poll = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.written(cx, poll)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_flush(cx))?;
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const PACE: Pace = Pace {
        head: Duration::from_secs(10),
        answer: Duration::from_secs(30),
    };

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_in_is_cut_and_an_idle_connection_is_not() {
        let (mut client, server) = duplex(64);
        let phase = Phase::default();
        let mut paced = Paced::new(server, phase.clone(), PACE);
        let mut buffer = [0; 16];
        let idle = tokio::time::timeout(Duration::from_secs(60), paced.read(&mut buffer));
        assert!(idle.await.is_err(), "an idle connection was cut");
        client.write_all(b"GET").await.unwrap();
        assert_eq!(paced.read(&mut buffer).await.unwrap(), 3);
        let cut = paced.read(&mut buffer).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
        phase.begin();
        let busy = tokio::time::timeout(Duration::from_secs(60), paced.read(&mut buffer));
        assert!(
            busy.await.is_err(),
            "a request that is being answered was cut"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_reads_is_given_up() {
        let (_client, server) = duplex(4);
        let mut paced = Paced::new(server, Phase::default(), PACE);
        let cut = paced.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::TimedOut);
    }
}
