//! COMMITs whose answer is swallowed, at every moment and with the primary killed: what the proof says of each is
//! compared with the rows that are there.

mod primaries;
mod schemas;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mainstay::sql::DataProxyBuilder;
use mainstay::sql::{
    Begin, BoxFuture, CommitProof, Driver, Options, Plain, ProofForm, Transaction, Value, Verbs,
};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, Database, EndpointSpec, Policy, Role, Safety, Sent, SqlError};
use mainstay_testkit::cases;
use mainstay_testkit::fault::{self, Fault, FaultPlan, Moment};
use mainstay_testkit::mariadb::MariadbServer;
use mainstay_testkit::postgres::PostgresServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lone;
use super::servers::{Server, first};
use super::swallowing::{Swallow, Swallowing};
use super::world::describe;

const CALLERS: u64 = 6;
/// Long enough for a statement on a busy machine: a lost COMMIT is what this is about.
const ATTEMPT: Duration = Duration::from_millis(1000);
/// Longer than a caller waits for COMMIT, so that it arrives when nobody expects it any more.
const LATE: Duration = ATTEMPT.saturating_add(Duration::from_millis(100));
/// Far longer than it takes to lose so many.
const LOAD_MAX: Duration = Duration::from_secs(600);
/// Of a thousand COMMITs so many are struck, those of the look for an earlier one too.
const PER_THOUSAND: u32 = 700;

/// How a caller commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Transaction,
    Closure,
    Script,
    Statement,
}

const WAYS: [Way; 4] = [Way::Transaction, Way::Closure, Way::Script, Way::Statement];

#[derive(Debug)]
struct Ended {
    way: Way,
    /// `None`: it says that it was committed.
    error: Option<SqlError>,
}

struct Story {
    proxy: DataProxy,
    next: AtomicI64,
    stop: AtomicBool,
    ended: Mutex<BTreeMap<i64, Ended>>,
}

fn prove(form: ProofForm, wait: Duration) -> CommitProof {
    CommitProof {
        wait,
        ..CommitProof::new(form)
    }
}

/// A source over one endpoint, whose commits are proven.
fn source(driver: Arc<dyn Driver>, proof: CommitProof, tasks: &Tasks) -> DataProxy {
    builder(driver, proof, tasks).build().unwrap()
}

fn builder(driver: Arc<dyn Driver>, proof: CommitProof, tasks: &Tasks) -> DataProxyBuilder {
    let policy = Policy::new(lone::settings(ATTEMPT)).unwrap();
    let chance = Chance::seeded(5);
    let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
    let member: Arc<dyn Database> = Arc::new(plain);
    DataProxy::builder("lone", policy)
        .tasks(tasks.clone())
        .chance(chance)
        .commit_proof(proof)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
}

impl Story {
    fn over(proxy: DataProxy) -> Arc<Self> {
        Arc::new(Story {
            proxy,
            next: AtomicI64::new(1),
            stop: AtomicBool::new(false),
            ended: Mutex::default(),
        })
    }

    fn insert(&self) -> String {
        let dialect = self.proxy.dialect();
        format!("INSERT INTO marks (id) VALUES ({})", first(dialect))
    }

    async fn call(&self, way: Way) -> i64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let result = match way {
            Way::Transaction => self.transact(id).await,
            Way::Closure => self.closure(id).await,
            Way::Script => self.script(id).await,
            Way::Statement => self.statement(id).await,
        };
        let error = result.err();
        self.ended.lock().insert(id, Ended { way, error });
        id
    }

    async fn transact(&self, id: i64) -> Result<(), SqlError> {
        let scope = mainstay::sql::Scope::default();
        let mut transaction = self.proxy.begin(&Begin::default(), scope).await?;
        let insert = self.insert();
        run(&insert, transaction.as_mut(), id).await?;
        transaction.commit().await.map(drop)
    }

    async fn closure(&self, id: i64) -> Result<(), SqlError> {
        let insert = self.insert();
        let insert = insert.as_str();
        let again = self
            .proxy
            .transaction(Begin::default(), 2, move |transaction| {
                let insert = insert.to_owned();
                Box::pin(async move { run(&insert, transaction, id).await }) as BoxFuture<'_, _>
            });
        again.await
    }

    async fn script(&self, id: i64) -> Result<(), SqlError> {
        let text = format!("INSERT INTO marks (id) VALUES ({id}); SELECT 1");
        let answer = self.proxy.script(&text, Options::default()).await?;
        assert_eq!(answer.results.len(), 2, "the answer of a lost commit too");
        Ok(())
    }

    async fn statement(&self, id: i64) -> Result<(), SqlError> {
        let params = vec![Value::I64(id)];
        let answer = self
            .proxy
            .execute(&self.insert(), params, Options::default())
            .await?;
        assert_eq!(answer.affected, Some(1), "the answer of a lost commit too");
        Ok(())
    }
}

