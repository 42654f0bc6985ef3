//! Writes under idempotency keys, verb by verb: the second answer is the first, the effect is there once, and what
//! cannot have a key says so.

mod waits;

use std::sync::Arc;
use std::time::Duration;

use mainstay::policy::Settings;
use mainstay::sql::catalog::{Entity, EntityColumn};
use mainstay::sql::{
    Answer, Begin, Code, ColumnType, Driver, Filter, Find, IdempotencyTable, Operator, Options,
    Plain, TableName, Value, Verbs, verbs,
};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, Database, EndpointSpec, Policy, Role, Safety, SqlError};
use mainstay_testkit::mariadb::MariadbServer;
use mainstay_testkit::postgres::PostgresServer;

use super::lone;
use super::servers::{Server, first};

const ATTEMPT: Duration = Duration::from_secs(5);

struct Rig {
    proxy: DataProxy,
    plain: Plain,
    tasks: Tasks,
}

fn table(name: &str) -> IdempotencyTable {
    IdempotencyTable::new(TableName::parse(name).unwrap())
}

fn rig(driver: Arc<dyn Driver>, tasks: Tasks, keys: Option<IdempotencyTable>) -> Rig {
    rig_with(driver, tasks, keys, lone::settings(ATTEMPT))
}

fn rig_with(
    driver: Arc<dyn Driver>,
    tasks: Tasks,
    keys: Option<IdempotencyTable>,
    settings: Settings,
) -> Rig {
    let policy = Policy::new(settings).unwrap();
    let chance = Chance::seeded(8);
    let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
    let member: Arc<dyn Database> = Arc::new(plain.clone());
    let mut builder = DataProxy::builder("s", policy)
        .tasks(tasks.clone())
        .chance(chance)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary));
    if let Some(keys) = keys {
        builder = builder.idempotency(keys);
    }
    let proxy = builder.build().unwrap();
    Rig {
        proxy,
        plain,
        tasks,
    }
}

fn of<S: Server>(server: &S, keys: Option<IdempotencyTable>) -> Rig {
    let tasks = Tasks::new();
    let driver = S::driver(server.port(), S::SUPERUSER, &tasks);
    rig(driver, tasks, keys)
}

fn sqlite(folder: &tempfile::TempDir, keys: Option<IdempotencyTable>) -> Rig {
    let settings = SqliteSettings::new(folder.path().join("s.db")).create(true);
    let driver = SqliteDriver::new(settings).unwrap();
    rig(Arc::new(driver), Tasks::new(), keys)
}

fn key(key: &str) -> Options {
    Options {
        idempotency_key: Some(key.into()),
        ..Options::default()
    }
}

fn record(id: i64, n: i64) -> verbs::Record {
    vec![
        ("id".to_owned(), Value::I64(id)),
        ("n".to_owned(), Value::I64(n)),
    ]
}

fn is(field: &str, value: i64) -> Filter {
    Filter::new(field.to_owned(), Operator::Equal, vec![Value::I64(value)])
}

/// The two answers of one request, of which the second is the stored one.
#[track_caller]
fn same(verb: &str, first: &Answer, second: &Answer) {
    assert!(!first.meta.replayed, "{verb}");
    assert!(second.meta.replayed, "{verb}");
    assert_eq!(first.columns, second.columns, "{verb}");
    assert_eq!(first.rows, second.rows, "{verb}");
    assert_eq!(first.affected, second.affected, "{verb}");
    assert_eq!(first.keys, second.keys, "{verb}");
    assert_eq!(first.results, second.results, "{verb}");
}

impl Rig {
    async fn sum(&self) -> (i64, i64) {
        let sql = "SELECT count(*), coalesce(sum(n), 0) FROM t";
        let answer = self.proxy.query(sql, vec![], Options::default()).await;
        let row = answer.unwrap().rows.swap_remove(0);
        let number = |value: &Value| match value {
            Value::I64(number) => *number,
            Value::Decimal(number) => number.as_str().parse().unwrap(),
            other => panic!("{other:?}"),
        };
        (number(&row[0]), number(&row[1]))
    }

