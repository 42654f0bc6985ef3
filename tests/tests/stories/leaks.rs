//! What an abandoned BEGIN and a late cancel must never do: hand an open transaction to the next
//! borrower, or stop another caller's statement.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mainstay::sql::{Begin, Options, Scope, Value, Verbs};
use mainstay::{Database, Safety};
use mainstay_testkit::cases;
use mainstay_testkit::cut::cut_at;
use mainstay_testkit::fault::{self, Action, Cut, Fault, Kind, Point};
use mainstay_testkit::mariadb::MariadbServer;
use mainstay_testkit::postgres::PostgresServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::lone::{self, Lone};
use super::servers::{Server, first};
use super::world::describe;

/// After which a BEGIN is given up.
const BEGIN_MAX: Duration = Duration::from_millis(150);
/// A connection is cleaned up for 2 s at most; the rest is for a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// How a database tells what a leak would change.
trait Tells: Server {
    /// Gives what must be NULL or 0 outside of a transaction, and what differs between two transactions.
    const TRANSACTION: &str;
    /// Gives this number after so many seconds.
    fn sleep(seconds: f64, number: u32) -> String;
}

impl Tells for PostgresServer {
    const TRANSACTION: &str =
        "SELECT pg_current_xact_id_if_assigned()::text, pg_current_xact_id()::text";

    fn sleep(seconds: f64, number: u32) -> String {
        format!("SELECT {number}::bigint FROM pg_sleep({seconds})")
    }
}

impl Tells for MariadbServer {
    const TRANSACTION: &str = "SELECT NULLIF(@@in_transaction, 0), UUID()";

    fn sleep(seconds: f64, number: u32) -> String {
        format!("SELECT {number} + SLEEP({seconds})")
    }
}

async fn server<S: Server>() -> S {
    let server = S::start(&[]).await;
    server
        .sql("CREATE TABLE marks (id bigint NOT NULL)")
        .await
        .unwrap();
    server
}

/// One connection for everybody, and one attempt: who comes next gets what was left behind.
fn one_connection<S: Server>(port: u16) -> Lone {
    let mut settings = lone::settings(PATIENCE);
    settings.retry.attempts_max = 1;
    settings.pool.active_max = 1;
    Lone::of::<S>(port, settings)
}

/// Uses the connection twice. In a transaction left open both would have one transaction id, and what
/// is inserted would not be seen by others.
async fn check_next_borrower<S: Tells>(lone: &Lone, server: &S, id: i64, after: &str) {
    let mut seen = BTreeSet::new();
    for _ in 0..2 {
        let options = Options {
            safety: Some(Safety::Write),
            ..Options::default()
        };
        let answer = lone.proxy.query(S::TRANSACTION, Vec::new(), options).await;
        let answer = answer.unwrap_or_else(|error| panic!("{after}: {}", describe(&error)));
        let [assigned, given] = answer.rows[0].as_slice() else {
            panic!("{after}: {:?}", answer.rows);
        };
        assert_eq!(*assigned, Value::Null, "a transaction was open {after}");
        assert!(
            seen.insert(format!("{given:?}")),
            "two statements in one transaction {after}"
        );
    }
    let sql = format!("INSERT INTO marks VALUES ({})", first(lone.plain.dialect()));
    let params = vec![Value::I64(id)];
    let inserted = lone.proxy.execute(&sql, params, Options::default()).await;
    inserted.unwrap_or_else(|error| panic!("{after}: {}", describe(&error)));
    let count = format!("SELECT count(*) FROM marks WHERE id = {id}");
    assert_eq!(server.value(&count).await.unwrap(), "1", "{after}");
}

fn begin(deadline: Duration) -> Begin {
    let options = Options {
        deadline: Some(deadline),
        ..Options::default()
    };
    Begin {
        options,
        ..Begin::default()
    }
}

