//! A primary with replicas.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::time::{Instant, sleep};

use super::{MariadbOptions, MariadbServer, PATIENCE};

/// One primary and replicas by GTID, with semi-synchronous replication (`AFTER_SYNC`): a commit waits
/// until one of the others has received it, however long that takes.
///
/// Nodes are numbered; node 0 is the first primary. Replicas are `read_only`.
#[derive(Debug)]
pub struct MariadbCluster {
    nodes: Vec<MariadbServer>,
    primary: AtomicUsize,
}

impl MariadbCluster {
    /// Starts a primary and `replicas` replicas and waits until all of them are attached. `options`
    /// hold for every node.
    ///
    /// # Errors
    /// As [`MariadbServer::start`]; a replica did not attach within 30 s.
    pub async fn start(replicas: usize, options: MariadbOptions) -> Result<Self> {
        let mut nodes = Vec::with_capacity(replicas + 1);
        for number in 0..=replicas {
            let options = node_options(&options, number, replicas);
            let node = MariadbServer::lay(options).await?;
            node.launch()?;
            nodes.push(node);
        }
        let cluster = Self {
            nodes,
            primary: AtomicUsize::new(0),
        };
        for node in &cluster.nodes {
            node.wait_ready().await?;
        }
        for number in cluster.replica_numbers() {
            cluster.attach(number).await?;
        }
        cluster.wait_attached(replicas).await?;
        Ok(cluster)
    }

    /// All nodes; their order never changes.
    pub fn nodes(&self) -> &[MariadbServer] {
        &self.nodes
    }

    /// One node by its number.
    ///
    /// # Panics
    /// There is no such node.
    pub fn node(&self, number: usize) -> &MariadbServer {
        &self.nodes[number]
    }

    /// The number of the primary: node 0, or the last promoted.
    pub fn primary_number(&self) -> usize {
        self.primary.load(Ordering::SeqCst)
    }

    /// The primary: node 0, or the last promoted.
    pub fn primary(&self) -> &MariadbServer {
        self.node(self.primary_number())
    }

    /// The numbers of all nodes but the primary, running or not.
    pub fn replica_numbers(&self) -> Vec<usize> {
        (0..self.nodes.len())
            .filter(|number| *number != self.primary_number())
            .collect()
    }

    /// Makes a running node replicate from the primary, from where it is.
    ///
    /// # Errors
    /// As [`MariadbServer::sql`].
    pub async fn attach(&self, number: usize) -> Result<()> {
        let from = self.primary().port();
        self.node(number)
            .sql(&format!(
                "STOP SLAVE; SET GLOBAL read_only = ON; SET GLOBAL rpl_semi_sync_master_enabled = OFF; \
                 CHANGE MASTER TO master_host = '127.0.0.1', master_port = {from}, \
                 master_user = 'root', master_use_gtid = slave_pos, master_connect_retry = 1, \
                 master_heartbeat_period = 0.5; START SLAVE"
            ))
            .await?;
        Ok(())
    }

    /// The running replica that has received most of what the primary wrote.
    ///
    /// # Errors
    /// No replica answers.
    pub async fn most_advanced_replica(&self) -> Result<usize> {
        let mut best: Option<(u64, usize)> = None;
        for number in self.replica_numbers() {
            match self.received(number).await {
                Ok(position) if best.is_none_or(|(most, _)| position > most) => {
                    best = Some((position, number));
                }
                Ok(_) | Err(_) => {}
            }
        }
        Ok(best.context("no replica answers")?.1)
    }

    /// The number of the last transaction that a replica has received.
    async fn received(&self, number: usize) -> Result<u64> {
        let session = self.node(number).session().await?;
        let position = session.field("SHOW SLAVE STATUS", "Gtid_IO_Pos").await?;
        let last = position.rsplit('-').next().unwrap_or_default();
        Ok(last.parse().unwrap_or(0))
    }

