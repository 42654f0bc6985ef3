//! Many changes in one transaction, in steps that tell how far they are.

use std::sync::Arc;

use mainstay_engine::{Name, Safety};

use crate::catalog::Entity;
use crate::database::{Answer, Database, Options, Request, Scope, Work};
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::transaction::Begin;
use crate::value::Value;

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

    /// Several groups: one after the other in a transaction of their own.
    async fn in_steps(&self, groups: Vec<Group>) -> Result<Answer, SqlError> {
        let begin = Begin {
            options: self.options.clone(),
            ..Begin::default()
        };
        let mut transaction = self.database.begin(&begin, Scope::default()).await?;
        let mut whole = Answer::default();
        let mut done = 0;
        for group in groups {
            done += group.params.len() as u64;
            let mut request = self.request(group);
            // The deadline was for the whole and is kept by `begin`.
            request.options.deadline = None;
            let step = transaction.run(&request).await?;
            whole.affected = Some(whole.affected.unwrap_or(0) + step.affected.unwrap_or(0));
            whole.keys.extend(step.keys);
            whole.rows.extend(step.rows);
            if let Some(progress) = self.progress {
                progress(done, self.count as u64);
            }
        }
        let committed = transaction.commit().await?;
        whole.meta = committed.meta;
        Ok(whole)
    }
}

impl<D, W> AsyncEntity<Answer> for ManyBy<'_, D, W>
where
    D: Database + ?Sized,
    W: Fn(Dialect, &Entity, usize) -> Result<Written, SqlError> + Send + Sync,
{
    async fn call(&self, entity: Arc<Entity>) -> Result<Answer, SqlError> {
        let mut groups = self.groups(&entity)?;
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
        let answer = self.database.collect(&request, Scope::default()).await?;
        if let Some(progress) = self.progress {
            progress(self.count as u64, self.count as u64);
        }
        Ok(answer)
    }
}
