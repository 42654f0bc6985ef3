//! COMMITs that are lost together with their primary, which comes back or is followed by another one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mainstay::sql::{Plain, ProofForm};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, Database, EndpointSpec, Policy, Preset, Role, Sent};
use mainstay_testkit::cases;
use mainstay_testkit::fault::{Action, Cut, Fault, Moment, Point};
use mainstay_testkit::mariadb::MariadbCluster;
use mainstay_testkit::postgres::PostgresCluster;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::super::lone;
use super::super::servers::{Cluster, Server, Setting};
use super::super::world::{self, NAMES, describe};
use super::{MARKS, Story, WAYS, Way, is_commit, judge, prove, stored};

/// The next COMMIT on any node loses its answer, and somebody is told.
#[derive(Default)]
struct Trap {
    is_set: AtomicBool,
    /// Which of the faults.
    turn: AtomicU64,
    sprung: Notify,
}

impl Trap {
    /// The COMMIT has left or has run, and its answer does not come.
    const FAULTS: [Fault; 4] = [
        Fault::new(Point::AfterSend, Action::Cut(Cut::Rst)),
        Fault::new(Point::AfterSend, Action::Hang),
        Fault::new(Point::BeforeAnswer, Action::Cut(Cut::Fin)),
        Fault::new(Point::BeforeSend, Action::Hang),
    ];

    fn decide(&self, moment: &Moment) -> Option<Fault> {
        if !is_commit(moment) || !self.is_set.swap(false, Ordering::AcqRel) {
            return None;
        }
        self.sprung.notify_one();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        Some(Self::FAULTS[usize::try_from(turn).unwrap() % Self::FAULTS.len()])
    }
}

struct Nodes<C: Cluster> {
    cluster: C,
    faults: Vec<mainstay_testkit::fault::FaultProxy>,
    trap: Arc<Trap>,
}

impl<C: Cluster> Nodes<C> {
    async fn start(trap: &Arc<Trap>, settings: &[Setting]) -> Self {
        // Two are left behind by promotions; the last primary still has one, without which it commits nothing.
        let cluster = C::start(3, settings).await;
        cluster.primary().sql(MARKS).await.unwrap();
        let behind = |node: &C::Node| {
            let trap = Arc::clone(trap);
            node.behind_faults(move |moment: &Moment| trap.decide(moment))
        };
        let faults = cluster.nodes().iter().map(behind).collect();
        Nodes {
            cluster,
            faults,
            trap: Arc::clone(trap),
        }
    }

    fn source(&self, form: ProofForm, tasks: &Tasks) -> DataProxy {
        let mut settings = Preset::Balanced.settings();
        settings.retry.attempt_timeout = Some(Duration::from_secs(1));
        settings.retry.attempt_timeout_is_set = true;
        settings.circuit.failures = 0;
        settings.route.primary_wait = Duration::from_secs(20);
        let policy = Policy::new(settings).unwrap();
        let chance = Chance::seeded(6);
        let mut builder = DataProxy::builder("cluster", Arc::clone(&policy))
            .tasks(tasks.clone())
            .chance(chance.clone())
            .commit_proof(prove(form, Duration::from_secs(30)));
        for (faults, name) in self.faults.iter().zip(NAMES) {
            let driver = C::Node::driver(faults.port(), C::Node::SUPERUSER, tasks);
            let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
            let member: Arc<dyn Database> = Arc::new(plain);
            builder = builder.endpoint(EndpointSpec::new(name, member).role(Role::Replica));
        }
        builder.build().unwrap()
    }

