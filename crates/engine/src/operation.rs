//! What a caller asks for: an [`Operation`] names the work, says how safe a repetition is and how
//! long it may take.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;

/// Whether running the work twice can do harm. Together with [`Sent`](crate::Sent) it decides
/// whether another attempt is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Safety {
    /// Changes nothing; may always be repeated.
    Read,
    /// Changes something, but twice has the effect of once. The same idempotency key goes out with
    /// each attempt.
    IdempotentWrite,
    /// Must run at most once: repeated only if the back end provably did nothing.
    Write,
}

impl Safety {
    /// The stable lower-case name, as it stands in audit entries and in requests.
    pub fn as_str(self) -> &'static str {
        match self {
            Safety::Read => "read",
            Safety::IdempotentWrite => "idempotent_write",
            Safety::Write => "write",
        }
    }

    /// Whether the work changes nothing.
    pub fn is_read(self) -> bool {
        self == Safety::Read
    }

    /// The stricter of two classes: what a text with both must be treated as.
    pub fn strictest(self, other: Safety) -> Safety {
        match (self, other) {
            (Safety::Write, _) | (_, Safety::Write) => Safety::Write,
            (Safety::IdempotentWrite, _) | (_, Safety::IdempotentWrite) => Safety::IdempotentWrite,
            _ => Safety::Read,
        }
    }
}

impl fmt::Display for Safety {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A 128-bit id that follows one call through every log, audit entry and answer.
/// It is shown as 32 lower-case hexadecimal digits, the form of a W3C trace id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CorrelationId(pub u128);

impl CorrelationId {
    /// A new id from the given source of chance.
    pub fn draw(chance: &Chance) -> Self {
        CorrelationId(chance.u128())
    }

    /// Reads 32 hexadecimal digits, with or without dashes; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let digits: String = text.chars().filter(|c| *c != '-').collect();
        if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return None;
        }
        u128::from_str_radix(&digits, 16).ok().map(CorrelationId)
    }
}

impl fmt::Display for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for CorrelationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which part of the queue a call waits in when a concurrency limit is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Priority {
    /// Waits behind everything else.
    Low = 0,
    /// The default.
    #[default]
    Normal = 1,
    /// Before normal.
    High = 2,
    /// Before everything else.
    Critical = 3,
}

/// A name that is either written in the program or shared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Name {
    /// Written in the program: costs nothing to copy.
    Static(&'static str),
    /// Made at run time: a copy is one reference count.
    Shared(Arc<str>),
}

impl Name {
    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Name::Static(text) => text,
            Name::Shared(text) => text,
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<&'static str> for Name {
    fn from(text: &'static str) -> Self {
        Name::Static(text)
    }
}

impl From<String> for Name {
    fn from(text: String) -> Self {
        Name::Shared(text.into())
    }
}

impl From<Arc<str>> for Name {
    fn from(text: Arc<str>) -> Self {
        Name::Shared(text)
    }
}

/// One unit of work as its caller describes it.
///
/// Everything but the name and the safety is optional; a deadline that is not given comes from the
/// policy.
#[derive(Debug, Clone)]
pub struct Operation {
    /// What the work is called in audit, metrics and errors.
    pub name: Name,
    /// Whether it may be repeated.
    pub safety: Safety,
    /// Whether somebody said so, instead of it being found in the work; audited.
    pub safety_declared: bool,
    /// How long the whole call may take, from its admission. `None`: the policy's.
    pub deadline: Option<Duration>,
    /// At most so many attempts, also where the policy allows more. `None`: the policy alone decides.
    pub attempts_max: Option<u32>,
    /// Which part of a queue it waits in.
    pub priority: Priority,
    /// Sends equal keys to equal endpoints where the strategy hashes.
    pub routing_key: Option<Arc<str>>,
    /// Ties reads to the writes of one session.
    pub session_key: Option<Arc<str>>,
    /// Sent unchanged with every attempt of an idempotent write.
    pub idempotency_key: Option<Arc<str>>,
    /// `None`: drawn at admission.
    pub correlation_id: Option<CorrelationId>,
}

impl Operation {
    /// Work of the given safety.
    pub fn new(name: impl Into<Name>, safety: Safety) -> Self {
        Operation {
            name: name.into(),
            safety,
            safety_declared: false,
            deadline: None,
            attempts_max: None,
            priority: Priority::Normal,
            routing_key: None,
            session_key: None,
            idempotency_key: None,
            correlation_id: None,
        }
    }

    /// Work that changes nothing.
    pub fn read(name: impl Into<Name>) -> Self {
        Self::new(name, Safety::Read)
    }

    /// Work that must run at most once.
    pub fn write(name: impl Into<Name>) -> Self {
        Self::new(name, Safety::Write)
    }

    /// Work whose repetition has no further effect.
    pub fn idempotent_write(name: impl Into<Name>) -> Self {
        Self::new(name, Safety::IdempotentWrite)
    }

    /// Says whether the safety was declared by a person instead of found in the work. A face that reads
    /// its work calls it; default `false`.
    #[must_use]
    pub fn declared(mut self, declared: bool) -> Self {
        self.safety_declared = declared;
        self
    }

    /// Bounds the attempts, below what the policy allows. The first one is always made.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.attempts_max = Some(attempts_max);
        self
    }

    /// Bounds the whole call.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the priority in queues.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Ties the call to a session.
    #[must_use]
    pub fn session(mut self, key: impl Into<Arc<str>>) -> Self {
        self.session_key = Some(key.into());
        self
    }

    /// Carries the caller's correlation id on.
    #[must_use]
    pub fn correlation_id(mut self, id: CorrelationId) -> Self {
        self.correlation_id = Some(id);
        self
    }
}
