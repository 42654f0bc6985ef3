//! A source whose endpoints are sources themselves: the same policy, the same words, one account at each
//! level.

use std::sync::Arc;
use std::time::Duration;

use mainstay::audit::{AuditEntry, CallOutcome};
use mainstay::policy::{ReadFrom, Settings};
use mainstay::sql::{
    Access, AnswerMax, Begin, Code, Database, Dialect, Options, Plain, Request, Scope, Verbs,
    Verdict, Work,
};
use mainstay::tasks::Tasks;
use mainstay::watchdog::Promotion;
use mainstay::{
    Category, Chance, DataProxy, EndpointId, EndpointSpec, EventKind, Failure, Policy, Preset,
    Role, Safety, Sent, SqlError,
};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, contended, refused};
use mainstay_testkit::scripted::{Happened, Point, Reply, ScriptedDriver};
use tokio::time::Instant;

use super::chronicle::Chronicle;

const READ: &str = "SELECT v FROM fixed";
const WRITE: &str = "INSERT INTO marks VALUES (1)";

/// One source with one database behind it, itself behind an endpoint.
struct Site {
    driver: ScriptedDriver,
    proxy: DataProxy,
}

struct Worlds {
    outer: DataProxy,
    east: Site,
    west: Site,
}

fn policy(change: impl FnOnce(&mut Settings)) -> Arc<Policy> {
    let mut settings = Preset::Balanced.settings();
    settings.retry.delay = Duration::from_millis(10);
    change(&mut settings);
    Policy::new(settings).unwrap()
}

fn site(name: &str, tasks: &Tasks) -> Site {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    let policy = policy(|_| {});
    let chance = Chance::seeded(3);
    let plain = Plain::new(
        Arc::new(driver.clone()),
        &policy,
        tasks.clone(),
        chance.clone(),
    );
    let member: Arc<dyn Database> = Arc::new(plain);
    let proxy = DataProxy::builder(name, policy)
        .tasks(tasks.clone())
        .chance(chance)
        .promotion(Promotion::Manual)
        .endpoint(EndpointSpec::new("a", member))
        .build()
        .unwrap();
    proxy.source().keep_recent_audit();
    Site { driver, proxy }
}

impl Worlds {
    fn new(roles: [Role; 2], change: impl FnOnce(&mut Settings)) -> Self {
        let tasks = Tasks::new();
        let (east, west) = (site("east site", &tasks), site("west site", &tasks));
        let member = |site: &Site| -> Arc<dyn Database> { Arc::new(site.proxy.clone()) };
        let outer = DataProxy::builder("world", policy(change))
            .tasks(tasks)
            .chance(Chance::seeded(4))
            .promotion(Promotion::Manual)
            .endpoint(EndpointSpec::new("east", member(&east)).role(roles[0]))
            .endpoint(EndpointSpec::new("west", member(&west)).role(roles[1]))
            .build()
            .unwrap();
        outer.source().keep_recent_audit();
        Worlds { outer, east, west }
    }

    /// Only `east` takes part.
    fn of_one() -> Self {
        let worlds = Worlds::new([Role::Member; 2], |_| {});
        worlds.outer.source().remove_endpoint("west").unwrap();
        worlds
    }

    fn statements(&self) -> [u64; 2] {
        [&self.east, &self.west].map(|site| site.driver.counts().statements)
    }

    async fn write(&self) -> Result<mainstay::sql::Answer, SqlError> {
        self.outer
            .execute(WRITE, Vec::new(), Options::default())
            .await
    }

    /// Every permit is back at both levels.
    async fn assert_idle(&self) {
        // Clean-ups end within two seconds.
        tokio::time::sleep(Duration::from_secs(3)).await;
        for proxy in [&self.outer, &self.east.proxy, &self.west.proxy] {
            for status in proxy.source().status() {
                assert_eq!(status.in_flight, 0, "{} {}", proxy.name(), status.endpoint);
            }
        }
    }
}

