//! Transactions that lead names of tables elsewhere: their proof stays where it is looked for.

use std::time::Duration;

use mainstay::sql::{Begin, Code, IdempotencyTable, Options, ProofForm, Scope, TableName, Verbs};
use mainstay::tasks::Tasks;
use mainstay::{DataProxy, Database, Safety, SqlError};
use mainstay_testkit::mariadb::MariadbServer;
use mainstay_testkit::postgres::PostgresServer;

use super::super::lone;
use super::super::servers::Server;
use super::{builder, prove};

fn source<S: Server>(server: &S, tasks: &Tasks) -> DataProxy {
    let driver = S::driver(server.port(), S::SUPERUSER, tasks);
    let keys = IdempotencyTable::new(TableName::parse("mainstay_keys").unwrap());
    builder(
        driver,
        prove(ProofForm::Table, Duration::from_secs(5)),
        tasks,
    )
    .idempotency(keys)
    .build()
    .unwrap()
}

/// One transaction of these statements.
async fn transact(proxy: &DataProxy, texts: &[&str]) -> Result<(), SqlError> {
    let mut transaction = proxy.begin(&Begin::default(), Scope::default()).await?;
    for text in texts {
        let request = lone::statement(text, Vec::new(), Safety::Write);
        transaction.run(&request).await?;
    }
    transaction.commit().await.map(drop)
}

/// Transactions that go to a schema without tables of proof, and to one that has its own.
async fn leads_elsewhere<S: Server>(default: &str, own: &str, go: impl Fn(&str) -> String) {
    let server = S::start(&[]).await;
    for schema in ["bare", "own"] {
        server
            .sql(&format!("CREATE SCHEMA {schema}"))
            .await
            .unwrap();
        let table = format!("CREATE TABLE {schema}.t (id bigint)");
        server.sql(&table).await.unwrap();
    }
    server.sql(own).await.unwrap();
    let tasks = Tasks::new();
    let proxy = source(&server, &tasks);
    for schema in ["bare", "own"] {
        let texts = [go(schema), "INSERT INTO t VALUES (1)".to_owned()];
        transact(&proxy, &[&texts[0], &texts[1]]).await.unwrap();
        let count = format!("SELECT count(*) FROM {schema}.t");
        assert_eq!(server.value(&count).await.unwrap(), "1");
    }
    let count = async |table: &str| {
        let count = format!("SELECT count(*) FROM {table}");
        server.value(&count).await.unwrap()
    };
    assert_eq!(count("own.mainstay_commits").await, "0");
    assert_eq!(count(&format!("{}.mainstay_commits", default)).await, "2");
    proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test]
async fn a_search_path_of_a_transaction_leads_its_proof_nowhere_else() {
    let own =
        "CREATE TABLE own.mainstay_commits (token bytea PRIMARY KEY, at timestamptz DEFAULT now())";
    let go = |schema: &str| format!("SET LOCAL search_path = {schema}");
    leads_elsewhere::<PostgresServer>("public", own, go).await;
}

#[tokio::test]
async fn a_default_database_of_a_transaction_leads_its_proof_nowhere_else() {
    let own = "CREATE TABLE own.mainstay_commits (token binary(16) PRIMARY KEY, at timestamp(6) DEFAULT now(6))";
    leads_elsewhere::<MariadbServer>("test", own, |schema| format!("USE {schema}")).await;
}

#[tokio::test]
async fn a_key_is_found_again_whatever_the_search_path_of_its_script_is() {
    let server = <PostgresServer as Server>::start(&[]).await;
    server.sql("CREATE SCHEMA bare").await.unwrap();
    server.sql("CREATE TABLE bare.t (id bigint)").await.unwrap();
    let tasks = Tasks::new();
    let proxy = source(&server, &tasks);
    let script = "SELECT set_config('search_path', 'bare', true); INSERT INTO t VALUES (1)";
    for replayed in [false, true] {
        let options = Options {
            idempotency_key: Some("a".into()),
            ..Options::default()
        };
        let answer = proxy.script(script, options).await.unwrap();
        assert_eq!(answer.meta.replayed, replayed);
    }
    proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}

#[tokio::test]
async fn a_role_that_may_not_write_the_proof_is_told_which_table_it_is_about() {
    let server = <PostgresServer as Server>::start(&[]).await;
    for text in [
        "CREATE ROLE tenant",
        "CREATE TABLE t (id bigint)",
        "GRANT ALL ON t TO tenant",
    ] {
        server.sql(text).await.unwrap();
    }
    let tasks = Tasks::new();
    let proxy = source(&server, &tasks);
    let texts = ["SET LOCAL ROLE tenant", "INSERT INTO t VALUES (1)"];
    let error = transact(&proxy, &texts).await.unwrap_err();
    assert!(error.sent().is_proven_harmless(), "{error}");
    assert_ne!(error.code(), Code::OutcomeUnknown);
    let message = &error.failure().message;
    assert!(message.contains("public.mainstay_commits"), "{message}");
    let hint = error.detail().hint.clone().unwrap();
    assert!(hint.contains("SELECT and INSERT"), "{hint}");
    server
        .sql("GRANT SELECT, INSERT ON mainstay_commits TO tenant")
        .await
        .unwrap();
    transact(&proxy, &texts).await.unwrap();
    assert_eq!(server.value("SELECT count(*) FROM t").await.unwrap(), "1");
    proxy.close(Duration::from_secs(5)).await;
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
}
