//! Thousands of seeded faults between Mainstay and a server, at each moment of a statement's life:
//! what it says about every call is compared with what the server holds and what the wire saw.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use mainstay::sql::proxy::WRITE_GRACE;
use mainstay::sql::{Begin, BoxFuture, Options, Transaction, Value, Verbs};
use mainstay::{Database, Safety, Sent, SqlError};
use mainstay_testkit::cases;
use mainstay_testkit::fault::{self, Action, Fault, FaultPlan, FaultProxy, Kind, Moment, Point};
use mainstay_testkit::mariadb::MariadbServer;
use mainstay_testkit::postgres::PostgresServer;
use parking_lot::Mutex;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::lone::{self, Lone};
use super::servers::Server;
use super::world::describe;

const CALLERS: u64 = 16;
/// Of a thousand statements so many are struck.
const PER_THOUSAND: u32 = 250;
const ATTEMPT: Duration = Duration::from_millis(250);
const DEADLINE: Duration = Duration::from_secs(3);
/// How much later than its limit a call may end: the wait for a proof, and a busy machine.
const LATE_MAX: Duration = Duration::from_millis(1000).saturating_add(WRITE_GRACE);

/// The statements in a database's own words.
#[derive(Debug, Clone, Copy)]
struct Words {
    schema: &'static str,
    insert: &'static str,
    upsert: &'static str,
    /// The text itself shows that the upsert may be repeated.
    shows: bool,
    step: &'static str,
    read: &'static str,
    /// A connection lost inside of a transaction proves that it was rolled back.
    rolls_back: bool,
}

const SCHEMA: &str = "CREATE TABLE marks (id bigint NOT NULL);
    CREATE TABLE kept (id bigint PRIMARY KEY, v bigint NOT NULL);
    CREATE TABLE steps (id bigint NOT NULL, step bigint NOT NULL);
    CREATE TABLE fixed (id bigint PRIMARY KEY, v text NOT NULL);
    INSERT INTO fixed WITH RECURSIVE g(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM g WHERE n < 99)
        SELECT n, concat('value ', n) FROM g";

const POSTGRES: Words = Words {
    schema: SCHEMA,
    insert: "INSERT INTO marks (id) VALUES ($1)",
    upsert: "INSERT INTO kept (id, v) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
    shows: true,
    step: "INSERT INTO steps (id, step) VALUES ($1, $2)",
    read: "SELECT v FROM fixed WHERE id = $1",
    rolls_back: true,
};

// A table without transactions would keep what a lost transaction had written: MySQL's driver cannot
// know which kind it was.
const MARIADB: Words = Words {
    schema: SCHEMA,
    insert: "INSERT INTO marks (id) VALUES (?)",
    upsert: "INSERT INTO kept (id, v) VALUES (?, ?) ON DUPLICATE KEY UPDATE v = VALUES(v)",
    shows: false,
    step: "INSERT INTO steps (id, step) VALUES (?, ?)",
    read: "SELECT v FROM fixed WHERE id = ?",
    rolls_back: false,
};

/// What a caller does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Task {
    /// A `Write`.
    Insert,
    /// An `IdempotentWrite`, as the text shows.
    Upsert,
    /// An `IdempotentWrite`, as the caller declares: an insert that may stand twice.
    Declared,
    Read,
    /// BEGIN, two inserts, COMMIT.
    Transaction,
    /// The same as a closure, which may be run again.
    Closure,
}

const TASKS: [Task; 6] = [
    Task::Insert,
    Task::Upsert,
    Task::Declared,
    Task::Read,
    Task::Transaction,
    Task::Closure,
];

/// What became of one.
#[derive(Debug)]
struct Outcome {
    task: Task,
    /// `None`: acknowledged.
    error: Option<SqlError>,
    taken: Duration,
    /// By when it had to end.
    limit: Duration,
}