async fn run(insert: &str, transaction: &mut dyn Transaction, id: i64) -> Result<(), SqlError> {
    let request = lone::statement(insert, vec![Value::I64(id)], Safety::Write);
    transaction.run(&request).await.map(drop)
}

/// How often each is there against what was said of it. Returns how many ended in which way, and how many of them
/// are unknown.
fn judge(ended: &BTreeMap<i64, Ended>, stored: &BTreeMap<i64, i64>) -> (u64, u64) {
    let (mut wrong, mut unknown) = (Vec::new(), 0);
    let mut table: BTreeMap<(Way, &str), usize> = BTreeMap::new();
    for (id, Ended { way, error }) in ended {
        let times = stored.get(id).copied().unwrap_or(0);
        let code = error.as_ref().map_or("ok", |error| error.code().as_str());
        *table.entry((*way, code)).or_default() += 1;
        let is_true = match error.as_ref().map(SqlError::sent) {
            None => times == 1,
            Some(Sent::Maybe) => {
                println!("unknown: {way:?} {id}, {:?}", error.as_ref().map(describe));
                unknown += 1;
                times <= 1 && code == "outcome_unknown"
            }
            Some(Sent::No | Sent::YesUnprocessed) => times == 0,
        };
        if !is_true {
            let said = error.as_ref().map(describe);
            wrong.push(format!("{way:?} {id}: there {times} times, {said:?}"));
        }
    }
    println!("{table:?}");
    assert!(wrong.is_empty(), "{wrong:#?}");
    (ended.len() as u64, unknown)
}

async fn stored(server: &impl Server) -> BTreeMap<i64, i64> {
    let rows = server
        .sql("SELECT id, count(*) FROM marks GROUP BY id")
        .await
        .unwrap();
    let number = |text: &Option<String>| text.as_deref().unwrap().parse::<i64>().unwrap();
    rows.iter()
        .map(|row| (number(&row[0]), number(&row[1])))
        .collect()
}

const MARKS: &str = "CREATE TABLE marks (id bigint NOT NULL)";

/// Callers that go on until so many COMMITs were lost.
async fn load(story: &Arc<Story>, enough: impl Fn() -> bool) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let story = Arc::clone(story);
        callers.spawn(async move {
            let mut turn = caller;
            while !story.stop.load(Ordering::Acquire) {
                story
                    .call(WAYS[usize::try_from(turn).unwrap() % WAYS.len()])
                    .await;
                turn += 1;
            }
        });
    }
    let end = Instant::now() + LOAD_MAX;
    while !enough() {
        assert!(
            Instant::now() < end,
            "too few: {:?}",
            story.ended.lock().last_key_value()
        );
        tokio::select! {
            Some(ended) = callers.join_next() => panic!("a caller ended: {ended:?}"),
            () = tokio::time::sleep(Duration::from_millis(10)) => {}
        }
    }
    story.stop.store(true, Ordering::Release);
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller does not panic");
    }
}

fn is_commit(moment: &Moment) -> bool {
    moment.text.contains("COMMIT")
}

/// Swallows the answers of COMMITs while `on`.
fn swallow(seed: u64, on: &Arc<AtomicBool>) -> impl FaultPlan + 'static {
    let menu = Fault::all(LATE);
    let mut drawn = fault::seeded(seed, PER_THOUSAND, menu, is_commit);
    let on = Arc::clone(on);
    move |moment: &Moment| drawn.decide(moment).filter(|_| on.load(Ordering::Acquire))
}

