//! The failure taxonomy: what went wrong, whose fault it was, whether it may have taken effect and
//! when to try again. The engine decides by these facts alone and never looks at a back end's own
//! error type.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Every value, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant,)+];

            /// The stable lower-case name.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }

            /// The value of that name.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)+ _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str(self.as_str()) }
        }
    };
}
pub(crate) use named;

named! {
    /// What kind of failure it is. The category decides about another try and the next endpoint.
    Category {
        /// Connection reset or refused, io, server restarting.
        Transient = "transient",
        /// Deadlock, serialization conflict, lock timeout, busy: again, on the same endpoint.
        Contention = "contention",
        /// The attempt or its connect timed out.
        Timeout = "timeout",
        /// Too many connections, 429, disk full, out of memory.
        Saturation = "saturation",
        /// Login refused, or permission denied.
        Auth = "auth",
        /// Bad SQL, missing table, constraint, type error: will fail again everywhere.
        Persistent = "persistent",
        /// This member is wrong or damaged; another one may be fine.
        Endpoint = "endpoint",
        /// Nothing matched.
        Unknown = "unknown",
    }
}

named! {
    /// How heavily a failure weighs on a circuit.
    Severity {
        /// Weight 0: it hinders a part of the work, such as writes to a full disk, and the rest goes on.
        None = "none",
        /// Weight 1.
        Low = "low",
        /// Weight 1.
        Medium = "medium",
        /// Weight 2.
        High = "high",
        /// Weighs the whole threshold.
        Critical = "critical",
    }
}

named! {
    /// Whose fault a failure is.
    Blame {
        /// The caller's: weighs nothing and never fails over.
        Caller = "caller",
        /// The endpoint's.
        Endpoint = "endpoint",
        /// Our own.
        Us = "us",
    }
}

named! {
    /// Whether a failed attempt may have taken effect.
    Sent {
        /// Nothing was handed to the back end.
        No = "no",
        /// The back end proved that it did nothing or rolled back.
        YesUnprocessed = "yes_unprocessed",
        /// It may have taken effect.
        Maybe = "maybe",
    }
}

impl Sent {
    /// Whether it is proven that nothing took effect.
    pub fn is_proven_harmless(self) -> bool {
        self != Sent::Maybe
    }

    /// What two attempts of one call prove together: as much as the one that proves less.
    #[must_use]
    pub fn and(self, other: Sent) -> Sent {
        match (self, other) {
            (Sent::Maybe, _) | (_, Sent::Maybe) => Sent::Maybe,
            (Sent::No, Sent::No) => Sent::No,
            _ => Sent::YesUnprocessed,
        }
    }
}

/// One failed attempt in the engine's own words.
#[derive(Debug, Clone, PartialEq)]
pub struct Failure {
    /// What kind it is.
    pub category: Category,
    /// How heavily it weighs.
    pub severity: Severity,
    /// Whose fault it is.
    pub blame: Blame,
    /// Whether it may have taken effect.
    pub sent: Sent,
    /// Not to be tried before this has passed, counted from the answer.
    pub retry_after: Option<Duration>,
    /// The pool generation of the connection it happened on: failures of one generation weigh once.
    pub generation: Option<u64>,
    /// The back end's own code (SQLSTATE, vendor number, HTTP status), for rules and readers.
    pub code: Option<Cow<'static, str>>,
    /// What happened, for a reader.
    pub message: Cow<'static, str>,
    /// What to do about it, where whoever found it knows that.
    pub hint: Option<Box<str>>,
}

impl Failure {
    /// A failure of a category, with the severity and blame that the category usually has and
    /// `sent` unknown.
    pub fn new(category: Category, message: impl Into<Cow<'static, str>>) -> Self {
        let (severity, blame) = match category {
            Category::Transient
            | Category::Timeout
            | Category::Saturation
            | Category::Endpoint
            | Category::Unknown => (Severity::Medium, Blame::Endpoint),
            Category::Contention => (Severity::Low, Blame::Endpoint),
            Category::Auth => (Severity::High, Blame::Endpoint),
            Category::Persistent => (Severity::Low, Blame::Caller),
        };
        Failure {
            category,
            severity,
            blame,
            sent: Sent::Maybe,
            retry_after: None,
            generation: None,
            code: None,
            message: message.into(),
            hint: None,
        }
    }

    /// Sets the severity.
    #[must_use]
    pub fn severity(mut self, severity: Severity) -> Self {
        self.severity = severity;
        self
    }

    /// Sets whose fault it is.
    #[must_use]
    pub fn blame(mut self, blame: Blame) -> Self {
        self.blame = blame;
        self
    }

    /// Says whether it may have taken effect.
    #[must_use]
    pub fn sent(mut self, sent: Sent) -> Self {
        self.sent = sent;
        self
    }

    /// Attaches the back end's code.
    #[must_use]
    pub fn code(mut self, code: impl Into<Cow<'static, str>>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Attaches the back end's wish for a pause.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Whether another attempt may ever help (safety and `sent` decide apart from this).
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.category,
            Category::Transient | Category::Contention | Category::Timeout | Category::Saturation
        )
    }

    /// Whether the next attempt goes to another endpoint at once.
    pub fn moves_on(&self) -> bool {
        if self.blame == Blame::Caller {
            return false;
        }
        match self.category {
            Category::Transient
            | Category::Timeout
            | Category::Saturation
            | Category::Endpoint
            | Category::Auth => true,
            Category::Contention | Category::Persistent | Category::Unknown => false,
        }
    }

    /// Whether the endpoint's numbers count it as a failure of its own: a mistake of the caller's, or
    /// two callers in each other's way, is none.
    pub(crate) fn weighs_on_endpoint(&self) -> bool {
        self.blame != Blame::Caller
            && !matches!(self.category, Category::Persistent | Category::Contention)
    }

    /// What the failure adds to a circuit with this threshold: nothing unless it is the endpoint's.
    ///
    /// An `unknown` failure weighs nothing here: it weighs only once a health check fails too,
    /// which the endpoint decides.
    pub fn weight(&self, threshold: u32) -> u32 {
        let weighs = self.blame == Blame::Endpoint
            && match self.category {
                Category::Transient
                | Category::Timeout
                | Category::Saturation
                | Category::Auth
                | Category::Endpoint => true,
                Category::Contention | Category::Persistent | Category::Unknown => false,
            };
        if !weighs {
            return 0;
        }
        match self.severity {
            Severity::None => 0,
            Severity::Low | Severity::Medium => 1,
            Severity::High => 2,
            Severity::Critical => threshold.max(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        if let Some(code) = &self.code {
            write!(f, " [{code}]")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}

/// What an attempt came to.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// It worked.
    Success,
    /// It failed; the failure decides what happens next.
    Failure(Failure),
    /// It neither worked nor failed (a cancelled statement): weighs nothing and is not repeated.
    Neutral,
    /// The endpoint answered that the work belongs elsewhere and did nothing: the caller goes on with
    /// another operation under the same account.
    Redirect,
}

/// Turns the result of an attempt into an [`Outcome`]. Any closure of that form is one.
pub trait Classify<T, E>: Send + Sync {
    /// Decides by structured facts of the result.
    fn classify(&self, result: &Result<T, E>) -> Outcome;
}

impl<T, E, F> Classify<T, E> for F
where
    F: Fn(&Result<T, E>) -> Outcome + Send + Sync,
{
    fn classify(&self, result: &Result<T, E>) -> Outcome {
        self(result)
    }
}
