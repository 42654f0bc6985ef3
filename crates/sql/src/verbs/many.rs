//! Many changes in one transaction, in steps that tell how far they are.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Name, Safety};
use tokio::time::Instant;

use crate::catalog::Entity;
use crate::database::{Answer, BoxFuture, Database, Options, Request, Scope, Work};
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::transaction::{Begin, Transaction};
use crate::value::Value;

use super::rerun::{Inside, Rerun};
use super::rows::{AsyncEntity, Progress, Written};
use super::statement::request;

/// Rows between two calls of a [`Progress`].
const PROGRESS_STEP: usize = 1000;

/// Many statements in one transaction.
pub(super) struct ManyBy<'a, D: ?Sized, W> {
    pub(super) database: &'a D,
    pub(super) name: &'static str,
    pub(super) count: usize,
    pub(super) write: W,
    pub(super) options: &'a Options,
    pub(super) progress: Option<Progress<'a>>,
}

/// One text with the parameters of each of its runs.
struct Group {
    text: Arc<str>,
    params: Vec<Vec<Value>>,
}

impl<D, W> ManyBy<'_, D, W>
where
    D: Database + ?Sized,
    W: Fn(Dialect, &Entity, usize) -> Result<Written, SqlError> + Send + Sync,
{
    /// Neighbours with the same text in groups, each no longer than one step of the progress.
    fn groups(&self, entity: &Entity) -> Result<Vec<Group>, SqlError> {
        let mut groups: Vec<Group> = Vec::new();
        for index in 0..self.count {
            let written = (self.write)(self.database.dialect(), entity, index)
                .map_err(|error| error.place("row", (index + 1).to_string()))?;
            let is_stepwise = self.progress.is_some();
            match groups.last_mut() {
                Some(group)
                    if *group.text == *written.text
                        && !(is_stepwise && group.params.len() >= PROGRESS_STEP) =>
                {
                    group.params.push(written.params);
                }
                _ => groups.push(Group {
                    text: Arc::from(written.text),
                    params: vec![written.params],
                }),
            }
        }
        Ok(groups)
    }

    fn request(&self, group: Group) -> Request {
        let work = Work::Many {
            text: group.text,
            params: group.params,
        };
        request(
            Name::Static(self.name),
            work,
            Safety::Write,
            self.options.clone(),
        )
    }

    /// Several groups as one request, whose answer can be kept beside its key.
    async fn at_once(&self, groups: Vec<Group>) -> Result<Answer, SqlError> {
        let step = |group: Group| {
            let text = group.text;
            let params = group.params.into_iter();
            params.map(move |params| (Arc::clone(&text), params))
        };
        let steps = groups.into_iter().flat_map(step).collect();
        let (name, options) = (Name::Static(self.name), self.options.clone());
        let request = request(name, Work::Batch { steps }, Safety::Write, options);
        self.whole(&request).await
    }

    /// One request that is all of it.
    async fn whole(&self, request: &Request) -> Result<Answer, SqlError> {
        let answer = self.database.collect(request, Scope::default()).await?;
        if let Some(progress) = self.progress {
            progress(self.count as u64, self.count as u64);
        }
        Ok(answer)
    }

    /// Several groups: one after the other in a transaction of their own, which is run again from its
    /// beginning as often as the policy repeats a call.
    async fn in_steps(&self, groups: Vec<Group>) -> Result<Answer, SqlError> {
        let deadline = self.options.deadline;
        let ends_at = deadline.and_then(|limit| Instant::now().checked_add(limit));
        let steps = Steps {
            requests: groups
                .into_iter()
                .map(|group| self.request(group))
                .collect(),
            rows: self.count as u64,
            ends_at,
            progress: self.progress,
        };
        let rerun = Rerun {
            database: self.database,
            begin: Begin {
                options: self.options.clone(),
                ..Begin::default()
            },
            reruns: self.database.retries(),
            ends_at,
        };
        let (mut whole, committed) = rerun.run(&steps).await?;
        whole.meta = committed.meta;
        Ok(whole)
    }
}

/// Requests that are one transaction.
struct Steps<'a> {
    requests: Vec<Request>,
    rows: u64,
    /// The deadline of the whole.
    ends_at: Option<Instant>,
    progress: Option<Progress<'a>>,
}

impl Steps<'_> {
    async fn all(&self, transaction: &mut dyn Transaction) -> Result<Answer, SqlError> {
        let mut whole = Answer::default();
        let mut done = 0;
        for request in &self.requests {
            let mut request = request.clone();
            request.options.deadline = self.left();
            let step = transaction.run(&request).await?;
            whole.affected = Some(whole.affected.unwrap_or(0) + step.affected.unwrap_or(0));
            whole.keys.extend(step.keys);
            whole.rows.extend(step.rows);
            if let Work::Many { params, .. } = &request.work {
                done += params.len() as u64;
            }
            if let Some(progress) = self.progress {
                progress(done, self.rows);
            }
        }
        Ok(whole)
    }

    fn left(&self) -> Option<Duration> {
        let now = Instant::now();
        self.ends_at.map(|end| end.saturating_duration_since(now))
    }
}

impl Inside<Answer> for Steps<'_> {
    fn run<'t>(
        &'t self,
        transaction: &'t mut dyn Transaction,
    ) -> BoxFuture<'t, Result<Answer, SqlError>> {
        Box::pin(self.all(transaction))
    }
}

impl<D, W> AsyncEntity<Answer> for ManyBy<'_, D, W>
where
    D: Database + ?Sized,
    W: Fn(Dialect, &Entity, usize) -> Result<Written, SqlError> + Send + Sync,
{
    async fn call(&self, entity: Arc<Entity>) -> Result<Answer, SqlError> {
        let mut groups = self.groups(&entity)?;
        if groups.len() > 1 && self.options.idempotency_key.is_some() {
            return self.at_once(groups).await;
        }
        if groups.len() > 1 {
            return self.in_steps(groups).await;
        }
        let Some(group) = groups.pop() else {
            return Ok(Answer {
                affected: Some(0),
                ..Answer::default()
            });
        };
        let request = self.request(group);
        self.whole(&request).await
    }
}