/// What passed the wire on its way to the server.
#[derive(Default)]
struct Wire {
    /// Operations whose statement was seen, struck or not.
    seen: BTreeSet<i64>,
    /// Those handed to the server.
    forwarded: BTreeSet<i64>,
    /// Transactions whose COMMIT was seen.
    commits: BTreeSet<i64>,
    /// The transaction that a connection is in.
    inside: BTreeMap<u64, i64>,
}

impl Wire {
    fn note(&mut self, words: Words, moment: &Moment, fault: Option<Fault>) {
        if moment.kind == Kind::Prepare {
            return;
        }
        if is_commit(moment) {
            self.commits.extend(self.inside.get(&moment.connection));
            return;
        }
        let Some(id) = moment.parameters.first().and_then(|first| first.as_i64()) else {
            return;
        };
        if !moment.text.starts_with("INSERT") {
            return;
        }
        self.seen.insert(id);
        let stays = matches!(
            fault,
            Some(Fault {
                point: Point::BeforeSend,
                action: Action::Cut(_) | Action::Hang
            })
        );
        if !stays {
            self.forwarded.insert(id);
        }
        if &*moment.text == words.step {
            self.inside.insert(moment.connection, id);
        }
    }
}

fn is_commit(moment: &Moment) -> bool {
    moment.text.contains("COMMIT")
}

/// Statements of the callers: not the driver's own.
fn is_ours(words: Words, moment: &Moment) -> bool {
    let texts = [words.insert, words.upsert, words.step, words.read];
    moment.kind == Kind::Begin || is_commit(moment) || texts.contains(&&*moment.text)
}

/// Draws faults by the seed while `on`, and notes what passes.
fn plan(
    words: Words,
    seed: u64,
    on: Arc<AtomicBool>,
    wire: Arc<Mutex<Wire>>,
) -> impl FaultPlan + 'static {
    // Longer than a statement takes; and so long that its caller has given up.
    let delays = [
        Duration::from_millis(20),
        ATTEMPT + Duration::from_millis(80),
    ];
    let menu = delays.into_iter().flat_map(Fault::all).collect();
    let mut drawn = fault::seeded(seed, PER_THOUSAND, menu, move |moment| {
        is_ours(words, moment)
    });
    move |moment: &Moment| {
        let fault = drawn.decide(moment).filter(|_| on.load(Ordering::Acquire));
        wire.lock().note(words, moment, fault);
        fault
    }
}

struct Story {
    words: Words,
    lone: Lone,
    stop: AtomicBool,
    next: AtomicI64,
    outcomes: Mutex<BTreeMap<i64, Outcome>>,
}

impl Story {
    async fn call(&self, turn: u64) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let task = TASKS[usize::try_from(turn).unwrap_or(0) % TASKS.len()];
        let began = Instant::now();
        let words = self.words;
        let upsert = (!words.shows).then_some(Safety::IdempotentWrite);
        let (result, limit) = match task {
            Task::Insert => (self.execute(words.insert, vec![id], None).await, DEADLINE),
            Task::Upsert => (
                self.execute(words.upsert, vec![id, id * 3], upsert).await,
                DEADLINE,
            ),
            Task::Declared => {
                let safety = Some(Safety::IdempotentWrite);
                (self.execute(words.insert, vec![id], safety).await, DEADLINE)
            }
            Task::Read => (self.read(id % 100).await, DEADLINE),
            Task::Transaction => (self.transact(id).await, DEADLINE + 3 * ATTEMPT),
            Task::Closure => (self.transact_again(id).await, 3 * (DEADLINE + 3 * ATTEMPT)),
        };
        let outcome = Outcome {
            task,
            error: result.err(),
            taken: began.elapsed(),
            limit,
        };
        self.outcomes.lock().insert(id, outcome);
    }

    async fn execute(
        &self,
        sql: &str,
        params: Vec<i64>,
        safety: Option<Safety>,
    ) -> Result<(), SqlError> {
        let params = params.into_iter().map(Value::I64).collect();
        let options = Options {
            safety,
            ..options()
        };
        let answer = self.lone.proxy.execute(sql, params, options).await?;
        assert_eq!(answer.affected, Some(1), "{sql}");
        Ok(())
    }

    async fn read(&self, id: i64) -> Result<(), SqlError> {
        let params = vec![Value::I64(id)];
        let answer = self
            .lone
            .proxy
            .query(self.words.read, params, options())
            .await?;
        assert_eq!(
            answer.rows,
            [[Value::Text(format!("value {id}"))]],
            "a read that succeeds has its row"
        );
        Ok(())
    }

    async fn transact(&self, id: i64) -> Result<(), SqlError> {
        let begin = Begin {
            options: options(),
            ..Begin::default()
        };
        let scope = mainstay::sql::Scope::default();
        let mut transaction = self.lone.proxy.begin(&begin, scope).await?;
        insert_both(self.words.step, transaction.as_mut(), id).await?;
        transaction.commit().await.map(drop)
    }

    async fn transact_again(&self, id: i64) -> Result<(), SqlError> {
        let begin = Begin {
            options: options(),
            ..Begin::default()
        };
        let step = self.words.step;
        let again = self.lone.proxy.transaction(begin, 2, move |transaction| {
            insert_both(step, transaction, id)
        });
        again.await
    }
}

