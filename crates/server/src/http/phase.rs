//! What a connection is doing, shared between its socket and the service that answers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::task::{Context, Poll};

use axum::http::Version;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

/// A step of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Step {
    /// Between two requests.
    Idle,
    /// The head of a request has begun to arrive.
    Head,
    /// The head is complete, the body is on its way.
    Body,
    /// The request is there in whole and is being worked on.
    Work,
    /// The answer is being handed over.
    Answer,
    /// The answer is handed over, and may still be on its way to the socket.
    Answered,
}

const STEPS: [Step; 6] = [
    Step::Idle,
    Step::Head,
    Step::Body,
    Step::Work,
    Step::Answer,
    Step::Answered,
];

/// The step that a connection is at.
#[derive(Debug, Clone, Default)]
pub(super) struct Phase(Arc<State>);

#[derive(Debug, Default)]
struct State {
    step: AtomicU8,
    /// The client understands interim answers.
    is_modern: AtomicBool,
    /// Requests so far; wraps around.
    begun: AtomicU32,
    has_ended: AtomicBool,
}

impl Phase {
    pub(super) fn step(&self) -> Step {
        let step = usize::from(self.0.step.load(Ordering::Relaxed));
        STEPS.get(step).copied().unwrap_or(Step::Idle)
    }

    /// Whether the client understands interim answers.
    pub(super) fn is_modern(&self) -> bool {
        self.0.is_modern.load(Ordering::Relaxed)
    }

    /// Goes on, if that is where it stands.
    pub(super) fn advance(&self, from: Step, to: Step) -> bool {
        let (from, to) = (from as u8, to as u8);
        let step = &self.0.step;
        let done = step.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        done.is_ok()
    }

    /// The head of a request is complete.
    pub(super) fn begin(&self, version: Version, has_body: bool) {
        let is_modern = version == Version::HTTP_11;
        self.0.is_modern.store(is_modern, Ordering::Relaxed);
        let step = if has_body { Step::Body } else { Step::Work };
        self.0.step.store(step as u8, Ordering::Relaxed);
        self.0.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// How many requests have begun.
    pub(super) fn begun(&self) -> u32 {
        self.0.begun.load(Ordering::Relaxed)
    }

    /// The connection is over.
    pub(super) fn end(&self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.0.has_ended.load(Ordering::Relaxed)
    }

    /// Back to where nothing is asked for.
    #[cfg(test)]
    pub(super) fn rest(&self) {
        self.0.step.store(Step::Idle as u8, Ordering::Relaxed);
    }

    /// The answer is known.
    pub(super) fn answer(&self) {
        self.0.step.store(Step::Answer as u8, Ordering::Relaxed);
    }
}

/// A body that moves its connection one step on when it has ended or nobody wants the rest of it.
pub(super) struct Stepping<B> {
    body: B,
    phase: Phase,
    from: Step,
    to: Step,
}

impl<B> Stepping<B> {
    /// The body of a request.
    pub(super) fn request(body: B, phase: Phase) -> Self {
        Stepping {
            body,
            phase,
            from: Step::Body,
            to: Step::Work,
        }
    }

    /// The body of an answer.
    pub(super) fn answer(body: B, phase: Phase) -> Self {
        Stepping {
            body,
            phase,
            from: Step::Answer,
            to: Step::Answered,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Stepping<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        let has_ended = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(_)) => self.body.is_end_stream(),
            Poll::Pending => false,
        };
        if has_ended {
            self.phase.advance(self.from, self.to);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for Stepping<B> {
    fn drop(&mut self) {
        self.phase.advance(self.from, self.to);
    }
}