    /// Promotes a replica after it has applied all that it has received; it is the primary from then
    /// on, and the other running replicas follow it. The old one is left as it is: killed before and
    /// started again, it comes back as a second primary.
    ///
    /// # Errors
    /// As [`MariadbServer::sql`]; it has not applied everything within 30 s.
    pub async fn promote(&self, number: usize) -> Result<()> {
        let node = self.node(number);
        let session = node.session().await?;
        session.sql("STOP SLAVE IO_THREAD").await?;
        let received = session.field("SHOW SLAVE STATUS", "Gtid_IO_Pos").await?;
        wait_for(node, &received).await?;
        let old = self.primary.swap(number, Ordering::SeqCst);
        session
            .sql(
                "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL rpl_semi_sync_master_enabled = ON; \
                 SET GLOBAL read_only = OFF",
            )
            .await?;
        {
            let mut options = node.options();
            options.set("read_only", "OFF");
            options.set("rpl_semi_sync_master_enabled", "ON");
        }
        node.configure()?;
        let mut followers = 0;
        for other in self.replica_numbers() {
            if other != old && self.node(other).pid().is_some() {
                self.attach(other).await?;
                followers += 1;
            }
        }
        self.wait_attached(followers).await
    }

    /// Makes a replica apply each commit this many whole seconds after the primary made it; zero ends
    /// that.
    ///
    /// # Errors
    /// As [`MariadbServer::sql`].
    pub async fn hold_back(&self, number: usize, delay: Duration) -> Result<()> {
        let seconds = delay.as_secs_f64().ceil();
        self.node(number)
            .sql(&format!(
                "STOP SLAVE; CHANGE MASTER TO master_delay = {seconds}; START SLAVE"
            ))
            .await?;
        Ok(())
    }

    /// Waits until at least `count` replicas acknowledge what the primary writes.
    ///
    /// # Errors
    /// They did not within 30 s; the message holds the end of each node's log.
    pub async fn wait_attached(&self, count: usize) -> Result<()> {
        let question = "SELECT variable_value FROM information_schema.global_status \
                        WHERE variable_name = 'Rpl_semi_sync_master_clients'";
        let end = Instant::now() + PATIENCE;
        loop {
            let attached = self.primary().value(question).await;
            let attached = attached.ok().and_then(|text| text.parse::<usize>().ok());
            if attached.is_some_and(|attached| attached >= count) {
                return Ok(());
            }
            if Instant::now() > end {
                bail!(
                    "not {count} replicas attached within {PATIENCE:?}\n{}",
                    self.logs()
                );
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until every running replica has applied all that the primary has written so far.
    ///
    /// # Errors
    /// They did not within 30 s, or the primary does not answer.
    pub async fn wait_caught_up(&self) -> Result<()> {
        let written = self.primary().value("SELECT @@gtid_binlog_pos").await?;
        for number in self.replica_numbers() {
            if self.node(number).pid().is_some() {
                wait_for(self.node(number), &written).await?;
            }
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

/// Waits until a replica has applied everything up to a position.
async fn wait_for(node: &MariadbServer, position: &str) -> Result<()> {
    let limit = PATIENCE.as_secs();
    let waited = node
        .value(&format!("SELECT MASTER_GTID_WAIT('{position}', {limit})"))
        .await?;
    match waited.as_str() {
        "0" => Ok(()),
        _ => bail!("not at {position} within {PATIENCE:?}\n{}", node.log_tail()),
    }
}

/// The caller's options come last, so that a test can loosen what is set here.
fn node_options(options: &MariadbOptions, number: usize, replicas: usize) -> MariadbOptions {
    let (is_primary, is_alone) = (number == 0, replicas == 0);
    let on_or_off = |on: bool| if on { "ON" } else { "OFF" }.to_owned();
    let settings = vec![
        ("server_id", (number + 1).to_string()),
        ("read_only", on_or_off(!is_primary)),
        ("rpl_semi_sync_slave_enabled", on_or_off(true)),
        (
            "rpl_semi_sync_master_enabled",
            on_or_off(is_primary && !is_alone),
        ),
        ("rpl_semi_sync_master_wait_point", "AFTER_SYNC".to_owned()),
        // A day: no test goes on without a replica.
        ("rpl_semi_sync_master_timeout", "86400000".to_owned()),
        // Short, so that a dead or stopped peer is left soon.
        ("slave_net_timeout", "2".to_owned()),
    ];
    options.clone().beneath(settings)
}