fn options() -> Options {
    Options {
        deadline: Some(DEADLINE),
        ..Options::default()
    }
}

fn insert_both<'a>(
    step_text: &'static str,
    transaction: &'a mut dyn Transaction,
    id: i64,
) -> BoxFuture<'a, Result<(), SqlError>> {
    Box::pin(async move {
        for step in [1, 2] {
            let params = vec![Value::I64(id), Value::I64(step)];
            let mut request = lone::statement(step_text, params, Safety::Write);
            request.options.deadline = Some(ATTEMPT);
            transaction.run(&request).await?;
        }
        Ok(())
    })
}

async fn counts(server: &impl Server, sql: &str) -> BTreeMap<i64, i64> {
    let rows = server.sql(sql).await.unwrap();
    let number = |text: &Option<String>| text.as_deref().unwrap().parse::<i64>().unwrap();
    rows.iter()
        .map(|row| (number(&row[0]), number(&row[1])))
        .collect()
}

/// What the server holds for each operation.
struct Stored {
    marks: BTreeMap<i64, i64>,
    kept: BTreeMap<i64, i64>,
    steps: BTreeMap<i64, i64>,
}

impl Stored {
    async fn of(server: &impl Server) -> Self {
        Stored {
            marks: counts(server, "SELECT id, count(*) FROM marks GROUP BY id").await,
            kept: counts(server, "SELECT id, v FROM kept").await,
            steps: counts(server, "SELECT id, count(*) FROM steps GROUP BY id").await,
        }
    }

    /// How often an operation took effect.
    fn times(&self, id: i64, task: Task) -> i64 {
        let count = |table: &BTreeMap<i64, i64>| table.get(&id).copied().unwrap_or(0);
        match task {
            Task::Insert | Task::Declared => count(&self.marks),
            Task::Upsert => {
                let value = count(&self.kept);
                assert!(value == 0 || value == id * 3, "upsert {id} holds {value}");
                i64::from(value != 0)
            }
            Task::Transaction | Task::Closure => {
                let rows = count(&self.steps);
                assert_eq!(rows % 2, 0, "half of transaction {id} is there");
                rows / 2
            }
            Task::Read => 0,
        }
    }
}