/// Swallows COMMITs between a source and one server, without more.
async fn lose<S: Server>(form: ProofForm) {
    let seed = mainstay_testkit::seed();
    let losses = cases(30, 440) as u64;
    println!("seed {seed}, {losses} lost commits");
    let server = S::start(&[]).await;
    server.sql(MARKS).await.unwrap();
    let on = Arc::new(AtomicBool::new(true));
    let faults = server.behind_faults(swallow(seed, &on));
    let tasks = Tasks::new();
    let driver = S::driver(faults.port(), S::SUPERUSER, &tasks);
    let story = Story::over(source(driver, prove(form, Duration::from_secs(20)), &tasks));
    load(&story, || {
        let counts = faults.counts();
        counts.cuts + counts.hangs + counts.delays >= losses
    })
    .await;
    on.store(false, Ordering::Release);
    faults.settle().await.unwrap();
    lone::wait_without_transactions(&server).await;
    let stored = stored(&server).await;
    let (calls, unknown) = judge(&story.ended.lock(), &stored);
    println!(
        "{form:?}: {unknown} unknown of {calls} calls, {:?}",
        faults.counts()
    );
    assert_eq!(unknown, 0, "the server was there all the time");
    story.proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_postgresql_is_proven_by_a_row() {
    lose::<PostgresServer>(ProofForm::Table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_postgresql_is_proven_by_its_number() {
    lose::<PostgresServer>(ProofForm::Xid).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_mariadb_is_proven_by_a_row() {
    lose::<MariadbServer>(ProofForm::Table).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_of_sqlite_is_proven_by_a_row() {
    let seed = mainstay_testkit::seed();
    let losses = cases(30, 440) as u64;
    println!("seed {seed}, {losses} lost commits");
    let folder = tempfile::tempdir().unwrap();
    let swallow = Swallow::new(seed, PER_THOUSAND);
    let driver = Swallowing::over(folder.path().join("s.db"), Arc::clone(&swallow));
    let tasks = Tasks::new();
    let form = ProofForm::Table;
    let proof = prove(form, Duration::from_secs(20));
    let story = Story::over(source(Arc::new(driver), proof, &tasks));
    swallow.set(false);
    let made = story.proxy.execute(MARKS, Vec::new(), Options::default());
    made.await.unwrap();
    swallow.set(true);
    load(&story, || swallow.count() >= losses).await;
    swallow.set(false);
    let rows = story
        .proxy
        .query(
            "SELECT id, count(*) FROM marks GROUP BY id",
            Vec::new(),
            Options::default(),
        )
        .await
        .unwrap()
        .rows;
    let number = |value: &Value| match value {
        Value::I64(number) => *number,
        other => panic!("{other:?}"),
    };
    let stored = rows.iter().map(|row| (number(&row[0]), number(&row[1])));
    let (calls, unknown) = judge(&story.ended.lock(), &stored.collect());
    println!(
        "{form:?}: {unknown} unknown of {calls} calls, {} lost",
        swallow.count()
    );
    assert_eq!(unknown, 0);
    story.proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

/// PostgreSQL gives it a number of its own accord only in COMMIT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_notifies_is_not_called_committed_where_its_commit_never_left() {
    for form in [ProofForm::Xid, ProofForm::Table] {
        let server = <PostgresServer as Server>::start(&[]).await;
        let cut = Fault::new(
            fault::Point::BeforeSend,
            fault::Action::Cut(fault::Cut::Rst),
        );
        // Not the COMMIT that makes the table.
        let is_set = Arc::new(AtomicBool::new(false));
        let strikes = Arc::clone(&is_set);
        let faults = server.behind_faults(move |moment: &Moment| {
            let is_first = is_commit(moment) && strikes.swap(false, Ordering::AcqRel);
            is_first.then_some(cut)
        });
        let tasks = Tasks::new();
        let driver = PostgresServer::driver(faults.port(), PostgresServer::SUPERUSER, &tasks);
        let proxy = source(driver, prove(form, Duration::from_secs(20)), &tasks);
        let scope = mainstay::sql::Scope::default();
        let mut transaction = proxy.begin(&Begin::default(), scope).await.unwrap();
        let notify = lone::statement("NOTIFY told, 'news'", Vec::new(), Safety::Write);
        transaction.run(&notify).await.unwrap();
        is_set.store(true, Ordering::Release);
        let error = transaction.commit().await.unwrap_err();
        let said = (error.code().as_str(), error.sent());
        assert_eq!(said, ("transaction_lost", Sent::YesUnprocessed), "{form:?}");
        proxy.close(Duration::from_secs(5)).await;
        assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
}