    /// A request twice under the same key: it had its effect once.
    async fn twice(
        &self,
        verb: &str,
        effect: (i64, i64),
        call: impl AsyncFn(Options) -> Result<Answer, SqlError>,
    ) {
        let before = self.sum().await;
        let first = call(key(verb)).await.unwrap();
        let second = call(key(verb)).await.unwrap();
        same(verb, &first, &second);
        let after = self.sum().await;
        let changed = (after.0 - before.0, after.1 - before.1);
        assert_eq!(changed, effect, "{verb}");
    }

    async fn every_verb(&self) {
        let proxy = &self.proxy;
        let made = "CREATE TABLE t (id bigint PRIMARY KEY, n bigint)";
        proxy
            .execute(made, vec![], Options::default())
            .await
            .unwrap();
        let one = first(proxy.dialect());
        self.twice("insert", (1, 5), async |o| {
            proxy.insert("t", &record(1, 5), o).await
        })
        .await;
        let add = format!("UPDATE t SET n = n + {one}");
        self.twice("execute", (0, 7), async |o| {
            proxy.execute(&add, vec![Value::I64(7)], o).await
        })
        .await;
        self.twice("query", (0, 1), async |o| {
            proxy.query("UPDATE t SET n = n + 1", vec![], o).await
        })
        .await;
        let many = [
            record(2, 10),
            vec![("id".to_owned(), Value::I64(3))],
            record(4, 1),
        ];
        self.twice("insert_many", (3, 11), async |o| {
            proxy.insert_many("t", &many, o, None).await
        })
        .await;
        let like = [record(5, 10), record(6, 20)];
        self.twice("insert_many alike", (2, 30), async |o| {
            proxy.insert_many("t", &like, o, None).await
        })
        .await;
        let change = verbs::Change {
            filters: vec![is("id", 1)],
            set: vec![("n".to_owned(), Value::I64(0))],
        };
        self.twice("update", (0, -13), async |o| {
            proxy.update("t", &change, o).await
        })
        .await;
        let changes = [change.clone(), change];
        self.twice("update_many", (0, 0), async |o| {
            proxy.update_many("t", &changes, o, None).await
        })
        .await;
        self.twice("delete", (-1, -10), async |o| {
            proxy.delete("t", &[is("id", 2)], o).await
        })
        .await;
        let script =
            "INSERT INTO t (id, n) VALUES (9, 1); UPDATE t SET n = n + 1 WHERE id = 9; SELECT 1";
        self.twice("script", (1, 2), async |o| proxy.script(script, o).await)
            .await;
    }

    /// Errors are not kept: what was refused may be tried again.
    async fn an_error_keeps_nothing(&self) {
        let twice = "INSERT INTO t (id, n) VALUES (50, 1)";
        let fails = self
            .proxy
            .execute("INSERT INTO t (id, n) VALUES (1, 1)", vec![], key("e"));
        assert_eq!(fails.await.unwrap_err().code(), Code::Constraint);
        let good = self.proxy.execute(twice, vec![], key("e")).await.unwrap();
        assert!(!good.meta.replayed);
        let other = self.proxy.execute("DELETE FROM t", vec![], key("e")).await;
        let error = other.unwrap_err();
        assert_eq!(error.code(), Code::IdempotencyMismatch, "{error}");
        assert!(error.sent().is_proven_harmless());
    }

    /// The same key of somebody else is another key.
    async fn owners_do_not_meet(&self) {
        let insert = |id: i64| format!("INSERT INTO t (id, n) VALUES ({id}, 0)");
        for (id, owner) in [
            (60, None),
            (61, Some("a")),
            (62, Some("b")),
            (63, Some("A")),
        ] {
            let options = Options {
                key_owner: owner.map(Into::into),
                ..key("shared")
            };
            let insert = insert(id);
            let first = self.proxy.execute(&insert, vec![], options.clone());
            assert!(!first.await.unwrap().meta.replayed, "{owner:?}");
            let again = self.proxy.execute(&insert, vec![], options);
            assert!(again.await.unwrap().meta.replayed, "{owner:?}");
        }
    }

