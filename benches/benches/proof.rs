//! What proof costs: a transaction of one insert without a proof of its commit and with one in each form, and a
//! single insert without and with an idempotency key. Both sides of a line take turns.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use mainstay::mysql::{MysqlDriver, MysqlSettings};
use mainstay::postgres::{PostgresDriver, PostgresSettings, TlsMode};
use mainstay::sql::{
    Access, AnswerMax, Begin, CommitProof, Database, Dialect, Driver, IdempotencyTable, Options,
    Plain, ProofForm, Request, Scope, TableName, Value, Verbs, Work,
};
use mainstay::sqlite::{SqliteDriver, SqliteSettings};
use mainstay::tasks::Tasks;
use mainstay::{Chance, DataProxy, EndpointSpec, Policy, Preset, Role, Safety};
use mainstay_benches::{compare, is_measuring};
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use tokio::runtime::Runtime;
use tokio::time::Instant;

const TABLE: &str = "CREATE TABLE t (id bigint PRIMARY KEY)";

/// One source over one database.
struct Side {
    proxy: DataProxy,
    insert: String,
}

fn side(
    driver: Arc<dyn Driver>,
    tasks: &Tasks,
    proof: Option<ProofForm>,
    keys: bool,
) -> anyhow::Result<Side> {
    let policy = Policy::preset(Preset::Balanced);
    let chance = Chance::seeded(1);
    let plain = Plain::new(driver, &policy, tasks.clone(), chance.clone());
    let member: Arc<dyn Database> = Arc::new(plain);
    let mut builder = DataProxy::builder("bench", policy)
        .tasks(tasks.clone())
        .chance(chance)
        .endpoint(EndpointSpec::new("a", member).role(Role::Primary));
    if let Some(form) = proof {
        builder = builder.commit_proof(CommitProof::new(form));
    }
    if let (true, Some(table)) = (keys, TableName::parse("mainstay_keys")) {
        builder = builder.idempotency(IdempotencyTable::new(table));
    }
    let proxy = builder.build()?;
    let one = proxy.dialect().placeholder(1);
    Ok(Side {
        insert: format!("INSERT INTO t (id) VALUES ({one})"),
        proxy,
    })
}

impl Side {
    async fn transact(&self, id: i64) -> anyhow::Result<()> {
        let request = Request {
            name: "insert".into(),
            work: Work::Statement {
                text: self.insert.as_str().into(),
                params: vec![Value::I64(id)],
            },
            safety: Safety::Write,
            access: Access::ReadWrite,
            options: Options::default(),
            answer_max: AnswerMax::default(),
            class: None,
        };
        let begin = Begin::default();
        let mut transaction = self.proxy.begin(&begin, Scope::default()).await?;
        transaction.run(&request).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn insert(&self, id: i64, is_keyed: bool) -> anyhow::Result<()> {
        let options = Options {
            idempotency_key: is_keyed.then(|| id.to_string().into()),
            ..Options::default()
        };
        let params = vec![Value::I64(id)];
        self.proxy.execute(&self.insert, params, options).await?;
        Ok(())
    }
}

/// So many runs of a side, and how long they took.
fn timed(
    runtime: &Runtime,
    ids: &Cell<i64>,
    times: u64,
    run: impl AsyncFn(i64) -> anyhow::Result<()>,
) -> Duration {
    runtime.block_on(async {
        let began = Instant::now();
        for _ in 0..times {
            ids.set(ids.get() + 1);
            run(ids.get()).await.expect("a write without a fault");
        }
        began.elapsed()
    })
}

fn measure(
    runtime: &Runtime,
    name: &str,
    driver: &Arc<dyn Driver>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let ids = Cell::new(0);
    let make =
        |proof, keys| runtime.block_on(async { side(Arc::clone(driver), tasks, proof, keys) });
    let without = make(None, true)?;
    runtime.block_on(async {
        let made = without.proxy.execute(TABLE, vec![], Options::default());
        made.await
    })?;
    let mut forms = vec![("table", ProofForm::Table)];
    if driver.dialect() == Dialect::Postgres {
        forms.push(("xid", ProofForm::Xid));
    }
    for (form_name, form) in forms {
        let with = make(Some(form), false)?;
        let line = compare(
            &mut |times| timed(runtime, &ids, times, async |id| with.transact(id).await),
            &mut |times| timed(runtime, &ids, times, async |id| without.transact(id).await),
        );
        tell(
            &format!("{name}: transaction, commit_proof = {form_name}"),
            &line,
        );
        let line = compare(
            &mut |times| {
                timed(runtime, &ids, times, async |id| {
                    with.insert(id, false).await
                })
            },
            &mut |times| {
                timed(runtime, &ids, times, async |id| {
                    without.insert(id, false).await
                })
            },
        );
        tell(
            &format!("{name}: one insert, commit_proof = {form_name}"),
            &line,
        );
    }
    let line = compare(
        &mut |times| {
            timed(runtime, &ids, times, async |id| {
                without.insert(id, true).await
            })
        },
        &mut |times| {
            timed(runtime, &ids, times, async |id| {
                without.insert(id, false).await
            })
        },
    );
    tell(&format!("{name}: one insert, idempotency key"), &line);
    Ok(())
}

fn tell(name: &str, line: &mainstay_benches::Comparison) {
    if is_measuring() {
        println!(
            "{name}: {:.0} µs, without {:.0} µs, adds {:.0} µs ({:.0} to {:.0})",
            line.first_ns / 1e3,
            line.second_ns / 1e3,
            line.added_ns.median / 1e3,
            line.added_ns.low / 1e3,
            line.added_ns.high / 1e3,
        );
    }
}

fn main() -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let tasks = Tasks::new();
    let folder = tempfile::tempdir()?;
    let settings = SqliteSettings::new(folder.path().join("s.db")).create(true);
    let sqlite: Arc<dyn Driver> = Arc::new(SqliteDriver::new(settings)?);
    measure(&runtime, "sqlite", &sqlite, &tasks)?;

    let server = runtime.block_on(PostgresServer::start(PostgresOptions::new()))?;
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = server.port();
    settings.tls.mode = TlsMode::Off;
    let postgres: Arc<dyn Driver> = Arc::new(PostgresDriver::new(settings, tasks.clone()));
    measure(&runtime, "postgres", &postgres, &tasks)?;
    drop(server);

    let server = runtime.block_on(MariadbServer::start(MariadbOptions::new()))?;
    let mut settings = MysqlSettings::new("127.0.0.1", "test", "root");
    settings.port = server.port();
    settings.tls.mode = TlsMode::Off;
    let mariadb: Arc<dyn Driver> = Arc::new(MysqlDriver::new(settings, tasks.clone()));
    measure(&runtime, "mariadb", &mariadb, &tasks)
}