/// The entries of a source, oldest first.
fn entries(proxy: &DataProxy) -> Vec<Arc<AuditEntry>> {
    let mut entries = proxy.source().recent_audit().last(100, |_| true);
    entries.reverse();
    entries
}

/// That each source wrote down the same calls under the same ids, each in its own words.
fn assert_one_entry_each(worlds: &Worlds, operations: &[&str]) {
    let (outer, inner) = (entries(&worlds.outer), entries(&worlds.east.proxy));
    let names = |entries: &[Arc<AuditEntry>]| -> Vec<String> {
        entries.iter().map(|e| e.operation.to_string()).collect()
    };
    assert_eq!(names(&outer), operations);
    assert_eq!(names(&inner), operations);
    for (outer, inner) in outer.iter().zip(&inner) {
        assert_eq!(outer.correlation_id, inner.correlation_id, "{outer:?}");
        assert_eq!(outer.source.to_string(), "world");
        assert_eq!(inner.source.to_string(), "east site");
        assert_eq!(
            outer.endpoint.as_ref().map(EndpointId::as_str),
            Some("east")
        );
        assert_eq!(inner.endpoint.as_ref().map(EndpointId::as_str), Some("a"));
        assert_eq!(outer.outcome, inner.outcome);
        assert_eq!(outer.safety, inner.safety);
        assert_eq!(outer.sent, inner.sent);
    }
}

