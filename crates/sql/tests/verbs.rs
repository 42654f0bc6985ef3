//! The verbs on a scripted driver.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Category, Chance, Failure, Policy, Preset, Safety, Sent};
use mainstay_sql::catalog::{Describe, Description, Entity, EntityColumn, EntityName, Volatility};
use mainstay_sql::{
    Answer, Begin, CacheUse, Change, Code, ColumnType, Database, Dialect, Filter, Find, Options,
    Order, Plain, Record, SqlError, Value, Verbs,
};
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken, contended};
use mainstay_testkit::scripted::{Happened, Point, Reply, ScriptedDriver};

fn column(name: &str) -> EntityColumn {
    EntityColumn {
        name: name.into(),
        column_type: ColumnType::I64,
        native: "bigint".into(),
        nullable: true,
        default: None,
        generated: false,
    }
}

fn orders(columns: &[&str]) -> Entity {
    Entity {
        schema: None,
        name: "orders".into(),
        is_view: false,
        columns: columns.iter().map(|name| column(name)).collect(),
        primary_key: vec!["id".into()],
        indexes: Vec::new(),
    }
}

fn describe(driver: &ScriptedDriver, entity: Option<Entity>) {
    driver.describes(
        Describe::Entity("orders".into()),
        Description::Entity(entity.map(Arc::new)),
    );
}

fn bench() -> (ScriptedDriver, Plain) {
    let driver = ScriptedDriver::new(Dialect::Postgres);
    describe(&driver, Some(orders(&["id", "total"])));
    driver.describes(
        Describe::Entities,
        Description::Entities(vec![EntityName {
            schema: None,
            name: "orders".into(),
            is_view: false,
        }]),
    );
    let plain = Plain::new(
        Arc::new(driver.clone()),
        &Policy::preset(Preset::Balanced),
        Tasks::new(),
        Chance::seeded(1),
    );
    (driver, plain)
}

/// The texts that were run, with the access of their sessions.
fn texts(driver: &ScriptedDriver) -> Vec<String> {
    let log = driver.log();
    log.iter()
        .filter_map(|happened| match happened {
            Happened::Called(_, Point::Run | Point::Open, text) => Some(text.clone()),
            _ => None,
        })
        .collect()
}

fn opened_read_only(driver: &ScriptedDriver) -> bool {
    let read_only = mainstay_sql::Access::ReadOnly;
    driver
        .sessions()
        .iter()
        .all(|session| session.access == read_only)
}

fn code<T: std::fmt::Debug>(result: Result<T, SqlError>) -> Code {
    result.unwrap_err().code()
}

#[tokio::test(start_paused = true)]
async fn find_gives_a_page_with_its_totals() {
    let (driver, plain) = bench();
    driver.on_text("count(*)", Reply::rows(vec![vec![Value::I64(25)]]));
    driver.on_text("SELECT * FROM", Reply::rows(vec![vec![Value::I64(1)]; 10]));
    let find = Find::all("orders")
        .filter(Filter::equal("TOTAL", Value::I64(3)))
        .order(Order::descending("total"))
        .page(2, 10);
    let found = plain.find(&find, Options::default()).await.unwrap();
    let page = found.page.unwrap();
    assert_eq!(
        (
            page.total_rows,
            page.total_pages,
            page.has_next,
            page.has_previous
        ),
        (25, 3, true, true)
    );
    assert_eq!(found.answer.rows.len(), 10);
    assert_eq!(
        texts(&driver),
        [
            "SELECT count(*) FROM \"orders\" WHERE \"total\" = $1",
            "SELECT * FROM \"orders\" WHERE \"total\" = $1 ORDER BY \"total\" DESC, \"id\" LIMIT $2 OFFSET $3",
        ]
    );
    assert!(opened_read_only(&driver));
    let zero = Find::all("orders").page(0, 10);
    assert_eq!(
        code(plain.find(&zero, Options::default()).await),
        Code::BadRequest
    );
}

