use std::collections::HashMap;
use std::sync::Arc;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy, Preset};
use mainstay_sql::catalog::{Describe, Description, Entity, ForeignKey, Volatility};
use mainstay_sql::{ColumnType, Connection, Options, Plain, Verbs};
use mainstay_sqlite::SqliteDriver;

use super::bench::{Bench, run};

async fn entity(c: &mut Box<dyn Connection>, name: &str) -> Option<Arc<Entity>> {
    match c.describe(&Describe::Entity(name.into())).await.unwrap() {
        Description::Entity(entity) => entity,
        other => panic!("{other:?}"),
    }
}

async fn relations(c: &mut Box<dyn Connection>, what: Describe) -> Option<Vec<ForeignKey>> {
    match c.describe(&what).await.unwrap() {
        Description::Relations(relations) => relations,
        other => panic!("{other:?}"),
    }
}

async fn functions(c: &mut Box<dyn Connection>) -> Arc<HashMap<String, Volatility>> {
    match c.describe(&Describe::Functions).await.unwrap() {
        Description::Functions(functions) => functions,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn entities_are_the_tables_and_views_of_the_file() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE b(id INTEGER PRIMARY KEY AUTOINCREMENT)",
        "CREATE TABLE \"a \"\"odd.name\"(x)",
        "CREATE VIEW v AS SELECT * FROM b",
        "CREATE VIRTUAL TABLE f USING fts5(text)",
        "CREATE TEMP TABLE mine(x)",
        "INSERT INTO b DEFAULT VALUES",
        "ANALYZE",
    ])
    .await;
    let Description::Entities(names) = c.describe(&Describe::Entities).await.unwrap() else {
        panic!("another answer");
    };
    let names: Vec<_> = names.iter().map(|e| (e.name.as_str(), e.is_view)).collect();
    assert_eq!(
        names,
        [
            ("a \"odd.name", false),
            ("b", false),
            ("f", false),
            ("v", true)
        ]
    );
    let fts = entity(&mut c, "f").await.unwrap();
    assert_eq!(fts.columns.len(), 1, "hidden columns are left out");
    for none in [
        "mine",
        "f_data",
        "sqlite_master",
        "nope",
        "temp.b",
        "main.nope",
    ] {
        assert_eq!(entity(&mut c, none).await, None, "{none}");
    }
    assert_eq!(
        entity(&mut c, "a \"odd.name").await.unwrap().name,
        "a \"odd.name"
    );
    assert_eq!(entity(&mut c, "MAIN.B").await.unwrap().name, "b");
}

#[tokio::test]
async fn an_entity_tells_its_columns_keys_and_indexes() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE t(id INTEGER PRIMARY KEY, \"a b\" DECIMAL(10,2) NOT NULL DEFAULT (1 + 1), c TEXT, \
         twice INT GENERATED ALWAYS AS (id * 2) STORED, half INT AS (id / 2), UNIQUE (c, \"a b\"))",
        "CREATE INDEX i ON t(lower(c) DESC, \"a b\")",
        "CREATE TABLE w(x TEXT, y INT, PRIMARY KEY (y, x)) WITHOUT ROWID",
        "CREATE TABLE k(name TEXT PRIMARY KEY)",
        "CREATE VIEW v AS SELECT id, c FROM t",
    ])
    .await;
    let t = entity(&mut c, "T").await.unwrap();
    assert_eq!((t.name.as_str(), t.is_view), ("t", false));
    let columns: Vec<_> = t
        .columns
        .iter()
        .map(|c| {
            (
                c.name.as_str(),
                &c.column_type,
                c.nullable,
                c.default.as_deref(),
                c.generated,
            )
        })
        .collect();
    let expected = [
        ("id", &ColumnType::I64, false, None, true),
        ("a b", &ColumnType::Decimal, false, Some("1 + 1"), false),
        ("c", &ColumnType::Text, true, None, false),
        ("twice", &ColumnType::I64, true, None, true),
        ("half", &ColumnType::I64, true, None, true),
    ];
    assert_eq!(columns, expected);
    assert_eq!(t.columns[1].native, "DECIMAL(10,2)");
    assert_eq!(t.primary_key, ["id"]);
    let indexes: Vec<_> = t
        .indexes
        .iter()
        .map(|i| (i.name.as_str(), i.columns.join("; "), i.unique))
        .collect();
    let expected = [
        ("sqlite_autoindex_t_1", "c; a b".to_owned(), true),
        ("i", "lower(c); a b".to_owned(), false),
    ];
    assert_eq!(indexes, expected);

    let w = entity(&mut c, "w").await.unwrap();
    assert_eq!(w.primary_key, ["y", "x"]);
    assert!(w.columns.iter().all(|c| !c.nullable && !c.generated));
    let k = entity(&mut c, "k").await.unwrap();
    assert!(
        k.columns[0].nullable && !k.columns[0].generated,
        "SQLite lets NULL into such a key"
    );
    let v = entity(&mut c, "v").await.unwrap();
    assert!(v.is_view && v.primary_key.is_empty() && v.indexes.is_empty());
    assert_eq!(v.columns.len(), 2);
}

