//! What a proxy is made from.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

use mainstay_engine::event::Observer;
use mainstay_engine::source::SourceBuilder;
use mainstay_engine::watchdog::Promotion;
use mainstay_engine::{Chance, EndpointSpec, Policy, Source};

use super::sessions::Sessions;
use super::{DataProxy, Member, Shared, control, probe, rest};
use crate::dialect::Dialect;
use crate::error::{Code, SqlError};
use crate::proof::{CommitProof, IdempotencyTable, Proofs};
use crate::schema::Schema;

/// What a proxy is made from.
pub struct DataProxyBuilder {
    source: SourceBuilder<Member>,
    dialect: Option<Dialect>,
    is_mixed: bool,
    /// `None`: the dialect's.
    promotion: Option<Promotion>,
    limits: TransactionLimits,
    keys: Option<IdempotencyTable>,
    commits: Option<CommitProof>,
}

/// Bounds of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionLimits {
    /// An idle one ends after this. Default 60 s.
    pub idle: Duration,
    /// Open at once. Default 1000.
    pub count: u32,
}

impl Default for TransactionLimits {
    fn default() -> Self {
        TransactionLimits {
            idle: Duration::from_secs(60),
            count: 1000,
        }
    }
}

impl DataProxyBuilder {
    /// Adds an endpoint.
    #[must_use]
    pub fn endpoint(mut self, spec: EndpointSpec<Member>) -> Self {
        let dialect = spec.member.dialect();
        self.is_mixed |= *self.dialect.get_or_insert(dialect) != dialect;
        self.source = self.source.endpoint(spec);
        self
    }

    /// Says how another endpoint becomes primary. Default: [`Promotion::Follow`], and for
    /// SQLite, whose file cannot say who is primary, [`Promotion::Route`].
    #[must_use]
    pub fn promotion(mut self, promotion: Promotion) -> Self {
        self.promotion = Some(promotion);
        self
    }

    /// Runs its background work in this group.
    #[must_use]
    pub fn tasks(mut self, tasks: mainstay_engine::tasks::Tasks) -> Self {
        self.source = self.source.tasks(tasks);
        self
    }

    /// Uses this source of randomness.
    #[must_use]
    pub fn chance(mut self, chance: Chance) -> Self {
        self.source = self.source.chance(chance);
        self
    }

    /// Adds an observer of its events.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.source = self.source.observer(observer);
        self
    }

    /// Bounds its transactions.
    #[must_use]
    pub fn transactions(mut self, limits: TransactionLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps idempotency keys, so that writes may have one.
    #[must_use]
    pub fn idempotency(mut self, keys: IdempotencyTable) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Finds out what became of a COMMIT whose answer was lost.
    #[must_use]
    pub fn commit_proof(mut self, proof: CommitProof) -> Self {
        self.commits = Some(proof);
        self
    }

    /// Makes the proxy and starts its prober. Nothing needs to be reachable.
    ///
    /// # Errors
    /// If there is no endpoint, their dialects differ, a name is used twice, a weight is not positive, two are
    /// primary, or a commit is to be proven by what the database does not have.
    pub fn build(self) -> Result<DataProxy, SqlError> {
        let source = self.source.build().map_err(|problem| control(&problem))?;
        let Some(dialect) = self.dialect else {
            let message = format!("source {} has no endpoint", source.name());
            return Err(SqlError::caller(
                Code::BadRequest,
                message,
                "give it at least one",
            ));
        };
        if self.is_mixed {
            let message = format!(
                "the endpoints of source {} are databases of several kinds, which read one text differently",
                source.name()
            );
            return Err(SqlError::caller(
                Code::BadRequest,
                message,
                "make a source for each kind",
            ));
        }
        let proofs = Proofs::of(dialect, self.keys.as_ref(), self.commits.as_ref())?;
        let promotion = self.promotion.unwrap_or(match dialect {
            Dialect::Sqlite => Promotion::Route,
            Dialect::Postgres | Dialect::MySql => Promotion::Follow,
        });
        let proxy = DataProxy {
            shared: Arc::new(Shared {
                source,
                dialect,
                schema: Arc::new(Schema::new(dialect)),
                sessions: Sessions::new(),
                limits: self.limits,
                proofs,
                transactions: AtomicU32::new(0),
                closed: AtomicBool::new(false),
            }),
        };
        proxy.source().watch(Arc::new(probe::Prober), promotion);
        rest::follow(proxy.source());
        Ok(proxy)
    }
}

impl DataProxy {
    /// Begins a proxy.
    pub fn builder(name: impl Into<Arc<str>>, policy: Arc<Policy>) -> DataProxyBuilder {
        DataProxyBuilder {
            source: Source::builder(name, policy),
            dialect: None,
            is_mixed: false,
            promotion: None,
            limits: TransactionLimits::default(),
            keys: None,
            commits: None,
        }
    }
}