#[tokio::test(start_paused = true)]
async fn unknown_names_are_errors_with_a_suggestion() {
    let (_, plain) = bench();
    let error = plain.entity("order", false).await.unwrap_err();
    assert_eq!(error.code(), Code::UnknownEntity);
    assert!(error.to_string().contains("orders"), "{error}");
    let find = Find::all("orders").filter(Filter::equal("totl", Value::I64(1)));
    let error = plain.find(&find, Options::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::UnknownColumn);
    assert!(error.to_string().contains("total"), "{error}");
    assert!(plain.exists("orders").await.unwrap());
    assert!(!plain.exists("nothing").await.unwrap());
    assert_eq!(code(plain.exists("a\0b").await), Code::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_never_told_as_absence() {
    let (driver, plain) = bench();
    driver.always(Point::Describe, Reply::fails(connection_lost()));
    plain.exists("orders").await.unwrap_err();
    plain.entities().await.unwrap_err();
    plain.children("orders").await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_schema_is_noticed() {
    let (driver, plain) = bench();
    plain.entity("orders", false).await.unwrap();
    describe(&driver, Some(orders(&["id", "total", "state"])));
    assert_eq!(
        plain.entity("orders", false).await.unwrap().columns.len(),
        2,
        "remembered"
    );
    let by_state = Find::all("orders").filter(Filter::equal("state", Value::I64(1)));
    plain.find(&by_state, Options::default()).await.unwrap();

    // A column that is gone is known only by the server's error.
    describe(&driver, Some(orders(&["id", "total"])));
    let gone =
        Failure::new(Category::Persistent, "column does not exist").sent(Sent::YesUnprocessed);
    driver.on_text(
        "state",
        Reply::fails(SqlError::new(Code::UnknownColumn, gone)),
    );
    assert_eq!(
        code(plain.find(&by_state, Options::default()).await),
        Code::UnknownColumn
    );
    assert_eq!(
        plain.entity("orders", false).await.unwrap().columns.len(),
        2
    );

    describe(&driver, None);
    plain
        .execute("DROP TABLE orders", vec![], Options::default())
        .await
        .unwrap();
    assert_eq!(
        code(plain.entity("orders", false).await),
        Code::UnknownEntity
    );
}

#[tokio::test(start_paused = true)]
async fn a_query_goes_to_the_session_that_its_text_needs() {
    let (driver, plain) = bench();
    plain
        .query("SELECT 1", vec![], Options::default())
        .await
        .unwrap();
    assert!(opened_read_only(&driver));
    plain
        .query("DELETE FROM orders", vec![], Options::default())
        .await
        .unwrap();
    assert!(!opened_read_only(&driver));
    for text in ["BEGIN", "COMMIT", "SAVEPOINT a", "SET a = 1"] {
        let result = plain.query(text, vec![], Options::default()).await;
        assert_eq!(code(result), Code::BadStatement, "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn volatility_is_asked_once_and_only_where_it_decides() {
    let (driver, plain) = bench();
    let known = HashMap::from([("mine".to_owned(), Volatility::Stable)]);
    driver.describes(Describe::Functions, Description::Functions(Arc::new(known)));
    plain
        .query("SELECT lower('A')", vec![], Options::default())
        .await
        .unwrap();
    assert!(!plain.schema().knows_functions());
    for _ in 0..2 {
        plain
            .query("SELECT mine(1)", vec![], Options::default())
            .await
            .unwrap();
    }
    assert!(opened_read_only(&driver));
    plain
        .query("SELECT theirs(1)", vec![], Options::default())
        .await
        .unwrap();
    assert!(!opened_read_only(&driver));
    let asked = driver
        .log()
        .iter()
        .filter(|h| matches!(h, Happened::Called(_, Point::Describe, _)))
        .count();
    assert_eq!(asked, 1);
}

#[tokio::test(start_paused = true)]
async fn options_that_cannot_be_honoured_are_refused() {
    let (driver, plain) = bench();
    let with = |change: fn(&mut Options)| {
        let mut options = Options::default();
        change(&mut options);
        options
    };
    for (options, expected) in [
        (with(|o| o.cache = CacheUse::Use), Code::NotAvailable),
        (with(|o| o.cache = CacheUse::Refresh), Code::NotAvailable),
        (
            with(|o| o.ttl = Some(std::time::Duration::from_secs(1))),
            Code::NotAvailable,
        ),
        (
            with(|o| o.idempotency_key = Some("k".into())),
            Code::IdempotencyUnavailable,
        ),
        (
            with(|o| o.deadline = Some(std::time::Duration::ZERO)),
            Code::BadRequest,
        ),
    ] {
        let result = plain.query("SELECT 1", vec![], options.clone()).await;
        assert_eq!(code(result), expected);
        let result = plain.insert("orders", &Record::new(), options).await;
        assert_eq!(code(result), expected);
    }
    let error = plain.invalidate(None).await.unwrap_err();
    assert_eq!(error.code(), Code::NotAvailable);
    assert!(error.to_string().contains("not available yet"));
    assert_eq!(driver.counts().statements, 0);
}

#[tokio::test(start_paused = true)]
async fn scalar_gives_one_value_or_says_why_not() {
    let (driver, plain) = bench();
    for (rows, expected) in [
        (vec![], Ok(None)),
        (vec![vec![Value::I64(7)]], Ok(Some(Value::I64(7)))),
        (vec![vec![Value::Null]], Ok(Some(Value::Null))),
        (vec![vec![Value::I64(7)]; 2], Err(Code::BadRequest)),
        (vec![vec![Value::I64(7); 2]], Err(Code::BadRequest)),
    ] {
        driver.next(Point::Run, Reply::rows(rows));
        let got = plain.scalar("SELECT 1", vec![], Options::default()).await;
        assert_eq!(got.map_err(|error| error.code()), expected);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_are_written_by_checked_names_and_bound_values() {
    let (driver, plain) = bench();
    let keys = Answer {
        rows: vec![vec![Value::I64(9)]],
        ..Answer::default()
    };
    driver.next(Point::Run, Reply::answer(keys));
    let record: Record = vec![("Total".into(), Value::I64(3))];
    let answer = plain
        .insert("orders", &record, Options::default())
        .await
        .unwrap();
    assert_eq!(
        (answer.affected, answer.keys),
        (Some(1), vec![Value::I64(9)])
    );
    plain
        .insert("orders", &Record::new(), Options::default())
        .await
        .unwrap();
    let change = Change {
        filters: vec![Filter::equal("id", Value::I64(9))],
        set: vec![("total".into(), Value::Null)],
    };
    plain
        .update("orders", &change, Options::default())
        .await
        .unwrap();
    plain
        .delete("orders", &change.filters, Options::default())
        .await
        .unwrap();
    assert_eq!(
        texts(&driver),
        [
            "INSERT INTO \"orders\" (\"total\") VALUES ($1) RETURNING \"id\"",
            "INSERT INTO \"orders\" DEFAULT VALUES RETURNING \"id\"",
            "UPDATE \"orders\" SET \"total\" = $1 WHERE \"id\" = $2",
            "DELETE FROM \"orders\" WHERE \"id\" = $1",
        ]
    );
    let everything = Change {
        filters: vec![],
        ..change.clone()
    };
    assert_eq!(
        code(
            plain
                .update("orders", &everything, Options::default())
                .await
        ),
        Code::BadRequest
    );
    assert_eq!(
        code(plain.delete("orders", &[], Options::default()).await),
        Code::BadRequest
    );
    let twice: Record = vec![("total".into(), Value::Null), ("TOTAL".into(), Value::Null)];
    assert_eq!(
        code(plain.insert("orders", &twice, Options::default()).await),
        Code::BadRequest
    );
}

#[tokio::test(start_paused = true)]
async fn many_rows_are_one_transaction_with_progress() {
    let (driver, plain) = bench();
    driver.always(Point::Run, Reply::affected(1));
    let record = |n: i64| -> Record { vec![("total".into(), Value::I64(n))] };
    let records: Vec<Record> = (0..2500).map(record).collect();
    let seen = parking_lot::Mutex::new(Vec::new());
    let progress = |done, of| seen.lock().push((done, of));
    let answer = plain
        .insert_many("orders", &records, Options::default(), Some(&progress))
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(2500));
    assert_eq!(*seen.lock(), [(1000, 2500), (2000, 2500), (2500, 2500)]);
    assert_eq!(driver.counts().commits, 1);
    let answer = plain
        .insert_many("orders", &records, Options::default(), None)
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(2500));
    let none = plain
        .insert_many("orders", &[], Options::default(), None)
        .await
        .unwrap();
    assert_eq!(none.affected, Some(0));

    let commits = driver.counts().commits;
    driver.next(Point::Run, Reply::affected(1));
    driver.next(Point::Run, Reply::fails(constraint_broken()));
    let different = [record(1), vec![("id".into(), Value::I64(1))]];
    let result = plain
        .insert_many("orders", &different, Options::default(), None)
        .await;
    assert_eq!(code(result), Code::Constraint);
    let changes: Vec<Change> = (0..3)
        .map(|n| Change {
            filters: vec![Filter::equal("id", Value::I64(n))],
            set: record(n),
        })
        .collect();
    let answer = plain
        .update_many("orders", &changes, Options::default(), None)
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(3));
    assert_eq!(driver.counts().commits, commits + 1);
}

/// Rows of two shapes.
fn mixed() -> [Record; 3] {
    let record = |name: &str| -> Record { vec![(name.into(), Value::I64(1))] };
    [record("total"), record("id"), record("total")]
}

#[tokio::test(start_paused = true)]
async fn rows_of_mixed_shapes_are_one_transaction_that_is_run_again_as_a_whole() {
    let rows = mixed();
    for reply in [Reply::fails(contended()), Reply::breaks(connection_lost())] {
        let (driver, plain) = bench();
        driver.always(Point::Run, Reply::affected(1));
        driver.next(Point::Run, Reply::affected(1));
        driver.next(Point::Run, reply);
        let seen = parking_lot::Mutex::new(Vec::new());
        let progress = |done, of| seen.lock().push((done, of));
        let inserted = plain.insert_many("orders", &rows, Options::default(), Some(&progress));
        assert_eq!(inserted.await.unwrap().affected, Some(3));
        assert_eq!(*seen.lock(), [(1, 3), (1, 3), (2, 3), (3, 3)]);
        let counts = driver.counts();
        assert_eq!((counts.begins, counts.commits), (2, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn mixed_rows_are_not_tried_more_often_than_calls_nor_after_a_lost_commit() {
    let rows = mixed();
    let (driver, plain) = bench();
    driver.always(Point::Run, Reply::fails(contended()));
    let inserted = plain.insert_many("orders", &rows, Options::default(), None);
    let error = inserted.await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Contention, Sent::YesUnprocessed)
    );
    let attempts = Policy::preset(Preset::Balanced).retry.attempts_max;
    assert_eq!(driver.counts().begins, u64::from(attempts));

    let (driver, plain) = bench();
    driver.next(Point::Commit, Reply::breaks(connection_lost()));
    let inserted = plain.insert_many("orders", &rows, Options::default(), None);
    assert_eq!(code(inserted.await), Code::OutcomeUnknown);
    assert_eq!(driver.counts().begins, 1);

    let (driver, plain) = bench();
    let slow = Reply::fails(contended()).wait_after(std::time::Duration::from_millis(400));
    driver.always(Point::Run, slow);
    let options = Options {
        deadline: Some(std::time::Duration::from_secs(1)),
        ..Options::default()
    };
    let began = tokio::time::Instant::now();
    let inserted = plain.insert_many("orders", &rows, options, None);
    assert!(inserted.await.unwrap_err().sent().is_proven_harmless());
    assert!(began.elapsed() <= std::time::Duration::from_millis(1300));
}

#[tokio::test(start_paused = true)]
async fn streams_give_reads_only() {
    let (driver, plain) = bench();
    driver.always(Point::Open, Reply::rows(vec![vec![Value::I64(1)]; 3]));
    let mut stream = plain
        .stream_query("SELECT 1", vec![], Options::default())
        .await
        .unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().rows.len(), 3);
    let mut stream = plain
        .stream_entity(&Find::all("orders"), Options::default())
        .await
        .unwrap();
    assert_eq!(stream.next().await.unwrap().unwrap().rows.len(), 3);
    let result = plain
        .stream_query("DELETE FROM orders", vec![], Options::default())
        .await;
    assert_eq!(code(result), Code::BadRequest);
    let paged = Find::all("orders").page(1, 1);
    assert_eq!(
        code(plain.stream_entity(&paged, Options::default()).await),
        Code::BadRequest
    );
}

#[tokio::test(start_paused = true)]
async fn a_script_gives_a_result_for_each_statement() {
    let (driver, plain) = bench();
    driver.always(Point::Run, Reply::affected(2));
    let answer = plain
        .script(
            "UPDATE a SET b = ';'; -- c\nDELETE FROM d;",
            Options::default(),
        )
        .await
        .unwrap();
    assert_eq!(answer.results.len(), 2);
    assert_eq!(texts(&driver), ["UPDATE a SET b = ';'", "DELETE FROM d"]);
    assert_eq!(driver.counts().commits, 1);
    assert_eq!(
        code(plain.script(" ; -- nothing", Options::default()).await),
        Code::BadRequest
    );
    assert_eq!(
        code(plain.script("SELECT 1; COMMIT", Options::default()).await),
        Code::BadStatement
    );
}

#[tokio::test(start_paused = true)]
async fn entities_are_created_described_and_dropped() {
    let (driver, plain) = bench();
    driver.describes(
        Describe::ForeignKeys("orders".into()),
        Description::Relations(Some(Vec::new())),
    );
    plain
        .create_entity(&orders(&["id", "total"]), Options::default())
        .await
        .unwrap();
    plain
        .drop_entity("orders", Options::default())
        .await
        .unwrap();
    let texts = texts(&driver);
    assert!(texts[0].starts_with("CREATE TABLE \"orders\""), "{texts:?}");
    assert_eq!(texts[1], "DROP TABLE \"orders\"");
    let script = plain.ddl_for(&["orders"]).await.unwrap();
    assert!(
        script.contains("PRIMARY KEY (\"id\")") && script.ends_with(";\n"),
        "{script}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_script_of_entities_has_views_after_what_they_read() {
    let (driver, plain) = bench();
    let view = |name: &str, text: &str| {
        let entity = Entity {
            name: name.into(),
            is_view: true,
            primary_key: Vec::new(),
            ..orders(&["id"])
        };
        let entity = Description::Entity(Some(Arc::new(entity)));
        driver.describes(Describe::Entity(name.into()), entity);
        driver.describes(
            Describe::View(name.into()),
            Description::View(Some(text.to_owned())),
        );
    };
    view(
        "best",
        "CREATE VIEW best AS SELECT * FROM \"good\" JOIN orders USING (id)",
    );
    view("good", "CREATE VIEW good AS SELECT id FROM s.Fair");
    view("fair", "CREATE VIEW fair AS SELECT id FROM orders");
    driver.describes(
        Describe::ForeignKeys("orders".into()),
        Description::Relations(Some(Vec::new())),
    );
    let names = ["best", "good", "orders", "fair"];
    let script = plain.ddl_for(&names).await.unwrap();
    let starts: Vec<&str> = script
        .lines()
        .filter_map(|line| line.strip_prefix("CREATE "))
        .filter_map(|line| line.split(" AS ").next())
        .collect();
    let expected = ["TABLE \"orders\" (", "VIEW fair", "VIEW good", "VIEW best"];
    assert_eq!(starts, expected, "{script}");

    driver.describes(Describe::View("fair".into()), Description::View(None));
    assert_eq!(code(plain.ddl_for(&["fair"]).await), Code::NotAvailable);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_is_run_again_only_where_nothing_happened() {
    for (point, failure, reruns, runs, ended) in [
        (Point::Run, Reply::fails(contended()), 2, 2, Ok(7)),
        (
            Point::Run,
            Reply::fails(contended()),
            0,
            1,
            Err(Code::Contention),
        ),
        (Point::Run, Reply::breaks(connection_lost()), 2, 2, Ok(7)),
        (
            Point::Run,
            Reply::fails(constraint_broken()),
            2,
            1,
            Err(Code::Constraint),
        ),
        (Point::Commit, Reply::fails(contended()), 2, 2, Ok(7)),
        (
            Point::Commit,
            Reply::breaks(connection_lost()),
            2,
            1,
            Err(Code::OutcomeUnknown),
        ),
    ] {
        let (driver, plain) = bench();
        driver.next(point, failure.clone());
        let ran = AtomicU32::new(0);
        let result = plain
            .transaction(Begin::default(), reruns, |transaction| {
                ran.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move {
                    let request = mainstay_sql::Request {
                        class: None,
                        name: "test".into(),
                        work: mainstay_sql::Work::Statement {
                            text: "UPDATE orders SET total = 1".into(),
                            params: vec![],
                        },
                        safety: Safety::Write,
                        access: mainstay_sql::Access::ReadWrite,
                        options: Options::default(),
                        answer_max: Default::default(),
                    };
                    transaction.run(&request).await?;
                    Ok(7)
                })
            })
            .await;
        assert_eq!(
            result.map_err(|error| error.code()),
            ended,
            "{point:?} {failure:?}"
        );
        assert_eq!(ran.load(Ordering::Relaxed), runs, "{point:?} {failure:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn verbs_work_on_a_database_behind_a_pointer_and_in_a_task() {
    let (driver, plain) = bench();
    let tasks = Tasks::new();
    let shared: Arc<dyn Database> = Arc::new(plain);
    tasks
        .spawn(async move {
            shared.entities().await.unwrap();
            shared
                .query("SELECT 1", vec![], Options::default())
                .await
                .unwrap();
            shared
                .find(&Find::all("orders"), Options::default())
                .await
                .unwrap();
            shared
                .insert("orders", &Record::new(), Options::default())
                .await
                .unwrap();
            shared
                .insert_many("orders", &[Record::new()], Options::default(), None)
                .await
                .unwrap();
            shared.ddl_for(&[]).await.unwrap();
            shared
                .transaction(Begin::default(), 1, |transaction| {
                    Box::pin(async move { transaction.savepoint("a").await })
                })
                .await
                .unwrap();
        })
        .await
        .unwrap();
    assert!(driver.counts().statements >= 4);
}
