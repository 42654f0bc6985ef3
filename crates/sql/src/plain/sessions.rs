//! A driver's sessions as the pool's connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use mainstay_engine::pool::{BoxFuture, Connector, Lease, Mode, PoolError};
use mainstay_engine::{Blame, Category, Failure, Marks, Policy, Sent};

use crate::connection::{Connection, Driver};
use crate::database::{Access, State};
use crate::error::{Code, SqlError};

/// A leased session; the endpoint's concurrency slot goes with it.
pub(super) type Held = Lease<Sessions, Option<Arc<Marks>>>;

pub(super) fn mode(access: Access) -> Mode {
    Mode(match access {
        Access::ReadOnly => 0,
        Access::ReadWrite => 1,
    })
}

/// What a policy says about time, for one endpoint.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Limits {
    connect: Duration,
    attempt: Option<Duration>,
    attempt_is_set: bool,
    deadline: Option<Duration>,
    pub(super) active_max: u32,
    pub(super) retries: u32,
}

impl Limits {
    pub(super) fn of(policy: &Policy) -> Self {
        Limits {
            connect: policy.retry.connect_timeout,
            attempt: policy.retry.attempt_timeout,
            attempt_is_set: policy.retry.attempt_timeout_is_set,
            deadline: policy.retry.deadline,
            active_max: policy.pool.active_max,
            retries: policy.retry.attempts_max.saturating_sub(1),
        }
    }

    /// The only attempt of a call that comes from outside of a proxy.
    pub(super) fn of_call(&self, deadline: Option<Duration>) -> Option<Duration> {
        match (self.attempt, deadline.or(self.deadline)) {
            // There is no second attempt to leave time for.
            (Some(attempt), Some(deadline)) => Some(attempt.min(deadline)),
            (attempt, deadline) => attempt.or(deadline),
        }
    }

    /// Inside of a transaction: COMMIT, ROLLBACK, savepoints, statements without a deadline.
    pub(super) fn of_control(&self) -> Option<Duration> {
        self.attempt
    }
}

pub(super) struct Sessions {
    driver: Arc<dyn Driver>,
    limits: Arc<ArcSwap<Limits>>,
    state: AtomicU8,
}

const CONNECTING: u8 = 0;
const OPEN: u8 = 1;
const BROKEN: u8 = 2;
const CLOSED: u8 = 3;

impl Sessions {
    pub(super) fn new(driver: Arc<dyn Driver>, limits: Arc<ArcSwap<Limits>>) -> Self {
        Sessions {
            driver,
            limits,
            state: AtomicU8::new(CONNECTING),
        }
    }

    pub(super) fn driver(&self) -> &dyn Driver {
        self.driver.as_ref()
    }

    pub(super) fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            CONNECTING => State::Connecting,
            OPEN => State::Open,
            BROKEN => State::Broken,
            _ => State::Closed,
        }
    }

    pub(super) fn note_closed(&self) {
        self.state.store(CLOSED, Ordering::Release);
    }

    /// Opens a session within `retry.connect_timeout`. Errors have `sent: no`.
    pub(super) async fn open(&self, access: Access) -> Result<Box<dyn Connection>, SqlError> {
        let limit = self.limits.load().connect;
        let opened = tokio::time::timeout(limit, self.driver.connect(access)).await;
        let result = opened.unwrap_or_else(|_| {
            let message = format!("connecting took longer than {limit:?}");
            let failure = Failure::new(Category::Timeout, message);
            Err(SqlError::new(Code::AttemptsFailed, failure).hint(
                "see whether the address is right and reachable, or raise retry.connect_timeout",
            ))
        });
        if self.state.load(Ordering::Acquire) != CLOSED {
            let state = if result.is_ok() { OPEN } else { BROKEN };
            self.state.store(state, Ordering::Release);
        }
        result.map_err(|mut error| {
            error.detail_mut().failure.sent = Sent::No;
            error
        })
    }
}

impl Connector for Sessions {
    type Connection = Box<dyn Connection>;

    fn connect(&self, mode: Mode) -> BoxFuture<'_, Result<Self::Connection, Failure>> {
        let access = match mode {
            Mode(0) => Access::ReadOnly,
            Mode(_) => Access::ReadWrite,
        };
        Box::pin(async move {
            let opened = self.open(access).await;
            // The pool knows failures only; what to do about one goes with it.
            opened.map_err(|error| Failure {
                hint: error.detail().hint.as_deref().map(Box::from),
                ..error.failure().clone()
            })
        })
    }

    fn is_closed(&self, connection: &Self::Connection) -> bool {
        connection.is_closed()
    }

    fn check<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move { connection.check().await.is_ok() })
    }

    fn reset<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move { connection.reset().await.is_ok() && !connection.is_closed() })
    }

    fn clean_up<'a>(&'a self, connection: &'a mut Self::Connection) -> BoxFuture<'a, bool> {
        Box::pin(async move { connection.clean_up().await.is_ok() && !connection.is_closed() })
    }
}

/// Why there is no lease, in the words of the data face. Nothing was sent.
pub(super) fn refused(error: PoolError) -> SqlError {
    let code = match &error {
        PoolError::WaitTimeout { .. } => Code::PoolTimeout,
        PoolError::QueueFull { .. } => Code::QueueFull,
        PoolError::Draining | PoolError::Closed => Code::Draining,
        PoolError::Connect(failure) if failure.category == Category::Auth => Code::NotAllowed,
        // The driver refused it by itself.
        PoolError::Connect(failure)
            if failure.category == Category::Saturation && failure.blame == Blame::Us =>
        {
            Code::PoolTimeout
        }
        _ => Code::AttemptsFailed,
    };
    let mut failure = error.into_failure();
    let hint = failure.hint.take();
    let error = SqlError::new(code, failure);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}