/// Ways to strike a BEGIN so that its caller gives up, or just does not.
fn faults() -> Vec<Option<Fault>> {
    let mut faults = vec![None];
    let delays = [BEGIN_MAX / 8, BEGIN_MAX + Duration::from_millis(60)];
    for point in [Point::BeforeSend, Point::AfterSend, Point::BeforeAnswer] {
        faults.push(Some(Fault::new(point, Action::Hang)));
        faults.push(Some(Fault::new(point, Action::Cut(Cut::Rst))));
        faults.extend(delays.map(|delay| Some(Fault::new(point, Action::Delay(delay)))));
    }
    faults
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_times_out_never_leaves_its_transaction_to_the_next_borrower() {
    give_begins_up::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_that_times_out_never_leaves_its_transaction_to_the_next_borrower_on_mariadb() {
    give_begins_up::<MariadbServer>().await;
}

async fn give_begins_up<S: Tells>() {
    let server = server::<S>().await;
    let proxy = server.behind_faults(fault::none());
    let lone = one_connection::<S>(proxy.port());
    for turn in 0..cases(1, 20) {
        for (number, fault) in faults().into_iter().enumerate() {
            proxy.set_plan(fault::queue(|moment| moment.kind == Kind::Begin, fault));
            let begun = lone.proxy.begin(&begin(BEGIN_MAX), Scope::default()).await;
            let after = format!("after a BEGIN with {fault:?}, ok {}", begun.is_ok());
            if let Err(error) = &begun {
                assert!(error.sent().is_proven_harmless(), "{}", describe(error));
            }
            drop(begun);
            let id = i64::try_from(turn * 100 + number).unwrap();
            check_next_borrower(&lone, &server, id, &after).await;
            lone.check_whole(&after).await;
        }
    }
    lone::wait_without_transactions(&server).await;
    lone.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_whose_caller_leaves_never_leaves_its_transaction_to_the_next_borrower() {
    leave_begins::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_begin_whose_caller_leaves_never_leaves_its_transaction_to_the_next_borrower_on_mariadb()
{
    leave_begins::<MariadbServer>().await;
}

async fn leave_begins<S: Tells>() {
    let server = server::<S>().await;
    let proxy = server.behind_faults(fault::none());
    let lone = one_connection::<S>(proxy.port());
    let mut chance = fastrand::Rng::with_seed(5);
    for id in 0..i64::try_from(cases(150, 2_000)).unwrap() {
        let (cold, leaves_after) = (chance.u64(0..4) == 0, chance.u64(0..20));
        if cold {
            proxy.cut_all(Cut::Rst);
        }
        let delay = Duration::from_millis(chance.u64(0..10));
        let points = [Point::BeforeSend, Point::AfterSend, Point::BeforeAnswer];
        let point = points[chance.usize(0..3)];
        let fault = Fault::new(point, Action::Delay(delay));
        proxy.set_plan(fault::queue(|moment| moment.kind == Kind::Begin, [fault]));
        let begin = begin(PATIENCE);
        let beginning = lone.proxy.begin(&begin, Scope::default());
        let after = match chance.u64(0..2) {
            0 => {
                let left = timeout(Duration::from_millis(leaves_after), beginning).await;
                format!("{fault:?}, left {} after {leaves_after} ms", left.is_err())
            }
            _ => {
                let pendings = 1 + usize::try_from(leaves_after).unwrap() / 4;
                let left = cut_at(pendings, beginning).await;
                format!("{fault:?}, left {} at poll {pendings}", left.is_none())
            }
        };
        check_next_borrower(&lone, &server, id, &after).await;
    }
    lone.check_whole("after all BEGINs").await;
    lone::wait_without_transactions(&server).await;
    lone.shut_down().await;
}

/// Callers that must not notice that others leave.
struct Bystanders {
    stop: AtomicBool,
    calls: AtomicU64,
    hit: Mutex<Vec<String>>,
}

impl Bystanders {
    async fn run(&self, lone: &Lone, sql: &str, number: usize) {
        // Half of them can be repeated by nobody, so that a hit cannot be mended unseen.
        let safety = if number.is_multiple_of(2) {
            Safety::Read
        } else {
            Safety::Write
        };
        while !self.stop.load(Ordering::Acquire) {
            let options = Options {
                safety: Some(safety),
                deadline: Some(Duration::from_secs(20)),
                ..Options::default()
            };
            match lone.proxy.scalar(sql, Vec::new(), options).await {
                Ok(value) => assert_eq!(value, Some(Value::I64(7))),
                Err(error) => self.hit.lock().push(describe(&error)),
            }
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Starts a statement and leaves it, or lets it run into its deadline.
async fn leave(lone: &Lone, sql: &str, chance: &mut fastrand::Rng) {
    let after = Duration::from_micros(500 + chance.u64(0..12_000));
    let safety = [Safety::Read, Safety::Write][chance.usize(0..2)];
    let times_out = chance.u64(0..3) == 0;
    let options = Options {
        safety: Some(safety),
        deadline: times_out.then_some(after),
        ..Options::default()
    };
    let call = lone.proxy.scalar(sql, Vec::new(), options);
    if times_out {
        let _ = call.await;
    } else {
        let _ = timeout(after, call).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_cancel_never_hits_another_callers_statement() {
    cancel_late::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_cancel_never_hits_another_callers_statement_on_mariadb() {
    cancel_late::<MariadbServer>().await;
}

async fn cancel_late<S: Tells>() {
    const LEAVERS: u64 = 4;
    let races = cases(1_000, 10_000) as u64;
    let server = server::<S>().await;
    let mut settings = lone::settings(Duration::from_secs(20));
    settings.retry.attempts_max = 1;
    settings.pool.active_max = 3;
    settings.pool.wait_max = Duration::from_secs(20);
    let lone = Arc::new(Lone::of::<S>(server.port(), settings));
    let bystanders = Arc::new(Bystanders {
        stop: AtomicBool::new(false),
        calls: AtomicU64::new(0),
        hit: Mutex::default(),
    });
    let (mut standing, mut leaving) = (JoinSet::new(), JoinSet::new());
    for number in 0..4 {
        let (lone, bystanders) = (Arc::clone(&lone), Arc::clone(&bystanders));
        standing.spawn(async move { bystanders.run(&lone, &S::sleep(0.004, 7), number).await });
    }
    for number in 0..LEAVERS {
        let lone = Arc::clone(&lone);
        leaving.spawn(async move {
            let mut chance = fastrand::Rng::with_seed(number);
            for _ in 0..races / LEAVERS {
                leave(&lone, &S::sleep(0.008, 1), &mut chance).await;
                sleep(Duration::from_micros(chance.u64(0..3_000))).await;
            }
        });
    }
    while let Some(ended) = leaving.join_next().await {
        ended.unwrap();
    }
    bystanders.stop.store(true, Ordering::Release);
    while let Some(ended) = standing.join_next().await {
        ended.unwrap();
    }
    lone.check_whole("after all races").await;
    let stats = lone.plain.pool_stats();
    let calls = bystanders.calls.load(Ordering::Relaxed);
    println!("{races} races, {calls} bystanders' calls, {stats:?}");
    assert_eq!(*bystanders.hit.lock(), Vec::<String>::new());
    assert!(
        // How many statements are under way when their callers leave is a matter of the machine: a clean-up on
        // MariaDB may hold its place for long.
        stats.cleanups > races / 50,
        "hardly anything was cancelled: {stats:?}"
    );
    lone::wait_without_transactions(&server).await;
    Arc::into_inner(lone).unwrap().shut_down().await;
}
