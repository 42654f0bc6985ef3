use mainstay_engine::Sent;
use mainstay_sql::{Database, Options, Value, Verbs, Verdict};

use super::Fixture;
use super::bench::Bench;

/// The server itself refuses every change in a read-only session, says so, and the session stays usable.
pub async fn read_only_sessions_refuse_every_change(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut writer = bench.table("conformance_read_only", "id BIGINT").await;
    let mut reader = bench.reader().await;
    for text in [
        "INSERT INTO conformance_read_only VALUES (1)",
        "UPDATE conformance_read_only SET id = 2",
        "DELETE FROM conformance_read_only",
        "CREATE TABLE conformance_never (id BIGINT)",
        "DROP TABLE conformance_read_only",
    ] {
        let error = reader.run(text).await.unwrap_err();
        assert_eq!(error.detail().verdict, Verdict::ReadOnly, "{text}: {error}");
        assert_eq!(error.sent(), Sent::YesUnprocessed, "{text}: {error}");
        reader.assert_usable().await;
    }
    assert_eq!(writer.count("conformance_read_only").await, 0);
    assert_eq!(reader.count("conformance_read_only").await, 0);
}

/// Temporary tables do not survive a reset.
pub async fn a_reset_session_is_like_a_new_one(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for _ in 0..2 {
        session
            .run("CREATE TEMPORARY TABLE conformance_temporary (id BIGINT)")
            .await
            .unwrap();
        session
            .run("SELECT * FROM conformance_temporary")
            .await
            .unwrap();
        session.0.reset().await.unwrap();
        session
            .run("SELECT * FROM conformance_temporary")
            .await
            .unwrap_err();
        session.assert_usable().await;
    }
}

/// A statement that was prepared before its table changed works after it.
pub async fn a_changed_table_is_prepared_again(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_changed", "a BIGINT").await;
    session
        .run("INSERT INTO conformance_changed VALUES (1)")
        .await
        .unwrap();
    let plain = bench.pooled();
    let read = async || {
        let text = "SELECT * FROM conformance_changed";
        plain
            .query(text, vec![], Options::default())
            .await
            .unwrap()
            .rows
    };
    for _ in 0..3 {
        assert_eq!(read().await, [[Value::I64(1)]]);
    }
    session
        .run("ALTER TABLE conformance_changed ADD COLUMN b BIGINT")
        .await
        .unwrap();
    for _ in 0..2 {
        assert_eq!(read().await, [[Value::I64(1), Value::Null]]);
    }
    plain.close(std::time::Duration::from_secs(1)).await;
}

/// A health check of a running database succeeds, on either kind of session.
pub async fn a_probe_answers(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let probe = bench.reader().await.0.probe().await.unwrap();
    assert_ne!(probe.is_primary, Some(false), "the fixture is a writer");
    let mut writer = bench.writer().await;
    writer.0.probe().await.unwrap();
    writer.0.position().await.unwrap();
    writer.0.check().await.unwrap();
}