#[tokio::test]
async fn relations_are_told_from_both_sides() {
    let (_bench, mut c) = Bench::with(&[
        "CREATE TABLE p(a INT, b INT, PRIMARY KEY (a, b))",
        "CREATE TABLE \"c 1\"(x INT REFERENCES \"c 1\", y INT, \
         FOREIGN KEY (x, y) REFERENCES P ON DELETE CASCADE)",
        "CREATE TABLE other(p INT, q INT, FOREIGN KEY (p, q) REFERENCES p(b, a))",
    ])
    .await;
    let keys = relations(&mut c, Describe::ForeignKeys("c 1".into()))
        .await
        .unwrap();
    assert_eq!(keys.len(), 2);
    assert_eq!(
        (keys[0].from_columns.join(","), keys[0].to_entity.as_str()),
        ("x".into(), "c 1")
    );
    let key = &keys[1];
    assert_eq!(
        (key.from_entity.as_str(), key.to_entity.as_str()),
        ("c 1", "p")
    );
    assert_eq!(
        (key.from_columns.join(","), key.to_columns.join(",")),
        ("x,y".into(), "a,b".into())
    );
    assert_eq!((key.on_delete.as_str(), &key.name), ("CASCADE", &None));

    let children = relations(&mut c, Describe::Children("P".into()))
        .await
        .unwrap();
    let told: Vec<_> = children
        .iter()
        .map(|k| (k.from_entity.as_str(), k.to_columns.join(",")))
        .collect();
    assert_eq!(
        told,
        [("c 1", "a,b".to_owned()), ("other", "b,a".to_owned())]
    );
    assert_eq!(
        relations(&mut c, Describe::Children("nope".into())).await,
        None
    );
    assert_eq!(
        relations(&mut c, Describe::ForeignKeys("p".into())).await,
        Some(vec![])
    );
}

#[tokio::test]
async fn functions_tell_what_they_may_do() {
    let (_bench, mut c) = Bench::with(&[]).await;
    let functions = functions(&mut c).await;
    let table = [
        (
            Volatility::Immutable,
            &[
                "lower",
                "abs",
                "json_extract",
                "count",
                "sum",
                "row_number",
                "coalesce",
            ][..],
        ),
        (
            Volatility::Stable,
            &[
                "date",
                "strftime",
                "current_timestamp",
                "sqlite_version",
                "bm25",
            ][..],
        ),
        (
            Volatility::Volatile,
            &[
                "random",
                "randomblob",
                "last_insert_rowid",
                "changes",
                "load_extension",
            ][..],
        ),
    ];
    for (expected, names) in table {
        for name in names {
            assert_eq!(functions.get(*name), Some(&expected), "{name}");
        }
    }
}

#[tokio::test]
async fn a_broken_view_is_listed_and_harms_nothing_else() {
    let (_bench, mut c) =
        Bench::with(&["CREATE TABLE t(a)", "CREATE VIEW v AS SELECT a FROM t"]).await;
    run(&mut c, "PRAGMA legacy_alter_table = on").await.unwrap();
    run(&mut c, "DROP TABLE t").await.unwrap();
    run(&mut c, "CREATE TABLE u(a)").await.unwrap();
    let Description::Entities(names) = c.describe(&Describe::Entities).await.unwrap() else {
        panic!("another answer");
    };
    assert_eq!(names.len(), 2);
    c.describe(&Describe::Entity("v".into())).await.unwrap_err();
    assert!(entity(&mut c, "u").await.is_some());
}

#[tokio::test]
async fn the_script_of_tables_and_views_makes_them_again() {
    let made = [
        "CREATE TABLE \"o.k\"(id INTEGER PRIMARY KEY, n)",
        "CREATE VIEW middle AS SELECT id FROM \"o.k\" WHERE n > 1",
        "CREATE VIEW \"a last\" (x) AS SELECT id FROM middle",
    ];
    let (bench, _c) = Bench::with(&made).await;
    let plain = |bench: &Bench| {
        let driver = Arc::new(SqliteDriver::new(bench.settings()).unwrap());
        let policy = Policy::preset(Preset::Balanced);
        Plain::new(driver, &policy, Tasks::new(), Chance::seeded(1))
    };
    let names = ["a last", "middle", "o.k"];
    let script = plain(&bench).ddl_for(&names).await.unwrap();
    let starts: Vec<_> = script.lines().filter(|l| l.starts_with("CREATE")).collect();
    assert!(starts[0].starts_with("CREATE TABLE"), "{script}");
    assert!(starts[1].starts_with("CREATE VIEW middle"), "{script}");
    assert!(starts[2].starts_with("CREATE VIEW \"a last\""), "{script}");
    let (other, _c) = Bench::with(&[]).await;
    let other = plain(&other);
    other.script(&script, Options::default()).await.unwrap();
    assert_eq!(other.ddl_for(&names).await.unwrap(), script);
}