    /// One lost COMMIT, with the primary killed about when it leaves, and started again or followed by another.
    async fn lose_with_primary(
        &self,
        story: &Arc<Story>,
        way: Way,
        promotes: bool,
        pause: Duration,
    ) {
        let calling = {
            let story = Arc::clone(story);
            self.trap.is_set.store(true, Ordering::Release);
            async move { story.call(way).await }
        };
        let killing = async {
            self.trap.sprung.notified().await;
            tokio::time::sleep(pause).await;
            let old = self.cluster.primary_number();
            self.cluster.node(old).kill9().await;
            match promotes {
                true => {
                    let next = self.cluster.most_advanced_replica().await;
                    self.cluster.promote(next).await;
                }
                false => {
                    self.cluster.node(old).start_again().await;
                    self.cluster.wait_attached(1).await;
                }
            }
        };
        let began = Instant::now();
        tokio::join!(calling, killing);
        println!(
            "{way:?}, promotes {promotes}, {pause:?}: {:?}",
            began.elapsed()
        );
    }
}

/// `losses` COMMITs lost together with their primary. Every cluster has two successors.
async fn lose_primaries<C: Cluster>(form: ProofForm, losses: usize, is_always_known: bool) {
    let seed = mainstay_testkit::seed();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let trap = Arc::new(Trap::default());
    let (mut done, mut calls, mut unknown) = (0, 0, 0);
    while done < losses {
        let tasks = Tasks::new();
        let nodes = Nodes::<C>::start(&trap, &[]).await;
        let story = Story::over(nodes.source(form, &tasks));
        world::wait_for_primary(&story.proxy).await;
        let warm = story.call(Way::Statement).await;
        assert!(
            story.ended.lock()[&warm].error.is_none(),
            "{:?}",
            story.ended.lock()
        );
        for promotes in [false, true, false, true] {
            if done == losses {
                break;
            }
            let way = WAYS[done % WAYS.len()];
            let pause = Duration::from_micros(random.u64(0..8_000));
            nodes.lose_with_primary(&story, way, promotes, pause).await;
            done += 1;
        }
        let primary = nodes.cluster.primary();
        lone::wait_without_transactions(primary).await;
        let stored = stored(primary).await;
        let judged = judge(&story.ended.lock(), &stored);
        calls += judged.0;
        unknown += judged.1;
        story.proxy.close(Duration::from_secs(5)).await;
        assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
    println!("{form:?}: {unknown} unknown of {done} lost with their primary, {calls} calls");
    assert!(unknown == 0 || !is_always_known);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_lost_with_its_primary_is_proven_by_a_row_on_postgresql() {
    lose_primaries::<PostgresCluster>(ProofForm::Table, cases(4, 60), true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_lost_with_its_primary_is_never_told_wrongly_where_only_its_number_is_known() {
    lose_primaries::<PostgresCluster>(ProofForm::Xid, cases(2, 60), false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_lost_with_its_primary_is_proven_by_a_row_on_mariadb() {
    lose_primaries::<MariadbCluster>(ProofForm::Table, cases(4, 60), true).await;
}

/// Where commits wait for nobody, the old primary may have what the new one has not.
async fn proves_nothing<C: Cluster>(settings: &[Setting]) {
    let trap = Arc::new(Trap::default());
    // The fault that keeps COMMIT from leaving: it is on no server.
    trap.turn.store(3, Ordering::Relaxed);
    let tasks = Tasks::new();
    let nodes = Nodes::<C>::start(&trap, settings).await;
    let story = Story::over(nodes.source(ProofForm::Table, &tasks));
    world::wait_for_primary(&story.proxy).await;
    story.call(Way::Statement).await;
    nodes.cluster.wait_caught_up().await;
    nodes
        .lose_with_primary(&story, Way::Transaction, true, Duration::ZERO)
        .await;
    let ended = std::mem::take(&mut *story.ended.lock());
    let (_, lost) = ended.last_key_value().unwrap();
    let error = lost.error.as_ref().unwrap();
    let said = (error.code().as_str(), error.sent());
    assert_eq!(
        said,
        ("outcome_unknown", Sent::Maybe),
        "{}",
        describe(error)
    );
    story.proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_synchronous_standbys_a_missing_row_on_another_server_proves_nothing() {
    proves_nothing::<PostgresCluster>(&[("synchronous_standby_names", "")]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_semi_synchronous_replicas_a_missing_row_on_another_server_proves_nothing() {
    proves_nothing::<MariadbCluster>(&[("rpl_semi_sync_master_timeout", "1")]).await;
}

/// What a transaction was told about its own COMMIT counts, not what its server does otherwise.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_told_to_wait_for_no_standby_is_not_called_aborted_by_the_next_primary() {
    let trap = Arc::new(Trap::default());
    // The fault that keeps COMMIT from leaving: it is on no server.
    trap.turn.store(3, Ordering::Relaxed);
    let tasks = Tasks::new();
    let nodes = Nodes::<PostgresCluster>::start(&trap, &[]).await;
    let cluster = &nodes.cluster;
    let story = Story::over(nodes.source(ProofForm::Table, &tasks));
    world::wait_for_primary(&story.proxy).await;
    story.call(Way::Statement).await;
    let calling = async {
        let scope = mainstay::sql::Scope::default();
        let begin = mainstay::sql::Begin::default();
        let mut transaction = story.proxy.begin(&begin, scope).await.unwrap();
        let told = "SET LOCAL synchronous_commit = local";
        let told = lone::statement(told, Vec::new(), mainstay::Safety::Write);
        transaction.run(&told).await.unwrap();
        trap.is_set.store(true, Ordering::Release);
        transaction.commit().await.unwrap_err()
    };
    let killing = async {
        trap.sprung.notified().await;
        cluster
            .node(cluster.primary_number())
            .kill9()
            .await
            .unwrap();
        let next = cluster.most_advanced_replica().await.unwrap();
        cluster.promote(next).await.unwrap();
    };
    let (error, ()) = tokio::join!(calling, killing);
    let said = (error.code().as_str(), error.sent());
    let wanted = ("outcome_unknown", Sent::Maybe);
    assert_eq!(said, wanted, "{}", describe(&error));
    story.proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

/// A replica acknowledges what it has received: promoted before it has applied it, it does not have it yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_that_the_new_primary_has_only_received_is_waited_for_on_mariadb() {
    let trap = Arc::new(Trap::default());
    // The fault that lets COMMIT leave and keeps its answer: nobody looks before the primary is killed.
    trap.turn.store(1, Ordering::Relaxed);
    let tasks = Tasks::new();
    let nodes = Nodes::<MariadbCluster>::start(&trap, &[]).await;
    let cluster = &nodes.cluster;
    let story = Story::over(nodes.source(ProofForm::Table, &tasks));
    world::wait_for_primary(&story.proxy).await;
    story.call(Way::Statement).await;
    cluster.wait_caught_up().await.unwrap();
    // Their appliers wait for the table.
    let mut holds = Vec::new();
    for number in cluster.replica_numbers() {
        let session = cluster.node(number).session().await.unwrap();
        session.sql("LOCK TABLES marks READ").await.unwrap();
        holds.push(session);
    }
    let received = async |session: &mainstay_testkit::mariadb::MariadbSession| {
        let received = session.field("SHOW SLAVE STATUS", "Gtid_IO_Pos").await;
        received.unwrap()
    };
    let before = received(&holds[0]).await;
    let losing = async {
        trap.sprung.notified().await;
        for session in &holds {
            mainstay_testkit::until("the COMMIT is received", async || {
                received(session).await != before
            })
            .await;
        }
        cluster
            .node(cluster.primary_number())
            .kill9()
            .await
            .unwrap();
        let next = cluster.most_advanced_replica().await.unwrap();
        let next = cluster.node(next);
        let early = "SET GLOBAL rpl_semi_sync_master_enabled = OFF; SET GLOBAL read_only = OFF";
        next.sql(early).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        next.sql("STOP SLAVE IO_THREAD").await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(holds);
    };
    trap.is_set.store(true, Ordering::Release);
    let (id, ()) = tokio::join!(story.call(Way::Transaction), losing);
    let error = story.ended.lock()[&id].error.as_ref().map(describe);
    assert_eq!(error, None, "it is in the relay log");
    story.proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
