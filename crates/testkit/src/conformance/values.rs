use mainstay_engine::Sent;
use mainstay_sql::{Code, ColumnType, Value};

use super::Fixture;
use super::bench::Bench;

/// Each value of the fixture, and NULL, is stored as a parameter and read back equal.
pub async fn values_come_back_the_same(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for (index, (native, value)) in fixture.values().into_iter().enumerate() {
        let table = format!("conformance_value_{index}");
        session
            .run(&format!("CREATE TABLE {table} (v {native})"))
            .await
            .unwrap();
        for stored in [value, Value::Null] {
            session.run(&format!("DELETE FROM {table}")).await.unwrap();
            let insert = bench.sql(&format!("INSERT INTO {table} (v) VALUES ({{}})"));
            let inserted = session
                .run_with(&insert, std::slice::from_ref(&stored))
                .await;
            inserted.unwrap_or_else(|error| panic!("{native} {stored:?}: {error}"));
            let read = session
                .run(&format!("SELECT v FROM {table}"))
                .await
                .unwrap();
            assert_eq!(read.rows, [[stored]], "{native}");
        }
    }
}

/// A value that its column cannot hold is an error of the caller, and the session stays usable.
pub async fn values_that_do_not_fit_are_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.writer().await;
    for (index, (native, value)) in fixture.refused_values().into_iter().enumerate() {
        let table = format!("conformance_refused_{index}");
        session
            .run(&format!("CREATE TABLE {table} (v {native})"))
            .await
            .unwrap();
        let insert = bench.sql(&format!("INSERT INTO {table} (v) VALUES ({{}})"));
        let error = session
            .run_with(&insert, std::slice::from_ref(&value))
            .await
            .unwrap_err();
        assert!(
            matches!(error.code(), Code::BadValue | Code::Constraint),
            "{native} {value:?}: {error}"
        );
        assert_ne!(error.sent(), Sent::Maybe, "{native} {value:?}: {error}");
        session.assert_usable().await;
        assert_eq!(session.count(&table).await, 0);
    }
}

/// An answer names its columns as the statement does and says their types.
pub async fn columns_have_names_and_types(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_columns", "id BIGINT, name TEXT")
        .await;
    let answer = session
        .run("SELECT id, name AS title FROM conformance_columns")
        .await
        .unwrap();
    let names: Vec<&str> = answer.columns.iter().map(|column| &*column.name).collect();
    assert_eq!(names, ["id", "title"]);
    assert_eq!(answer.columns[0].column_type, ColumnType::I64);
    assert_eq!(answer.columns[1].column_type, ColumnType::Text);
    assert!(
        answer.rows.is_empty(),
        "an empty answer has its columns too"
    );
    assert!(!answer.columns[0].native.is_empty());
}
