//! A primary with streaming replicas.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::{PATIENCE, PostgresOptions, PostgresServer};

/// One primary and streaming replicas with synchronous replication (`ANY 1` of the others).
///
/// Nodes are numbered; node 0 is the first primary. Every standby's `primary_conninfo` names all
/// other nodes with `target_session_attrs=read-write`, so after a promotion the remaining ones
/// attach to the new primary by themselves, and every node lists the same synchronous standbys.
#[derive(Debug)]
pub struct PostgresCluster {
    nodes: Vec<PostgresServer>,
    primary: AtomicUsize,
}

impl PostgresCluster {
    /// Starts a primary and `replicas` standbys and waits until all of them stream. `options` hold
    /// for every node.
    ///
    /// # Errors
    /// As [`PostgresServer::start`]; a standby did not attach within 30 s.
    pub async fn start(replicas: usize, options: PostgresOptions) -> Result<Self> {
        if options.wants_own_identity() {
            bail!("members of a cluster share one system identifier: leave `own_identity` out");
        }
        let mut nodes = Vec::with_capacity(replicas + 1);
        for number in 0..=replicas {
            nodes.push(PostgresServer::lay(node_options(&options, number, replicas)).await?);
        }
        let ports: Vec<u16> = nodes.iter().map(PostgresServer::port).collect();
        for (number, node) in nodes.iter().enumerate() {
            let conninfo = format!("primary_conninfo = '{}'\n", conninfo(&ports, number));
            // Read after `postgresql.conf`, and rewritten by ALTER SYSTEM without losing the line.
            node.write("postgresql.auto.conf", &conninfo)?;
            if number > 0 {
                node.write("standby.signal", "")?;
            }
            node.launch()?;
        }
        let cluster = Self {
            nodes,
            primary: AtomicUsize::new(0),
        };
        for node in &cluster.nodes {
            node.wait_ready().await?;
        }
        cluster.wait_attached(replicas).await?;
        Ok(cluster)
    }

    /// All nodes; their order never changes.
    pub fn nodes(&self) -> &[PostgresServer] {
        &self.nodes
    }

    /// One node by its number.
    ///
    /// # Panics
    /// There is no such node.
    pub fn node(&self, number: usize) -> &PostgresServer {
        &self.nodes[number]
    }

    /// The number of the primary: node 0, or the last promoted.
    pub fn primary_number(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }

    /// The primary: node 0, or the last promoted.
    pub fn primary(&self) -> &PostgresServer {
        self.node(self.primary_number())
    }

    /// The numbers of all nodes but the primary, running or not.
    pub fn replica_numbers(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|number| *number != self.primary_number())
            .collect()
    }

    /// The running standby that has received most of the primary's log.
    ///
    /// # Errors
    /// No standby answers.
    pub async fn most_advanced_replica(&self) -> Result<usize> {
        let mut best: Option<(u64, usize)> = None;
        for number in self.replica_numbers() {
            match self.received(number).await {
                Ok(Some(position)) if best.is_none_or(|(most, _)| position > most) => {
                    best = Some((position, number));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(best.context("no standby answers")?.1)
    }

    /// What a standby has received, in bytes of the log; `None` on a primary.
    async fn received(&self, number: usize) -> Result<Option<u64>> {
        let rows = self
            .node(number)
            .sql(
                "SELECT GREATEST(pg_last_wal_receive_lsn(), pg_last_wal_replay_lsn()) - '0/0' \
                 WHERE pg_is_in_recovery()",
            )
            .await?;
        let value = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next().flatten());
        Ok(value.map(|text| text.parse()).transpose()?)
    }

    /// Promotes a standby; it is the primary from then on. The old one is left as it is: killed
    /// before and started again, it comes back as a second primary.
    ///
    /// # Errors
    /// As [`PostgresServer::promote`].
    pub async fn promote(&self, number: usize) -> Result<()> {
        self.node(number).promote().await?;
        self.primary.store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Makes a standby replay each commit this long after the primary made it; zero ends that.
    ///
    /// # Errors
    /// As [`PostgresServer::sql`].
    pub async fn hold_back(&self, number: usize, delay: Duration) -> Result<()> {
        let delay = format!("{}ms", delay.as_millis());
        self.node(number)
            .set("recovery_min_apply_delay", &delay)
            .await
    }

    /// Waits until at least `count` standbys stream from the primary.
    ///
    /// # Errors
    /// They did not within 30 s; the message holds the end of each node's log.
    pub async fn wait_attached(&self, count: usize) -> Result<()> {
        let attached = format!(
            "SELECT count(*) >= {count} FROM pg_stat_replication WHERE state = 'streaming'"
        );
        self.wait_true(self.primary_number(), &attached).await
    }

    /// Waits until every running standby has replayed all that the primary has written so far.
    ///
    /// # Errors
    /// They did not within 30 s, or the primary does not answer.
    pub async fn wait_caught_up(&self) -> Result<()> {
        let written = self.primary().value("SELECT pg_current_wal_lsn()").await?;
        let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{written}'");
        for number in self.replica_numbers() {
            if self.node(number).pid().is_some() {
                self.wait_true(number, &replayed).await?;
            }
        }
        Ok(())
    }

    async fn wait_true(&self, number: usize, question: &str) -> Result<()> {
        let end = Instant::now() + PATIENCE;
        while !matches!(self.node(number).value(question).await.as_deref(), Ok("t")) {
            if Instant::now() > end {
                bail!(
                    "node {number} not within {PATIENCE:?}: {question}\n{}",
                    self.logs()
                );
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    fn logs(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "--- node {number}\n{}", node.log_tail());
        }
        text
    }
}

/// The caller's options come last, so that a test can loosen what is set here.
fn node_options(options: &PostgresOptions, number: usize, replicas: usize) -> PostgresOptions {
    let mut settings = vec![
        ("cluster_name", node_name(number)),
        ("hot_standby", "on".to_owned()),
        ("max_wal_senders", "16".to_owned()),
        // Short, so that a dead or stopped peer is left soon.
        ("wal_receiver_timeout", "2s".to_owned()),
        ("wal_receiver_status_interval", "1s".to_owned()),
        ("wal_sender_timeout", "2s".to_owned()),
        ("wal_retrieve_retry_interval", "100ms".to_owned()),
    ];
    if replicas > 0 {
        let names: Vec<String> = (0..=replicas).map(node_name).collect();
        settings.push((
            "synchronous_standby_names",
            format!("ANY 1 ({})", names.join(", ")),
        ));
    }
    options.clone().beneath(settings)
}

fn node_name(number: usize) -> String {
    format!("node{number}")
}

/// How a standby finds whoever is primary among the others.
fn conninfo(ports: &[u16], number: usize) -> String {
    let others: Vec<String> = ports
        .iter()
        .enumerate()
        .filter(|(other, _)| *other != number)
        .map(|(_, port)| port.to_string())
        .collect();
    let hosts = vec!["127.0.0.1"; others.len()].join(",");
    format!(
        "host={hosts} port={} user=postgres application_name={} target_session_attrs=read-write \
         connect_timeout=2 sslmode=disable",
        others.join(","),
        node_name(number),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standby_looks_for_the_primary_at_all_others() {
        let text = conninfo(&[1, 2, 3], 1);
        assert!(
            text.starts_with("host=127.0.0.1,127.0.0.1 port=1,3 user=postgres"),
            "{text}"
        );
        assert!(
            text.contains("application_name=node1 target_session_attrs=read-write"),
            "{text}"
        );
    }
}