    async fn refused(&self) {
        let proxy = &self.proxy;
        let unavailable = |what: &str, result: Option<SqlError>| {
            let code = result.map(|error| error.code());
            assert_eq!(code, Some(Code::IdempotencyUnavailable), "{what}");
        };
        let read = proxy.query("SELECT 1", vec![], key("r")).await;
        unavailable("read", read.err());
        let declared = Options {
            safety: Some(Safety::Read),
            ..key("r")
        };
        let read = proxy.execute("DELETE FROM t", vec![], declared).await;
        unavailable("declared a read", read.err());
        let find = Find::all("t");
        unavailable("find", proxy.find(&find, key("r")).await.err());
        let stream = proxy.stream_query("SELECT 1", vec![], key("r")).await;
        unavailable("stream", stream.err());
        let begin = Begin {
            options: key("r"),
            ..Begin::default()
        };
        let begun = proxy.begin(&begin, Default::default()).await;
        unavailable("begin", begun.err());
        let entity = Entity {
            schema: None,
            name: "u".to_owned(),
            is_view: false,
            columns: vec![EntityColumn {
                name: "id".to_owned(),
                column_type: ColumnType::I64,
                native: String::new(),
                nullable: false,
                default: None,
                generated: false,
            }],
            primary_key: Vec::new(),
            indexes: Vec::new(),
        };
        let created = proxy.create_entity(&entity, key("r")).await;
        unavailable("create_entity", created.err());
        unavailable("drop_entity", proxy.drop_entity("t", key("r")).await.err());
        let run = proxy
            .run(Safety::Write, key("r"), |_| async { Ok(()) })
            .await;
        unavailable("run", run.err());
        let plain = self.plain.execute("DELETE FROM t", vec![], key("r")).await;
        unavailable("a plain driver", plain.err());
        let long = "k".repeat(257);
        let long = proxy.execute("DELETE FROM t", vec![], key(&long)).await;
        assert_eq!(long.unwrap_err().code(), Code::BadRequest);
    }

    async fn shut_down(self) {
        self.proxy.close(Duration::from_secs(5)).await;
        assert_eq!(self.tasks.shutdown(Duration::from_secs(5)).await, 0);
    }
}

async fn tell(rig: Rig) {
    rig.every_verb().await;
    rig.an_error_keeps_nothing().await;
    rig.owners_do_not_meet().await;
    rig.refused().await;
    rig.shut_down().await;
}

#[tokio::test]
async fn every_verb_that_writes_takes_a_key_on_postgresql() {
    let server = <PostgresServer as Server>::start(&[]).await;
    tell(of(&server, Some(table("public.mainstay_keys")))).await;
    // An answer that is too large is undone with its write.
    let small = IdempotencyTable {
        answer_max: 300,
        ..table("mainstay_keys")
    };
    let rig = of(&server, Some(small));
    let text =
        "INSERT INTO t (id, n) SELECT g, 1 FROM generate_series(100, 140) g RETURNING id, 'a text'";
    let error = rig
        .proxy
        .query(text, vec![], key("large"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::AnswerTooLarge, "{error}");
    assert!(error.sent().is_proven_harmless(), "{error}");
    assert_eq!(
        server
            .value("SELECT count(*) FROM t WHERE id >= 100")
            .await
            .unwrap(),
        "0"
    );
    rig.shut_down().await;
}

#[tokio::test]
async fn every_verb_that_writes_takes_a_key_on_mariadb() {
    let server = <MariadbServer as Server>::start(&[]).await;
    let rig = of(&server, Some(table("mainstay_keys")));
    let ddl = rig.proxy.script(
        "CREATE TABLE x (id int); INSERT INTO x VALUES (1)",
        key("ddl"),
    );
    let error = ddl.await.unwrap_err();
    assert_eq!(error.code(), Code::IdempotencyUnavailable, "{error}");
    tell(rig).await;
}

#[tokio::test]
async fn every_verb_that_writes_takes_a_key_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    tell(sqlite(&folder, Some(table("mainstay_keys")))).await;
}

