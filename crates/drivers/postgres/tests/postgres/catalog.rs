//! What the catalog says.

use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset};
use mainstay_sql::catalog::{
    Describe, Description, Entity, EntityName, ForeignKey, Index, Volatility,
};
use mainstay_sql::{ColumnType, Connection, Options, Plain, Verbs};

use super::place::{Place, rows};

async fn filled() -> (Place, Box<dyn Connection>) {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let far = format!("{}_far", place.schema);
    for text in [
        "CREATE TYPE mood AS ENUM ('glad')".to_owned(),
        "CREATE DOMAIN must AS text NOT NULL".to_owned(),
        "CREATE TABLE \"Odd.Name\" (\"Weird \"\"Column\" int4, PRIMARY KEY (\"Weird \"\"Column\"))".to_owned(),
        "CREATE TABLE owner (a int4, b int4, name varchar(20) DEFAULT 'x', PRIMARY KEY (b, a))".to_owned(),
        "CREATE TABLE item (id int8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY, n serial, \
         price numeric(10,2) NOT NULL, m mood[], d must, twice numeric GENERATED ALWAYS AS (price * 2) STORED, \
         r int4range, oa int4, ob int4, \
         CONSTRAINT owned FOREIGN KEY (ob, oa) REFERENCES owner (b, a) ON DELETE CASCADE)".to_owned(),
        "CREATE UNIQUE INDEX by_price ON item (price DESC, lower(d::text)) INCLUDE (n)".to_owned(),
        "CREATE VIEW cheap AS SELECT id, price FROM item".to_owned(),
        format!("CREATE SCHEMA {far}"),
        format!("CREATE TABLE {far}.distant (i int8 REFERENCES item (id))"),
    ] {
        rows(&mut session, &text).await;
    }
    (place, session)
}

async fn entity(session: &mut Box<dyn Connection>, name: &str) -> Option<Arc<Entity>> {
    match session
        .describe(&Describe::Entity(name.into()))
        .await
        .unwrap()
    {
        Description::Entity(entity) => entity,
        other => panic!("{other:?}"),
    }
}

