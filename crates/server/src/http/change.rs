//! Changes of what is in force while running: checked whole, built, kept on disk, then swapped. Whatever
//! fails, the old stays.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{Configuration, Problem as ConfigurationProblem, explain};
use serde::Serialize;
use tokio::sync::oneshot;

use super::app::App;
use super::tls::{TlsError, load};
use crate::assembly::{AssemblyError, Plan, Served};
use crate::layers::{Candidate, LayersError};
use crate::problem::Problem;

/// What a change came to.
#[derive(Debug, Serialize)]
pub(super) struct Changed {
    /// Whether it is in force; `false`: a dry run.
    applied: bool,
    sources_added: Vec<String>,
    sources_removed: Vec<String>,
    /// Values that differ, of sources that were there before.
    changes: Vec<Difference>,
    warnings: Vec<ConfigurationProblem>,
}

#[derive(Debug, Serialize)]
struct Difference {
    /// `source` or `source.endpoint`.
    target: String,
    path: String,
    before: Option<String>,
    after: Option<String>,
}

/// One source of the new configuration.
enum Step {
    /// It was not there, or must be made anew.
    New(String, Arc<Served>),
    /// It goes on, changed.
    Follow(Arc<Served>, Plan),
}

impl App {
    /// Makes one change, in a task of its own: a caller that leaves meanwhile leaves nothing half done.
    /// The program's end waits for it.
    ///
    /// # Errors
    /// `conflict` while another change is under way, else those of the work.
    pub(super) async fn change<T, F>(
        self: &Arc<Self>,
        work: impl FnOnce(Arc<App>) -> F,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Problem>> + Send + 'static,
    {
        let changing = self.layers().begin_change().ok_or_else(|| {
            Problem::new(
                "conflict",
                "another change is under way",
                "send it again in a moment",
            )
        })?;
        let work = work(Arc::clone(self));
        let (tell, told) = oneshot::channel();
        // Without a limit: one that is cut would be half done.
        self.tasks().spawn_bounded(Duration::MAX, async move {
            let done = work.await;
            drop(changing);
            // Nobody to tell if the caller has left.
            let _ = tell.send(done);
        });
        told.await.unwrap_or_else(|_| Err(Problem::internal()))
    }

    /// Puts a checked configuration in force, as part of a [`change`](App::change), unless it is a dry run. `reread`: its
    /// files were read again, so certificates are as well, and endpoints that the API has removed come back
    /// if they are named.
    pub(super) async fn put_in_force(
        &self,
        candidate: Candidate,
        dry_run: bool,
        reread: bool,
    ) -> Result<Changed, Problem> {
        let new = candidate.configuration.clone();
        let old = self.layers().configuration();
        restart_needed(&old, &new)?;
        self.check_services(&new)?;
        let mut changed = compare(&old, &new);
        changed.warnings.clone_from(&candidate.warnings);
        let certificate = match (self.tls(), &new.server.tls) {
            (Some(tls), Some(files)) if reread => Some((tls, load(files).await.map_err(unfit)?)),
            _ => None,
        };
        if dry_run {
            return Ok(changed);
        }
        let steps = self.prepare(&new, reread)?;
        self.layers().commit(candidate).await.map_err(refused)?;
        if let Some((tls, fresh)) = certificate {
            tls.exchange(fresh);
        }
        self.swap(&new, steps);
        self.follow_services(&new);
        for (id, key) in &old.server.keys {
            let stays = new.server.keys.get(id);
            if stays.is_none_or(|stays| stays.sha256 != key.sha256) {
                self.forget_key(id);
            }
        }
        changed.applied = true;
        Ok(changed)
    }

    /// Message services follow changes of their targets; everything else of them needs a restart.
    fn check_services(&self, new: &Configuration) -> Result<(), Problem> {
        let running = self.services();
        let gone = running
            .iter()
            .map(|(name, _)| name)
            .find(|name| !new.services().contains_key(*name));
        let refused = gone.or_else(|| {
            let others = new.services().iter().find(|(name, settings)| {
                running
                    .get(name)
                    .is_none_or(|served| !served.can_follow(settings))
            });
            others.map(|(name, _)| name)
        });
        let Some(name) = refused else {
            return Ok(());
        };
        Err(Problem::new(
            "conflict",
            format!("services.{name} cannot change while the program runs, but for its targets"),
            "restart the program, or set the service back",
        ))
    }

    fn follow_services(&self, new: &Configuration) {
        for (name, served) in self.services().iter() {
            let Some(settings) = new.services().get(name) else {
                continue;
            };
            for problem in served.follow(settings) {
                tracing::warn!(service = %name, %problem, "target not changed");
            }
        }
    }

    /// Makes everything that is new. Nothing of it is seen yet.
    fn prepare(&self, new: &Configuration, returning: bool) -> Result<Vec<Step>, Problem> {
        let sources = self.sources();
        let assembly = sources.assembly();
        let mut steps = Vec::new();
        for (name, settings) in &new.sources {
            let step = match sources.get(name) {
                Some(served) if served.can_follow(settings) => {
                    let plan = served.plan(settings, returning).map_err(unusable)?;
                    Step::Follow(Arc::clone(served), plan)
                }
                _ => Step::New(
                    name.clone(),
                    assembly.source(name, settings).map_err(unusable)?,
                ),
            };
            steps.push(step);
        }
        Ok(steps)
    }

    fn swap(&self, new: &Configuration, steps: Vec<Step>) {
        let mut sources = (*self.sources()).clone();
        let mut gone = Vec::new();
        let names: Vec<Arc<str>> = sources
            .iter()
            .map(|served| Arc::clone(served.name()))
            .collect();
        for name in names
            .iter()
            .filter(|name| !new.sources.contains_key(&***name))
        {
            gone.extend(sources.get(name).cloned());
            sources = sources.with(name, None);
        }
        for step in steps {
            match step {
                Step::New(name, served) => {
                    gone.extend(sources.get(&name).cloned());
                    sources = sources.with(&name, Some(served));
                }
                Step::Follow(served, plan) => {
                    let policy = Arc::clone(&plan.settings().policy);
                    let audit = served.settings().policy.audit != policy.audit;
                    served.follow(plan);
                    if audit {
                        sources.assembly().attach_audit(&served, &policy);
                    }
                }
            }
        }
        self.exchange(sources);
        let limit = self.settings().drain_timeout;
        for served in gone {
            self.tasks().spawn(async move {
                use mainstay_sql::Database;
                served.proxy().close(limit).await;
            });
        }
    }
}

/// What cannot change while running.
fn restart_needed(old: &Configuration, new: &Configuration) -> Result<(), Problem> {
    let (was, is) = (&old.server, &new.server);
    for (key, same) in [
        ("server.listen", was.listen == is.listen),
        ("server.data_dir", was.data_dir == is.data_dir),
        (
            "server.connections_max",
            was.connections_max == is.connections_max,
        ),
        ("server.tls", was.tls.is_some() == is.tls.is_some()),
    ] {
        if !same {
            return Err(Problem::new(
                "conflict",
                format!("{key} cannot change while the program runs"),
                "restart the program, or set the key back",
            ));
        }
    }
    Ok(())
}

fn compare(old: &Configuration, new: &Configuration) -> Changed {
    let (was, is) = (&old.sources, &new.sources);
    let added = is.keys().filter(|name| !was.contains_key(*name));
    let removed = was.keys().filter(|name| !is.contains_key(*name));
    let mut changes = Vec::new();
    for (name, settings) in is {
        let Some(before) = was.get(name) else {
            continue;
        };
        if before == settings {
            continue;
        }
        differences(&mut changes, old, new, name);
        let mut endpoints: Vec<&String> = before
            .endpoints
            .keys()
            .chain(settings.endpoints.keys())
            .collect();
        endpoints.sort();
        endpoints.dedup();
        for endpoint in endpoints {
            if before.endpoints.get(endpoint) != settings.endpoints.get(endpoint) {
                differences(&mut changes, old, new, &format!("{name}.{endpoint}"));
            }
        }
    }
    Changed {
        applied: false,
        sources_added: added.cloned().collect(),
        sources_removed: removed.cloned().collect(),
        changes,
        warnings: Vec::new(),
    }
}

fn differences(
    changes: &mut Vec<Difference>,
    old: &Configuration,
    new: &Configuration,
    target: &str,
) {
    let before = explain(old, target).unwrap_or_default();
    let after = explain(new, target).unwrap_or_default();
    let find = |lines: &[mainstay_config::Explained], path: &str| {
        let line = lines.iter().find(|line| line.path == path);
        line.map(|line| line.value.clone())
    };
    let mut paths: Vec<&str> = before
        .iter()
        .chain(&after)
        .map(|line| line.path.as_str())
        .collect();
    paths.sort_unstable();
    paths.dedup();
    for path in paths {
        let (was, is) = (find(&before, path), find(&after, path));
        if was != is {
            changes.push(Difference {
                target: target.to_owned(),
                path: path.to_owned(),
                before: was,
                after: is,
            });
        }
    }
}

/// A configuration that has problems, or that cannot be read or kept.
pub(super) fn refused(error: LayersError) -> Problem {
    match error {
        LayersError::Problems(problems) => {
            let first = problems.iter().find(|problem| problem.is_error());
            let detail = match first {
                Some(first) if problems.len() == 1 => first.to_string(),
                Some(first) => format!("{first} (and {} more)", problems.len() - 1),
                None => "the configuration has problems".to_owned(),
            };
            let all = serde_json::to_value(&problems).unwrap_or_default();
            Problem::new(
                "policy_refused",
                detail,
                "mend what `problems` names; the old settings stay",
            )
            .with("problems", all)
        }
        LayersError::File { path, source } => Problem::new(
            "internal",
            format!("{} cannot be read or written: {source}", path.display()),
            "check the data folder and its permissions; the old settings stay",
        ),
    }
}

/// A certificate that cannot be used.
fn unfit(error: TlsError) -> Problem {
    let hint = "mend it; the former certificate and all other settings stay";
    Problem::new("policy_refused", error.to_string(), hint)
}

/// Reads the files again: the old stays if anything of the new is wrong.
pub(super) async fn reload(app: &Arc<App>, is_dry_run: bool) -> Result<Changed, Problem> {
    let changed = app.change(move |app| async move {
        let candidate = app.layers().reread().await.map_err(refused)?;
        app.put_in_force(candidate, is_dry_run, true).await
    });
    changed.await
}

/// Settings that no source can be made from.
pub(super) fn unusable(error: AssemblyError) -> Problem {
    Problem::new(
        "policy_refused",
        error.to_string(),
        "mend it; the old settings stay",
    )
}

#[cfg(test)]
mod tests;
