//! What the proof of a commit does to the account of its call, and that calls without one are left alone.

#[path = "proofs/certain.rs"]
mod certain;

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::event::Received;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{CallOutcome, Chance, EndpointSpec, EventKind, Policy, Role, Sent};
use mainstay_sql::{
    Answer, Begin, Code, CommitProof, DataProxy, Database, Dialect, IdempotencyTable, Lineage,
    Options, Plain, ProofForm, Scope, SqlError, TableName, Value, Verbs,
};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, refused};
use mainstay_testkit::scripted::{Happened, Point, Reply, ScriptedDriver};

const SCRIPT: &str = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)";

struct Bench {
    driver: ScriptedDriver,
    proxy: DataProxy,
}

fn bench(proof: Option<CommitProof>, keys: bool) -> Bench {
    bench_of(Dialect::Postgres, proof, keys)
}

fn bench_of(dialect: Dialect, proof: Option<CommitProof>, keys: bool) -> Bench {
    let driver = ScriptedDriver::new(dialect);
    let mut settings = super::settings();
    settings.retry.attempts_max = 2;
    settings.circuit.failures = 0;
    let policy = Policy::new(settings).unwrap();
    let shared = Arc::new(driver.clone());
    let plain = Plain::new(shared, &policy, Tasks::new(), Chance::seeded(1));
    let member: Arc<dyn Database> = Arc::new(plain);
    let mut builder = DataProxy::builder("s", policy)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary));
    if let Some(proof) = proof {
        builder = builder.commit_proof(proof);
    }
    if keys {
        builder = builder.idempotency(IdempotencyTable::new(TableName::parse("k").unwrap()));
    }
    let proxy = builder.build().unwrap();
    proxy.source().keep_recent_audit();
    Bench { driver, proxy }
}

fn by_table() -> Option<CommitProof> {
    Some(CommitProof::new(ProofForm::Table))
}

impl Bench {
    fn calls(&self, what: Point) -> Vec<String> {
        let log = self.driver.log();
        log.into_iter()
            .filter_map(|happened| match happened {
                Happened::Called(_, point, text) if point == what => Some(text),
                _ => None,
            })
            .collect()
    }