/// What Mainstay said about a call against what is true.
fn judge(
    words: Words,
    id: i64,
    outcome: &Outcome,
    stored: &Stored,
    wire: &Wire,
) -> Result<(), String> {
    let task = outcome.task;
    let times = stored.times(id, task);
    let say = |what: &str| {
        let error = outcome.error.as_ref().map(describe);
        Err(format!(
            "{what}: {task:?} {id}, there {times} times, {error:?}"
        ))
    };
    if outcome.taken > outcome.limit + LATE_MAX {
        return say(&format!("ended after {:?}", outcome.taken));
    }
    if task == Task::Read {
        return Ok(());
    }
    if times > 1 && task != Task::Declared {
        return say("ran more than once");
    }
    let is_transaction = matches!(task, Task::Transaction | Task::Closure);
    match outcome.error.as_ref().map(SqlError::sent) {
        None if times == 0 => say("acknowledged and missing"),
        None => Ok(()),
        Some(Sent::Maybe) if words.rolls_back && is_transaction && !wire.commits.contains(&id) => {
            say("maybe, and no COMMIT left")
        }
        Some(Sent::Maybe) if !wire.seen.contains(&id) => say("maybe, and nothing left"),
        Some(Sent::Maybe) => Ok(()),
        Some(_) if times > 0 => say("said to have had no effect"),
        Some(Sent::No) if wire.forwarded.contains(&id) => say("said not to have left"),
        Some(_) => Ok(()),
    }
}

/// Callers that go on until so many faults were planned.
async fn run(story: &Arc<Story>, wire_proxy: &FaultProxy, faults: u64) {
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let story = Arc::clone(story);
        callers.spawn(async move {
            let mut turn = caller;
            while !story.stop.load(Ordering::Acquire) {
                story.call(turn).await;
                turn += 1;
            }
        });
    }
    loop {
        let counts = wire_proxy.counts();
        if counts.cuts + counts.hangs + counts.delays >= faults || callers.is_empty() {
            break;
        }
        tokio::select! {
            Some(ended) = callers.join_next() => ended.expect("a caller does not panic"),
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
    story.stop.store(true, Ordering::Release);
    while let Some(ended) = callers.join_next().await {
        ended.expect("a caller does not panic");
    }
}

fn report(outcomes: &BTreeMap<i64, Outcome>) {
    let mut table: BTreeMap<(Task, &str, String), usize> = BTreeMap::new();
    for outcome in outcomes.values() {
        let (code, sent) = match &outcome.error {
            None => ("ok", String::new()),
            Some(error) => (error.code().as_str(), error.sent().to_string()),
        };
        *table.entry((outcome.task, code, sent)).or_default() += 1;
    }
    for ((task, code, sent), count) in table {
        println!("{task:?} {code} {sent}: {count}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_any_fault_no_write_runs_twice_none_is_lost_and_what_is_said_is_true() {
    strike::<PostgresServer>(POSTGRES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_any_fault_before_mariadb_no_write_runs_twice_and_what_is_said_is_true() {
    strike::<MariadbServer>(MARIADB).await;
}

async fn strike<S: Server>(words: Words) {
    let seed = mainstay_testkit::seed();
    let faults = cases(1_000, 10_000) as u64;
    println!("seed {seed}, {faults} faults");
    let server = S::start(&[]).await;
    server.sql(words.schema).await.unwrap();
    let (on, wire) = (Arc::new(AtomicBool::new(true)), Arc::default());
    let planned = plan(words, seed, Arc::clone(&on), Arc::clone(&wire));
    let proxy = server.behind_faults(planned);
    let story = Arc::new(Story {
        words,
        lone: Lone::of::<S>(proxy.port(), lone::settings(ATTEMPT)),
        stop: AtomicBool::new(false),
        next: AtomicI64::new(1),
        outcomes: Mutex::default(),
    });
    let began = Instant::now();
    run(&story, &proxy, faults).await;
    on.store(false, Ordering::Release);
    println!("{:?} in {:?}", proxy.counts(), began.elapsed());
    story.lone.check_whole("after all faults").await;
    proxy.settle().await.unwrap();
    lone::wait_without_transactions(&server).await;

    let stored = Stored::of(&server).await;
    let outcomes = std::mem::take(&mut *story.outcomes.lock());
    report(&outcomes);
    let wrong: Vec<String> = outcomes
        .iter()
        .filter_map(|(id, outcome)| judge(words, *id, outcome, &stored, &wire.lock()).err())
        .collect();
    assert!(wrong.is_empty(), "seed {seed}: {wrong:#?}");
    let story = Arc::into_inner(story).expect("every caller has ended");
    story.lone.shut_down().await;
}
