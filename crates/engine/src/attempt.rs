//! One try on one endpoint: what the caller's closure gets, and the marks through which it reports back.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use smallvec::SmallVec;
use smol_str::SmolStr;
use tokio::time::Instant;

use crate::operation::CorrelationId;

/// The name of an endpoint within its source; its state survives a reload under it. Cheap to copy: a
/// name of up to 23 bytes is copied as it is, a longer one is shared.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct EndpointId(SmolStr);

impl EndpointId {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for EndpointId {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: AsRef<str>> From<T> for EndpointId {
    fn from(text: T) -> Self {
        EndpointId(SmolStr::new(text))
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for EndpointId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl fmt::Debug for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// What is shared between the shell and the work of one attempt: whether bytes have left, and the
/// endpoint's concurrency slot, which is given back when the last holder lets go.
pub struct Marks {
    handed_over: AtomicBool,
    /// The attempt's time is over.
    over: AtomicBool,
    /// Who is told of it: usually one task.
    listeners: Mutex<SmallVec<[Waker; 1]>>,
    /// Of the attempt around this one, where a source stands behind another source's endpoint.
    outer: Option<Arc<Marks>>,
    _slot: Option<Box<dyn std::any::Any + Send + Sync>>,
}

impl Marks {
    /// Fresh marks that keep `slot` until the last holder lets go.
    pub fn new(slot: Option<Box<dyn std::any::Any + Send + Sync>>) -> Arc<Self> {
        Self::within(None, slot)
    }

    /// Marks of an attempt within another one, which are set together.
    pub fn within(
        outer: Option<Arc<Marks>>,
        slot: Option<Box<dyn std::any::Any + Send + Sync>>,
    ) -> Arc<Self> {
        Arc::new(Marks {
            handed_over: AtomicBool::new(false),
            over: AtomicBool::new(false),
            listeners: Mutex::new(SmallVec::new()),
            outer,
            _slot: slot,
        })
    }

    /// Says that bytes have left.
    pub fn hand_over(&self) {
        self.handed_over.store(true, Ordering::Release);
        if let Some(outer) = &self.outer {
            outer.hand_over();
        }
    }

    /// Whether anything was handed to the back end.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over.load(Ordering::Acquire)
    }

    /// Says that the attempt's time is over.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
        let listeners = std::mem::take(&mut *self.listeners.lock());
        listeners.into_iter().for_each(Waker::wake);
    }

    fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        if !self.over.load(Ordering::Acquire) {
            let mut listeners = self.listeners.lock();
            if !listeners.iter().any(|it| it.will_wake(context.waker())) {
                listeners.push(context.waker().clone());
            }
        }
        // It may have been said before the lock was taken.
        match self.over.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks")
            .field("handed_over", &self.is_handed_over())
            .finish_non_exhaustive()
    }
}

/// One try on one endpoint, as the closure of a call gets it.
#[derive(Debug, Clone)]
pub struct Attempt<M = ()> {
    /// What stands behind the endpoint.
    pub member: M,
    /// Which endpoint it is.
    pub endpoint: EndpointId,
    /// 1 for the first attempt of the call.
    pub number: u32,
    /// When the attempt is cut; `None`: it is not.
    pub ends_at: Option<Instant>,
    /// The call's id.
    pub correlation_id: CorrelationId,
    marks: Option<Arc<Marks>>,
    announces_end: bool,
}

impl<M> Attempt<M> {
    /// An attempt. `marks` are absent where the caller's work does not report through them: then it
    /// counts as handed over from the beginning.
    pub fn new(
        member: M,
        endpoint: EndpointId,
        number: u32,
        ends_at: Option<Instant>,
        correlation_id: CorrelationId,
        marks: Option<Arc<Marks>>,
    ) -> Self {
        Attempt {
            member,
            endpoint,
            number,
            ends_at,
            correlation_id,
            marks,
            announces_end: false,
        }
    }

    /// Whoever runs the attempt calls [`Marks::end`] at its end, and when it gives the attempt up.
    pub(crate) fn announcing_end(mut self) -> Self {
        self.announces_end = self.marks.is_some();
        self
    }

    /// Whether work needs no timer of its own: [`Attempt::poll_over`] tells it when its time is over.
    pub fn announces_end(&self) -> bool {
        self.announces_end
    }

    /// Ready when the attempt's time is over or nobody waits for it any more, where it
    /// [announces that](Attempt::announces_end). Every task that asked is woken then.
    pub fn poll_over(&self, context: &Context<'_>) -> Poll<()> {
        match &self.marks {
            Some(marks) => marks.poll_over(context),
            None => Poll::Pending,
        }
    }

    /// To be called right before the first byte is handed to the back end.
    pub fn handed_over(&self) {
        if let Some(marks) = &self.marks {
            marks.hand_over();
        }
    }

    /// Whether anything was handed over, as far as is known.
    pub fn is_handed_over(&self) -> bool {
        self.marks
            .as_ref()
            .is_none_or(|marks| marks.is_handed_over())
    }

    /// Keeps the endpoint's concurrency slot until it is dropped: for work that goes on at the back end
    /// after the attempt was given up.
    pub fn hold(&self) -> Option<Arc<Marks>> {
        self.marks.clone()
    }

    /// How much time is left; `None`: no limit.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        self.ends_at.map(|end| end.saturating_duration_since(now))
    }

    /// Takes the member out.
    pub fn split(self) -> (M, Attempt) {
        let Attempt {
            member,
            endpoint,
            number,
            ends_at,
            correlation_id,
            marks,
            announces_end,
        } = self;
        (
            member,
            Attempt {
                member: (),
                endpoint,
                number,
                ends_at,
                correlation_id,
                marks,
                announces_end,
            },
        )
    }
}