async fn relations(session: &mut Box<dyn Connection>, what: Describe) -> Option<Vec<ForeignKey>> {
    match session.describe(&what).await.unwrap() {
        Description::Relations(keys) => keys,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn entities_are_those_of_the_users_with_the_search_path_first() {
    let (place, mut session) = filled().await;
    let Description::Entities(names) = session.describe(&Describe::Entities).await.unwrap() else {
        panic!()
    };
    let own: Vec<_> = names
        .iter()
        .filter(|n| n.schema.as_deref() == Some(&place.schema))
        .collect();
    let shown: Vec<_> = own.iter().map(|n| (n.name.as_str(), n.is_view)).collect();
    assert_eq!(
        shown,
        [
            ("Odd.Name", false),
            ("cheap", true),
            ("item", false),
            ("owner", false)
        ]
    );
    assert_eq!(names[0].schema.as_deref(), Some(place.schema.as_str()));
    let far = EntityName {
        schema: Some(format!("{}_far", place.schema)),
        name: "distant".into(),
        is_view: false,
    };
    assert!(names.contains(&far));
    assert!(
        names
            .iter()
            .all(|n| !n.schema.as_deref().unwrap().starts_with("pg_"))
    );
}

#[tokio::test]
async fn an_entity_has_its_columns_keys_and_indexes() {
    let (place, mut session) = filled().await;
    let item = entity(&mut session, "item").await.unwrap();
    assert_eq!(
        (item.schema.as_deref(), item.is_view),
        (Some(place.schema.as_str()), false)
    );
    let columns: Vec<_> = item
        .columns
        .iter()
        .map(|c| {
            (
                c.name.as_str(),
                c.native.as_str(),
                c.nullable,
                c.generated,
                c.default.is_some(),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("id", "bigint", false, true, false),
            ("n", "integer", false, true, true),
            ("price", "numeric(10,2)", false, false, false),
            ("m", "mood[]", true, false, false),
            ("d", "must", false, false, false),
            ("twice", "numeric", true, true, true),
            ("r", "int4range", true, false, false),
            ("oa", "integer", true, false, false),
            ("ob", "integer", true, false, false),
        ]
    );
    let types: Vec<_> = item.columns.iter().map(|c| c.column_type.clone()).collect();
    assert_eq!(
        types[..3],
        [ColumnType::I64, ColumnType::I64, ColumnType::Decimal]
    );
    assert_eq!(types[3], ColumnType::Array(Box::new(ColumnType::Text)));
    assert_eq!(types[4], ColumnType::Text);
    assert_eq!(types[6], ColumnType::Other("int4range".into()));
    assert_eq!(item.primary_key, ["id"]);
    let by_price = Index {
        name: "by_price".into(),
        columns: vec!["price".into(), "lower(d::text)".into()],
        unique: true,
    };
    assert!(item.indexes.contains(&by_price), "{:?}", item.indexes);
    let owner = entity(&mut session, "owner").await.unwrap();
    assert_eq!(owner.primary_key, ["b", "a"]);
    assert_eq!(
        owner.columns[2].default.as_deref(),
        Some("'x'::character varying")
    );
}

#[tokio::test]
async fn names_are_taken_as_they_are() {
    let (place, mut session) = filled().await;
    let odd = entity(&mut session, "Odd.Name").await.unwrap();
    assert_eq!(
        (odd.name.as_str(), odd.primary_key[0].as_str()),
        ("Odd.Name", "Weird \"Column")
    );
    assert!(entity(&mut session, "cheap").await.unwrap().is_view);
    let full = format!("{}_far.distant", place.schema);
    assert_eq!(entity(&mut session, &full).await.unwrap().name, "distant");
    for unknown in [
        "distant",
        "ITEM",
        "nowhere",
        "nowhere.item",
        "item; DROP TABLE item",
        "",
    ] {
        assert!(entity(&mut session, unknown).await.is_none(), "{unknown}");
    }
}

#[tokio::test]
async fn foreign_keys_are_found_from_both_ends() {
    let (place, mut session) = filled().await;
    let owned = ForeignKey {
        name: Some("owned".into()),
        from_entity: "item".into(),
        from_columns: vec!["ob".into(), "oa".into()],
        to_entity: "owner".into(),
        to_columns: vec!["b".into(), "a".into()],
        on_delete: "CASCADE".into(),
    };
    let keys = relations(&mut session, Describe::ForeignKeys("item".into())).await;
    assert_eq!(keys, Some(vec![owned.clone()]));
    let keys = relations(&mut session, Describe::Children("owner".into())).await;
    assert_eq!(keys, Some(vec![owned]));
    let keys = relations(&mut session, Describe::Children("item".into()))
        .await
        .unwrap();
    assert_eq!(keys[0].from_entity, format!("{}_far.distant", place.schema));
    assert_eq!(keys[0].on_delete, "NO ACTION");
    assert_eq!(
        relations(&mut session, Describe::Children("cheap".into())).await,
        Some(vec![])
    );
    assert_eq!(
        relations(&mut session, Describe::Children("nowhere".into())).await,
        None
    );
}

#[tokio::test]
async fn functions_have_the_worst_volatility_of_their_name() {
    let (_place, mut session) = filled().await;
    rows(
        &mut session,
        "CREATE FUNCTION \"Mixed\"(int4) RETURNS int4 IMMUTABLE LANGUAGE sql AS 'SELECT 1'",
    )
    .await;
    rows(
        &mut session,
        "CREATE FUNCTION mixed(text) RETURNS int4 VOLATILE LANGUAGE sql AS 'SELECT 1'",
    )
    .await;
    let Description::Functions(functions) = session.describe(&Describe::Functions).await.unwrap()
    else {
        panic!()
    };
    let table = [
        ("mixed", Volatility::Volatile),
        ("lower", Volatility::Immutable),
        ("now", Volatility::Stable),
        ("nextval", Volatility::Volatile),
        ("set_config", Volatility::Volatile),
    ];
    for (name, volatility) in table {
        assert_eq!(functions.get(name), Some(&volatility), "{name}");
    }
}

#[tokio::test]
async fn the_script_of_tables_and_views_makes_them_again() {
    let (place, mut session) = filled().await;
    for text in [
        "CREATE VIEW a_dear WITH (security_barrier=true) AS SELECT id FROM b_kept WHERE price > 1",
        "CREATE MATERIALIZED VIEW b_kept AS SELECT id, price AS price FROM cheap WITH DATA",
    ]
    .iter()
    .rev()
    {
        rows(&mut session, text).await;
    }
    rows(&mut session, "CREATE UNIQUE INDEX kept_id ON b_kept (id)").await;
    let driver = Arc::new(super::place::driver(place.settings.clone()));
    let policy = Policy::preset(Preset::Balanced);
    let plain = Plain::new(driver, &policy, Tasks::new(), Chance::seeded(1));
    let names = ["a_dear", "b_kept", "cheap"];
    let script = plain.ddl_for(&names).await.unwrap();
    let starts: Vec<_> = script.lines().filter(|l| l.starts_with("CREATE")).collect();
    assert_eq!(starts.len(), 4, "{script}");
    assert!(starts[0].contains("\"cheap\""), "{script}");
    assert!(starts[1].contains("MATERIALIZED VIEW"), "{script}");
    assert!(starts[3].contains("security_barrier=true"), "{script}");
    rows(&mut session, "DROP VIEW cheap CASCADE").await;
    plain.script(&script, Options::default()).await.unwrap();
    assert_eq!(plain.ddl_for(&names).await.unwrap(), script);
    // Tables of the same script come first.
    let with_table = plain.ddl_for(&["cheap", "owner"]).await.unwrap();
    assert!(with_table.starts_with("CREATE TABLE"), "{with_table}");
}