fn request(text: &str, safety: Safety) -> Request {
    Request {
        class: None,
        name: "query".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety,
        access: if safety.is_read() {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

fn read_only() -> SqlError {
    let failure = Failure::new(Category::Persistent, "cannot execute INSERT in a read-only")
        .code("25006")
        .sent(Sent::YesUnprocessed);
    SqlError::new(Code::BadStatement, failure).verdict(Verdict::ReadOnly)
}

#[tokio::test(start_paused = true)]
async fn an_answer_names_both_endpoints_and_each_source_has_one_entry_of_it() {
    let worlds = Worlds::of_one();
    let read = worlds.outer.query(READ, Vec::new(), Options::default());
    let answer = read.await.unwrap();
    assert_eq!(answer.meta.endpoint.as_deref(), Some("east/a"));
    let written = worlds.write().await.unwrap();
    assert_eq!(written.meta.endpoint.as_deref(), Some("east/a"));
    worlds
        .east
        .driver
        .next(Point::Run, Reply::fails(constraint_broken()));
    let error = worlds.write().await.unwrap_err();
    assert_eq!(error.code(), Code::Constraint);
    assert_eq!(error.detail().endpoint.as_deref(), Some("east/a"));
    assert_one_entry_each(&worlds, &["query", "execute", "execute"]);
    let ids = entries(&worlds.outer);
    assert_eq!(answer.meta.correlation_id, Some(ids[0].correlation_id));
    assert_eq!(error.detail().correlation_id, Some(ids[2].correlation_id));
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_and_a_stream_name_both_endpoints_under_one_id_at_both_levels() {
    let worlds = Worlds::of_one();
    let begin = Begin::default();
    let mut transaction = worlds.outer.begin(&begin, Scope::default()).await.unwrap();
    assert_eq!(transaction.endpoint().as_deref(), Some("east/a"));
    let insert = request(WRITE, Safety::Write);
    let answer = transaction.run(&insert).await.unwrap();
    assert_eq!(answer.meta.endpoint.as_deref(), Some("east/a"));
    transaction.savepoint("before").await.unwrap();
    worlds
        .east
        .driver
        .next(Point::Run, Reply::fails(constraint_broken()));
    let error = transaction.run(&insert).await.unwrap_err();
    assert_eq!(error.detail().endpoint.as_deref(), Some("east/a"));
    transaction.rollback_to("before").await.unwrap();
    let committed = transaction.commit().await.unwrap();
    assert_eq!(committed.meta.endpoint.as_deref(), Some("east/a"));
    assert_one_entry_each(&worlds, &["begin", "query", "query", "commit"]);
    let ids = entries(&worlds.outer);
    assert!(
        ids.iter()
            .all(|e| e.correlation_id == ids[0].correlation_id)
    );

    let mut stream = worlds
        .outer
        .stream_query(READ, Vec::new(), Options::default())
        .await
        .unwrap();
    assert_eq!(stream.meta.endpoint.as_deref(), Some("east/a"));
    while stream.next().await.unwrap().is_some() {}
    drop(stream);
    assert_one_entry_each(&worlds, &["begin", "query", "query", "commit", "stream"]);
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_taken_effect_inside_is_not_repeated_outside() {
    let worlds = Worlds::new([Role::Member; 2], |_| {});
    for site in [&worlds.east, &worlds.west] {
        site.driver
            .always(Point::Run, Reply::breaks(connection_lost()));
    }
    for number in 1..=4 {
        let error = worlds.write().await.unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown);
        assert_eq!(error.sent(), Sent::Maybe);
        assert_eq!(worlds.statements().iter().sum::<u64>(), number);
    }
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_write_of_which_nothing_was_sent_inside_is_repeated_outside() {
    let worlds = Worlds::new([Role::Member; 2], |_| {});
    worlds
        .east
        .driver
        .always(Point::Connect, Reply::fails(refused()));
    for number in 1..=10 {
        let answer = worlds.write().await.unwrap();
        assert_eq!(answer.meta.endpoint.as_deref(), Some("west/a"));
        assert_eq!(worlds.statements(), [0, number]);
    }
    // What the database rolled back is repeated as well, where it happened.
    worlds
        .west
        .driver
        .next(Point::Run, Reply::fails(contended()));
    worlds.write().await.unwrap();
    assert_eq!(worlds.statements(), [0, 12]);
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_refuses_by_itself_is_left_without_a_mark_on_it() {
    let worlds = Worlds::new([Role::Member; 2], |_| {});
    worlds.east.proxy.source().pause();
    for _ in 0..40 {
        let answer = worlds.write().await.unwrap();
        assert_eq!(answer.meta.endpoint.as_deref(), Some("west/a"));
    }
    let east = &worlds.outer.source().status()[0];
    assert_eq!((east.circuit, east.stats.circuit_opened), ("closed", 0));
    assert_eq!(east.stats.failures, 0, "a refusal is no failure");
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_the_outer_call_bounds_everything_inside() {
    let worlds = Worlds::new([Role::Member; 2], |_| {});
    for site in [&worlds.east, &worlds.west] {
        site.driver.always(Point::Run, Reply::hangs());
    }
    let options = || Options {
        deadline: Some(Duration::from_secs(1)),
        ..Options::default()
    };
    let began = Instant::now();
    let read = worlds.outer.query(READ, Vec::new(), options()).await;
    assert_eq!(read.unwrap_err().code(), Code::DeadlineExceeded);
    assert!(began.elapsed() <= Duration::from_secs(1));
    let began = Instant::now();
    let written = worlds.outer.execute(WRITE, Vec::new(), options()).await;
    let error = written.unwrap_err();
    // The cancel at the server proved that nothing happened.
    assert!(error.sent().is_proven_harmless(), "{error}");
    let taken = began.elapsed();
    assert!(taken <= mainstay::sql::proxy::WRITE_GRACE + Duration::from_secs(1));
    let before = worlds.statements();
    worlds.assert_idle().await;
    assert_eq!(worlds.statements(), before, "nothing goes on afterwards");
}

#[tokio::test(start_paused = true)]
async fn an_attempt_of_the_outer_source_bounds_the_inner_call_and_the_next_one_answers() {
    let limit = Duration::from_millis(300);
    let worlds = Worlds::new([Role::Primary, Role::Replica], |settings| {
        settings.retry.attempt_timeout = Some(limit);
        settings.retry.attempt_timeout_is_set = true;
        settings.route.read_from = ReadFrom::Primary;
    });
    worlds.east.driver.always(Point::Run, Reply::hangs());
    let read = |from| {
        let options = Options {
            read_from: Some(from),
            ..Options::default()
        };
        worlds.outer.query(READ, Vec::new(), options)
    };
    for _ in 0..4 {
        let began = Instant::now();
        let answer = read(ReadFrom::Any).await.unwrap();
        assert_eq!(answer.meta.endpoint.as_deref(), Some("west/a"));
        assert!(began.elapsed() <= limit + Duration::from_millis(10));
    }
    worlds.assert_idle().await;
}

/// The sessions of a driver that a statement ran on, in order.
fn ran_on(driver: &ScriptedDriver) -> Vec<Access> {
    let log = driver.log();
    let access_of = |session: u64| {
        log.iter().find_map(|happened| match happened {
            Happened::Opened(id, access) if *id == session => Some(*access),
            _ => None,
        })
    };
    log.iter()
        .filter_map(|happened| match happened {
            Happened::Called(session, Point::Run, _) => access_of(*session),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_hidden_write_inside_is_learned_outside_and_runs_once_on_the_outer_primary() {
    let worlds = Worlds::new([Role::Primary, Role::Replica], |_| {});
    let chronicle = Chronicle::of(&worlds.outer);
    // Replicas get reads once their first check tells that they are not behind.
    tokio::time::sleep(Duration::from_secs(1)).await;
    worlds
        .west
        .driver
        .next(Point::Run, Reply::fails(read_only()));
    let from_replica = || Options {
        read_from: Some(ReadFrom::Replica),
        ..Options::default()
    };
    let sql = "SELECT n FROM numbered";
    for number in 1..=2 {
        let answer = worlds.outer.query(sql, Vec::new(), from_replica()).await;
        assert_eq!(answer.unwrap().meta.endpoint.as_deref(), Some("east/a"));
        assert_eq!(ran_on(&worlds.west.driver), [Access::ReadOnly]);
        assert_eq!(ran_on(&worlds.east.driver), vec![Access::ReadWrite; number]);
    }
    let learned = |event: &EventKind| matches!(event, EventKind::LearnedWrite { .. });
    assert_eq!(chronicle.moments(learned).len(), 1);
    let (outer, refused) = (entries(&worlds.outer), entries(&worlds.west.proxy));
    assert_eq!(outer.len(), 2, "one entry a call, redirected or not");
    assert_eq!(refused.len(), 1);
    assert_eq!(refused[0].outcome, CallOutcome::Failure);
    assert_eq!(refused[0].correlation_id, outer[0].correlation_id);
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_hidden_write_whose_connection_is_lost_inside_is_not_repeated() {
    let worlds = Worlds::of_one();
    let driver = &worlds.east.driver;
    driver.next(Point::Run, Reply::fails(read_only()));
    driver.next(Point::Run, Reply::breaks(connection_lost()));
    let sql = "SELECT n FROM numbered";
    let lost = worlds.outer.query(sql, Vec::new(), Options::default());
    assert_eq!(lost.await.unwrap_err().code(), Code::OutcomeUnknown);
    assert_eq!(ran_on(driver), [Access::ReadOnly, Access::ReadWrite]);
    worlds.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_takes_nothing_with_it_at_either_level() {
    let worlds = Worlds::of_one();
    worlds.east.driver.set_yields(1);
    for text in [READ, WRITE] {
        for polls in 0..40 {
            let call = worlds.outer.query(text, Vec::new(), Options::default());
            let mut call = std::pin::pin!(call);
            for _ in 0..polls {
                let polled = std::future::poll_fn(|context| {
                    std::task::Poll::Ready(call.as_mut().poll(context).is_ready())
                });
                if polled.await {
                    break;
                }
                tokio::task::yield_now().await;
            }
        }
    }
    worlds.assert_idle().await;
    let counts = worlds.east.driver.counts();
    assert_eq!(counts.misuses, 0);
    let (outer, inner) = (entries(&worlds.outer), entries(&worlds.east.proxy));
    for entry in &inner {
        let fellow = outer
            .iter()
            .filter(|o| o.correlation_id == entry.correlation_id);
        assert_eq!(fellow.count(), 1, "{entry:?}");
    }
}