#[tokio::test]
async fn a_key_that_is_too_old_is_a_new_one_and_old_ones_are_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let rig = sqlite(&folder, Some(table("k")));
    let proxy = &rig.proxy;
    let sql = |text: &'static str| async move {
        proxy
            .execute(text, vec![], Options::default())
            .await
            .unwrap()
    };
    sql("CREATE TABLE t (id INTEGER)").await;
    let insert = "INSERT INTO t VALUES (1)";
    proxy.execute(insert, vec![], key("a")).await.unwrap();
    assert!(
        proxy
            .execute(insert, vec![], key("a"))
            .await
            .unwrap()
            .meta
            .replayed
    );
    sql("UPDATE k SET at = at - 100000").await;
    let again = proxy.execute(insert, vec![], key("a")).await.unwrap();
    assert!(!again.meta.replayed);
    // What is too old goes when a table is used, at the first of many times.
    sql("INSERT INTO k (owner, idempotency_key, request, at)
         WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < 2500)
         SELECT 's', 'old ' || n, x'00', 0 FROM g")
    .await;
    let fresh = self::rig(
        Arc::new(SqliteDriver::new(SqliteSettings::new(folder.path().join("s.db"))).unwrap()),
        rig.tasks.clone(),
        Some(table("k")),
    );
    fresh.proxy.execute(insert, vec![], key("b")).await.unwrap();
    assert!(rig.tasks.running() > 0);
    let end = tokio::time::Instant::now() + Duration::from_secs(10);
    let count = "SELECT count(*) FROM k";
    while proxy
        .scalar(count, vec![], Options::default())
        .await
        .unwrap()
        != Some(Value::I64(2))
    {
        assert!(tokio::time::Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    fresh.proxy.close(Duration::from_secs(5)).await;
    rig.shut_down().await;
}

#[tokio::test]
async fn who_may_not_make_the_table_is_told_how_it_is_made() {
    let server =
        <PostgresServer as Server>::start(&[("access", "host all all 127.0.0.1/32 trust")]).await;
    for text in [
        "CREATE ROLE app LOGIN",
        "CREATE TABLE t (id bigint)",
        "GRANT ALL ON t TO app",
    ] {
        server.sql(text).await.unwrap();
    }
    let tasks = Tasks::new();
    let driver = PostgresServer::driver(server.port(), ("app", None), &tasks);
    let rig = rig(driver, tasks, Some(table("mainstay_keys")));
    let insert = "INSERT INTO t VALUES (1)";
    let error = rig
        .proxy
        .execute(insert, vec![], key("a"))
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::IdempotencyUnavailable, "{error}");
    assert!(error.sent().is_proven_harmless());
    let hint = error.detail().hint.clone().unwrap();
    let ddl = hint.split_once(": ").unwrap().1;
    server.sql(ddl).await.unwrap();
    server
        .sql("GRANT SELECT, INSERT, UPDATE, DELETE ON mainstay_keys TO app")
        .await
        .unwrap();
    rig.proxy.execute(insert, vec![], key("a")).await.unwrap();
    // It vanishes, and is there again.
    server.sql("DROP TABLE mainstay_keys").await.unwrap();
    let gone = rig
        .proxy
        .execute(insert, vec![], key("a"))
        .await
        .unwrap_err();
    assert!(gone.sent().is_proven_harmless(), "{gone}");
    server
        .sql("GRANT CREATE ON SCHEMA public TO app")
        .await
        .unwrap();
    rig.proxy.execute(insert, vec![], key("a")).await.unwrap();
    assert_eq!(server.value("SELECT count(*) FROM t").await.unwrap(), "2");
    rig.shut_down().await;
}