    /// One entry, one count, with this end and so many attempts.
    fn check_account(&self, outcome: CallOutcome, attempts: usize) {
        let source = self.proxy.source();
        assert_eq!(source.counts().read().calls, 1);
        let entries = source.recent_audit().last(10, |_| true);
        let ends: Vec<_> = entries.iter().map(|entry| entry.outcome).collect();
        assert_eq!(ends, [outcome]);
        assert_eq!(entries[0].attempts.len(), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_proof_send_what_they_always_sent() {
    for keys in [false, true] {
        let bench = bench(None, keys);
        let proxy = &bench.proxy;
        let insert = "INSERT INTO t VALUES (1)";
        proxy
            .execute(insert, vec![], Options::default())
            .await
            .unwrap();
        proxy.script(SCRIPT, Options::default()).await.unwrap();
        let begun = proxy.begin(&Begin::default(), Scope::default()).await;
        begun.unwrap().commit().await.unwrap();
        let texts = bench.calls(Point::Run);
        assert_eq!(texts, [insert, insert, "INSERT INTO t VALUES (2)"]);
        let counts = bench.driver.counts();
        assert_eq!((counts.begins, counts.commits), (2, 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_read_is_left_alone_where_commits_are_proven() {
    let bench = bench(by_table(), true);
    let read = bench.proxy.query("SELECT 1", vec![], Options::default());
    read.await.unwrap();
    assert_eq!(bench.calls(Point::Run), ["SELECT 1"]);
    assert_eq!(bench.driver.counts().begins, 0);
}

#[tokio::test(start_paused = true)]
async fn a_script_whose_commit_did_not_take_place_is_run_again_on_one_account() {
    let bench = bench(by_table(), false);
    bench
        .driver
        .on_text("mainstay_commits", Reply::affected(1))
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let mut events = bench.proxy.source().events();
    let answer = bench
        .proxy
        .script(SCRIPT, Options::default())
        .await
        .unwrap();
    assert_eq!((answer.results.len(), answer.meta.attempts), (2, 2));
    bench.check_account(CallOutcome::Success, 2);
    let mut fates = Vec::new();
    while let Some(event) = events.try_next() {
        if let Received::Event(event) = event
            && let EventKind::CommitProven { fate, .. } = event.kind
        {
            fates.push(fate);
        }
    }
    assert_eq!(fates, ["aborted"]);
}

#[tokio::test(start_paused = true)]
async fn a_script_whose_commit_took_place_has_its_answer() {
    let bench = bench(by_table(), false);
    let run = |reply| bench.driver.next(Point::Run, reply);
    // No schema; the table is there; two statements; the token is new; the token is there.
    for reply in [
        Reply::default(),
        Reply::default(),
        Reply::affected(3),
        Reply::affected(4),
        Reply::affected(1),
        Reply::affected(0),
    ] {
        run(reply);
    }
    bench
        .driver
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let answer = bench
        .proxy
        .script(SCRIPT, Options::default())
        .await
        .unwrap();
    let affected: Vec<_> = answer
        .results
        .iter()
        .map(|result| result.affected)
        .collect();
    assert_eq!(affected, [Some(3), Some(4)]);
    assert_eq!(answer.meta.endpoint.as_deref(), Some("a"));
    assert!(answer.meta.correlation_id.is_some());
    bench.check_account(CallOutcome::Success, 1);
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_nobody_can_tell_anything_about_stays_unknown() {
    let bench = bench(by_table(), false);
    let run = |reply| bench.driver.next(Point::Run, reply);
    for reply in [
        Reply::default(),
        Reply::default(),
        Reply::affected(1),
        Reply::affected(1),
        Reply::affected(1),
    ] {
        run(reply);
    }
    bench
        .driver
        .on_text("mainstay_commits", Reply::breaks(connection_lost()))
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let error = bench
        .proxy
        .script(SCRIPT, Options::default())
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::OutcomeUnknown, Sent::Maybe)
    );
    bench.check_account(CallOutcome::Failure, 1);
    check_told(&error, 1);
}

#[tokio::test(start_paused = true)]
async fn the_proof_by_number_is_for_postgresql_alone() {
    for dialect in [Dialect::MySql, Dialect::Sqlite] {
        let policy = Policy::new(super::settings()).unwrap();
        let driver = Arc::new(ScriptedDriver::new(dialect));
        let plain = Plain::new(driver, &policy, Tasks::new(), Chance::seeded(1));
        let member: Arc<dyn Database> = Arc::new(plain);
        let built = DataProxy::builder("s", policy)
            .endpoint(EndpointSpec::new("a", member).role(Role::Primary))
            .commit_proof(CommitProof::new(ProofForm::Xid))
            .build();
        assert_eq!(built.unwrap_err().code(), Code::BadRequest, "{dialect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transaction_without_a_number_is_given_one_and_asked_about_like_any_other() {
    for (status, code) in [
        ("aborted", Some(Code::TransactionLost)),
        ("committed", None),
    ] {
        let bench = bench(Some(CommitProof::new(ProofForm::Xid)), false);
        let begun = bench.proxy.begin(&Begin::default(), Scope::default()).await;
        for text in ["7", status] {
            let row = vec![Value::Text(text.to_owned())];
            bench.driver.next(Point::Run, Reply::rows(vec![row]));
        }
        bench
            .driver
            .next(Point::Commit, Reply::breaks(connection_lost()));
        let ended = begun.unwrap().commit().await;
        assert_eq!(ended.map_err(|error| error.code()).err(), code);
        assert_eq!(
            bench.calls(Point::Run),
            [
                "SELECT pg_current_xact_id()::text",
                "SELECT pg_xact_status($1::text::xid8)"
            ]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_behind_an_endpoint_looks_the_commit_up_for_the_outer_one() {
    for (found, fate) in [(0, None), (1, Some(Code::TransactionLost))] {
        let inner = bench(None, false);
        let policy = Policy::new(super::settings()).unwrap();
        let member: Arc<dyn Database> = Arc::new(inner.proxy.clone());
        let outer = DataProxy::builder("outer", policy)
            .endpoint(EndpointSpec::new("in", member).role(Role::Primary))
            .commit_proof(CommitProof::new(ProofForm::Table))
            .build()
            .unwrap();
        let begun = outer.begin(&Begin::default(), Scope::default()).await;
        let transaction = begun.unwrap();
        // The token is new; it is there, or not.
        for reply in [Reply::affected(1), Reply::affected(found)] {
            inner.driver.next(Point::Run, reply);
        }
        inner
            .driver
            .next(Point::Commit, Reply::breaks(connection_lost()));
        let ended = transaction.commit().await;
        assert_eq!(ended.map_err(|error| error.code()).err(), fate, "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_whose_commit_did_not_take_place_is_run_again() {
    let bench = bench(by_table(), false);
    bench
        .driver
        .on_text("mainstay_commits", Reply::affected(1))
        .next(Point::Commit, Reply::breaks(connection_lost()));
    let runs = std::sync::atomic::AtomicU32::new(0);
    let ran = bench.proxy.transaction(Begin::default(), 1, |_| {
        runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    });
    ran.await.unwrap();
    assert_eq!(runs.into_inner(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_was_cut_before_its_commit_was_not_committed() {
    let bench = bench(by_table(), false);
    let run = |reply| bench.driver.next(Point::Run, reply);
    // No schema; the table is there; the first statement has left when its endpoint is given up.
    run(Reply::default());
    run(Reply::default());
    run(Reply::hangs());
    let script = bench.proxy.script(SCRIPT, Options::default());
    let giving_up = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        bench.proxy.source().isolate("a").unwrap();
    };
    let (ended, ()) = tokio::join!(script, giving_up);
    let error = ended.unwrap_err();
    let said = (error.code(), error.sent());
    assert_eq!(
        said,
        (Code::DeadlineExceeded, Sent::YesUnprocessed),
        "{error}"
    );
}

fn lineage(history: Option<&str>, is_synchronous: bool) -> Lineage {
    Lineage {
        history: history.map(str::to_owned),
        is_synchronous,
        ..Lineage::default()
    }
}

/// The COMMIT of a transaction on `a` is lost while the role moves to `b`, where its token is not.
async fn lose_while_the_role_moves(at: Lineage, to: Lineage, marked: Reply) -> SqlError {
    let old = ScriptedDriver::new(Dialect::Sqlite);
    let new = ScriptedDriver::new(Dialect::Sqlite);
    old.set_lineage(at);
    new.set_lineage(to);
    let policy = Policy::new(super::settings()).unwrap();
    let member = |driver: &ScriptedDriver| -> Arc<dyn Database> {
        let shared = Arc::new(driver.clone());
        Arc::new(Plain::new(shared, &policy, Tasks::new(), Chance::seeded(1)))
    };
    let proxy = DataProxy::builder("s", Arc::clone(&policy))
        .endpoint(EndpointSpec::new("a", member(&old)).role(Role::Primary))
        .endpoint(EndpointSpec::new("b", member(&new)).role(Role::Replica))
        .commit_proof(CommitProof::new(ProofForm::Table))
        .build()
        .unwrap();
    for (driver, reply) in [(&old, marked), (&new, Reply::affected(1))] {
        driver.on_text("INSERT INTO \"mainstay_commits\"", reply);
    }
    let begun = proxy.begin(&Begin::default(), Scope::default()).await;
    let transaction = begun.unwrap();
    let broken = Reply::breaks(connection_lost()).wait_after(Duration::from_millis(100));
    old.next(Point::Commit, broken);
    let moving = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        proxy.source().set_primary(Some("b"), "moved").unwrap();
    };
    let (ended, ()) = tokio::join!(transaction.commit(), moving);
    ended.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn a_missing_row_proves_nothing_where_the_histories_are_not_known_to_be_one() {
    let unknown = (Code::OutcomeUnknown, Sent::Maybe);
    let aborted = (Code::TransactionLost, Sent::YesUnprocessed);
    for (at, to, is_synchronous, wanted) in [
        (None, None, false, unknown),
        (Some("1"), None, false, unknown),
        (None, Some("1"), false, unknown),
        (Some("1"), Some("2"), false, unknown),
        (Some("1"), Some("1"), false, aborted),
        (Some("1"), Some("2"), true, aborted),
    ] {
        let (at, to) = (lineage(at, is_synchronous), lineage(to, false));
        let error = lose_while_the_role_moves(at.clone(), to.clone(), Reply::affected(1)).await;
        assert_eq!((error.code(), error.sent()), wanted, "{at:?}, {to:?}");
    }
}

/// A source with this one behind its only endpoint, which proves by table.
fn around(inner: &DataProxy) -> DataProxy {
    let policy = Policy::new(super::settings()).unwrap();
    let member: Arc<dyn Database> = Arc::new(inner.clone());
    DataProxy::builder("outer", policy)
        .endpoint(EndpointSpec::new("in", member).role(Role::Primary))
        .commit_proof(CommitProof::new(ProofForm::Table))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_source_behind_an_endpoint_is_asked_for_as_long_as_its_server_is_away() {
    let inner = bench(None, false);
    let outer = around(&inner.proxy);
    let begun = outer.begin(&Begin::default(), Scope::default()).await;
    let transaction = begun.unwrap();
    inner.driver.next(Point::Run, Reply::affected(1));
    let broken = Reply::breaks(connection_lost()).wait_after(Duration::from_millis(100));
    inner.driver.next(Point::Commit, broken);
    inner
        .driver
        .on_text("INSERT INTO", Reply::affected(0))
        .always(Point::Connect, Reply::fails(refused()));
    let outage = async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        inner.driver.always(Point::Connect, Reply::default());
    };
    let (ended, ()) = tokio::join!(transaction.commit(), outage);
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_equal_endpoints_within_a_source_the_one_that_the_commit_ran_on_is_asked() {
    let drivers = ["a", "b"].map(|_| ScriptedDriver::new(Dialect::Postgres));
    let policy = Policy::new(super::settings()).unwrap();
    let mut builder = DataProxy::builder("inner", Arc::clone(&policy));
    for (driver, name) in drivers.iter().zip(["a", "b"]) {
        let shared = Arc::new(driver.clone());
        let plain = Plain::new(shared, &policy, Tasks::new(), Chance::seeded(1));
        let member: Arc<dyn Database> = Arc::new(plain);
        builder = builder.endpoint(EndpointSpec::new(name, member));
    }
    let inner = builder.build().unwrap();
    let outer = around(&inner);
    let begun = outer.begin(&Begin::default(), Scope::default()).await;
    let transaction = begun.unwrap();
    let place = transaction.endpoint().unwrap();
    for (driver, name) in drivers.iter().zip(["in/a", "in/b"]) {
        // Only where it ran the token is there afterwards.
        let is_it = name == place.as_str();
        if is_it {
            driver.next(Point::Run, Reply::affected(1));
        }
        driver
            .on_text("INSERT INTO", Reply::affected(u64::from(!is_it)))
            .next(Point::Commit, Reply::breaks(connection_lost()));
    }
    transaction.commit().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_was_told_to_wait_for_nobody_is_not_missed_on_another_server() {
    for (waits_for_nobody, code) in [(true, Code::OutcomeUnknown), (false, Code::TransactionLost)] {
        let answer = Answer {
            affected: Some(1),
            rows: vec![vec![Value::Bool(waits_for_nobody)]],
            ..Answer::default()
        };
        let marked = Reply::answer(answer);
        let (at, to) = (lineage(Some("1"), true), lineage(Some("2"), true));
        let error = lose_while_the_role_moves(at, to, marked).await;
        assert_eq!(error.code(), code);
    }
}

/// The error says what its call did.
fn check_told(error: &SqlError, attempts: usize) {
    let detail = error.detail();
    assert_eq!(detail.endpoint.as_deref(), Some("a"), "{error}");
    assert_eq!(detail.attempts.len(), attempts, "{error}");
    assert!(detail.correlation_id.is_some(), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_script_whose_commits_never_take_place_fails_with_its_account() {
    let bench = bench(by_table(), false);
    bench
        .driver
        .on_text("mainstay_commits", Reply::affected(1))
        .always(Point::Commit, Reply::breaks(connection_lost()));
    let script = bench.proxy.script(SCRIPT, Options::default());
    let error = script.await.unwrap_err();
    let said = (error.code(), error.sent());
    assert_eq!(said, (Code::AttemptsFailed, Sent::YesUnprocessed));
    bench.check_account(CallOutcome::Failure, 2);
    check_told(&error, 2);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_whose_end_is_given_up_before_its_commit_was_sent_is_lost() {
    let bench = bench(by_table(), false);
    let mut begin = Begin::default();
    begin.options.deadline = Some(Duration::from_millis(100));
    let begun = bench.proxy.begin(&begin, Scope::default()).await;
    bench.driver.next(Point::Run, Reply::hangs());
    let error = begun.unwrap().commit().await.unwrap_err();
    let said = (error.code(), error.sent());
    assert_eq!(
        said,
        (Code::TransactionLost, Sent::YesUnprocessed),
        "{error}"
    );
    assert_eq!(bench.driver.counts().commits, 0);
}

#[tokio::test(start_paused = true)]
async fn an_abort_on_mysql_is_proven_also_where_its_tables_are_too_many_to_look_through() {
    let one = || Reply::rows(vec![vec![Value::I64(1)]]);
    for (tables, sent) in [
        (Reply::default(), Sent::YesUnprocessed),
        (one(), Sent::Maybe),
        (Reply::hangs(), Sent::Maybe),
        (Reply::fails(refused()), Sent::Maybe),
    ] {
        let bench = bench_of(Dialect::MySql, by_table(), false);
        bench
            .driver
            .on_text("information_schema.TABLES", tables)
            .on_text("mainstay_commits", Reply::affected(1))
            .next(Point::Commit, Reply::breaks(connection_lost()));
        let begun = bench.proxy.begin(&Begin::default(), Scope::default()).await;
        let error = begun.unwrap().commit().await.unwrap_err();
        let said = (error.code(), error.sent());
        assert_eq!(said, (Code::TransactionLost, sent), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_table_that_cannot_have_its_index_is_not_made_either() {
    let bench = bench(by_table(), false);
    bench
        .driver
        .on_text("CREATE TABLE", Reply::affected(0))
        .on_text("SELECT 1 FROM", Reply::fails(missing()))
        .on_text("CREATE INDEX", Reply::fails(constraint_broken()));
    let script = bench.proxy.script(SCRIPT, Options::default());
    let error = script.await.unwrap_err();
    assert!(error.sent().is_proven_harmless(), "{error}");
    assert_eq!(
        bench
            .calls(Point::Run)
            .last()
            .map(|text| text.starts_with("SELECT 1 FROM")),
        Some(true)
    );
    let counts = bench.driver.counts();
    assert_eq!((counts.begins, counts.commits, counts.rollbacks), (1, 0, 1));
}

fn missing() -> SqlError {
    SqlError::caller(Code::UnknownEntity, "no such table", "make it")
}
