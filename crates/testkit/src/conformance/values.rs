use mainstay_engine::Sent;
use mainstay_sql::{Answer, Code, ColumnType, Value};

use super::Fixture;
use super::bench::{Bench, Session};

/// Each value of the table, and NULL, is stored as a parameter and read back equal; what its expression
/// gives is that value too, and the type of its column is the one that readers are told.
pub async fn values_come_back_the_same(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = prepared(&bench, fixture).await;
    for (index, sample) in fixture.values().into_iter().enumerate() {
        let (table, native) = (format!("conformance_value_{index}"), sample.native);
        session
            .run(&format!("CREATE TABLE {table} (v {native})"))
            .await
            .unwrap();
        for stored in [sample.value.clone(), Value::Null] {
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
            assert_same(&read, &stored, sample.column, native);
        }
        let alone = sample.alone();
        let literal = format!("SELECT {}", sample.literal);
        let read = session.run(&literal).await;
        let read = read.unwrap_or_else(|error| panic!("{literal}: {error}"));
        assert_same(&read, &alone.value, alone.column, &sample.literal);
    }
}

/// A session in a database that has the types of the table.
async fn prepared(bench: &Bench, fixture: &dyn Fixture) -> Session {
    let mut session = bench.writer().await;
    for statement in fixture.prepare() {
        session.run(statement).await.unwrap();
    }
    session
}

/// One value of one column, compared as it is written: NaN is itself, and zero has its sign.
fn assert_same(read: &Answer, value: &Value, column: &str, what: &str) {
    assert_eq!(read.columns[0].column_type.to_string(), column, "{what}");
    let (got, expected) = (format!("{:?}", read.rows), format!("{:?}", [[value]]));
    let shown = |text: &str| text.chars().take(200).collect::<String>();
    assert!(
        got == expected,
        "{what}: {} instead of {}",
        shown(&got),
        shown(&expected)
    );
}

/// A value that its column cannot hold is an error of the caller, and the session stays usable.
pub async fn values_that_do_not_fit_are_refused(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = prepared(&bench, fixture).await;
    for (index, refused) in fixture.refused_values().into_iter().enumerate() {
        let (native, value) = (refused.native, refused.value);
        let table = format!("conformance_refused_{index}");
        session
            .run(&format!("CREATE TABLE {table} (v {native})"))
            .await
            .unwrap();
        let insert = bench.sql(&format!("INSERT INTO {table} (v) VALUES ({{}})"));
        let stored = session
            .run_with(&insert, std::slice::from_ref(&value))
            .await;
        let Err(error) = stored else {
            let read = session.run(&format!("SELECT v FROM {table}")).await;
            panic!("{native} {value:?} was bent to {:?}", read.unwrap().rows);
        };
        assert!(
            matches!(error.code(), Code::BadValue | Code::Constraint),
            "{native} {value:?}: {error}"
        );
        assert!(error.detail().hint.is_some(), "{native} {value:?}: {error}");
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
