//! What the catalog says beyond what every driver's does.

use mainstay_sql::catalog::{Describe, Description, Volatility};
use mainstay_sql::{ColumnType, Connection};

use super::place::{Place, rows};

async fn view(session: &mut Box<dyn Connection>, name: &str) -> Option<String> {
    match session
        .describe(&Describe::View(name.into()))
        .await
        .unwrap()
    {
        Description::View(text) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_view_is_described_by_a_statement_that_makes_it_again() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE TABLE t (a int, b text)").await;
    rows(
        &mut session,
        "CREATE VIEW `odd ``name` AS SELECT a + 1 AS c FROM t",
    )
    .await;
    let text = view(&mut session, "odd `name").await.unwrap();
    assert!(
        text.starts_with("CREATE VIEW `odd ``name` AS select"),
        "{text}"
    );
    rows(&mut session, "DROP VIEW `odd ``name`").await;
    rows(&mut session, &text).await;
    assert_eq!(view(&mut session, "t").await, None);
    assert_eq!(view(&mut session, "nothing").await, None);
}

#[tokio::test]
async fn columns_say_their_types_defaults_and_what_the_database_makes_up() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    rows(&mut session, "CREATE DATABASE other").await;
    rows(
        &mut session,
        "CREATE TABLE other.t (id bigint unsigned AUTO_INCREMENT PRIMARY KEY, n int DEFAULT NULL, \
         s varchar(20) NOT NULL DEFAULT 'x', d decimal(10, 2), g int AS (n + 1), j json, \
         at timestamp NOT NULL DEFAULT current_timestamp(), KEY two (s, n))",
    )
    .await;
    let described = session
        .describe(&Describe::Entity("other.t".into()))
        .await
        .unwrap();
    let Description::Entity(Some(entity)) = described else {
        panic!("{described:?}");
    };
    assert_eq!(entity.schema.as_deref(), Some("other"));
    let column = |name: &str| entity.column(name).unwrap();
    let id = column("id");
    assert_eq!(
        (
            &id.column_type,
            id.native.as_str(),
            id.generated,
            id.nullable
        ),
        (&ColumnType::U64, "bigint(20) unsigned", true, false)
    );
    assert_eq!(column("n").default, None);
    assert_eq!(column("s").default.as_deref(), Some("'x'"));
    assert!(column("g").generated);
    assert!(!column("at").generated);
    assert_eq!(column("j").column_type, ColumnType::Json);
    assert_eq!(column("at").column_type, ColumnType::TimestampTz);
    let two = entity
        .indexes
        .iter()
        .find(|index| index.name == "two")
        .unwrap();
    assert_eq!(
        (two.unique, &two.columns),
        (false, &vec!["s".to_owned(), "n".to_owned()])
    );
}

#[tokio::test]
async fn functions_are_as_volatile_as_they_say_and_volatile_where_they_say_nothing() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    for (name, says) in [
        ("pure", "NO SQL DETERMINISTIC"),
        ("Looks", "READS SQL DATA"),
        ("writes", "MODIFIES SQL DATA"),
        ("silent", ""),
    ] {
        let made = format!("CREATE FUNCTION {name}() RETURNS int {says} RETURN 1");
        rows(&mut session, &made).await;
    }
    let described = session.describe(&Describe::Functions).await.unwrap();
    let Description::Functions(functions) = described else {
        panic!("{described:?}");
    };
    for (name, volatility) in [
        ("pure", Volatility::Immutable),
        ("looks", Volatility::Stable),
        ("writes", Volatility::Volatile),
        ("silent", Volatility::Volatile),
    ] {
        assert_eq!(functions.get(name), Some(&volatility), "{name}");
    }
}
