use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{ColumnType, Verbs};

use super::Fixture;
use super::bench::Bench;

/// Tables, views, columns, keys, indexes and foreign keys are described as they were created.
pub async fn the_catalog_describes_tables_keys_and_relations(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let parent = "id BIGINT PRIMARY KEY, name VARCHAR(20) NOT NULL DEFAULT 'x'";
    let mut session = bench.table("conformance_parent", parent).await;
    for text in [
        "CREATE TABLE conformance_child (a BIGINT, b BIGINT, parent BIGINT NOT NULL, \
         PRIMARY KEY (a, b), \
         FOREIGN KEY (parent) REFERENCES conformance_parent (id) ON DELETE CASCADE)",
        "CREATE UNIQUE INDEX conformance_by_name ON conformance_parent (name)",
        "CREATE VIEW conformance_view AS SELECT id FROM conformance_parent",
    ] {
        session.run(text).await.unwrap();
    }
    let plain = bench.pooled();
    let names = plain.entities().await.unwrap();
    for (name, is_view) in [("conformance_parent", false), ("conformance_view", true)] {
        let found = names.iter().find(|entity| entity.name == name).unwrap();
        assert_eq!(found.is_view, is_view, "{name}");
    }
    let entity = plain.entity("conformance_parent", false).await.unwrap();
    assert_eq!(entity.primary_key, ["id"]);
    let name = entity.column("name").unwrap();
    assert!(!name.nullable && name.column_type == ColumnType::Text);
    assert!(
        name.default
            .as_deref()
            .is_some_and(|default| default.contains('x'))
    );
    let index = entity
        .indexes
        .iter()
        .find(|index| index.name == "conformance_by_name")
        .unwrap();
    assert!(index.unique && index.columns == ["name"]);
    let child = plain.entity("conformance_child", false).await.unwrap();
    assert_eq!(child.primary_key, ["a", "b"]);
    assert!(
        plain
            .entity("conformance_view", false)
            .await
            .unwrap()
            .is_view
    );

    let keys = plain.foreign_keys("conformance_child").await.unwrap();
    let children = plain.children("conformance_parent").await.unwrap();
    for found in [&keys, &children] {
        let [key] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert_eq!(
            (&key.from_columns, &key.to_columns),
            (&vec!["parent".to_owned()], &vec!["id".to_owned()])
        );
        assert!(
            key.from_entity.ends_with("conformance_child")
                && key.to_entity.ends_with("conformance_parent")
        );
        assert_eq!(key.on_delete.to_uppercase(), "CASCADE");
    }
    assert!(
        plain
            .foreign_keys("conformance_parent")
            .await
            .unwrap()
            .is_empty()
    );
}

/// A missing entity is told as missing, not as an error and not as an empty one.
pub async fn what_is_not_there_is_not_described(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.reader().await;
    let name = || "conformance_nothing".into();
    let described = session.0.describe(&Describe::Entity(name())).await.unwrap();
    assert_eq!(described, Description::Entity(None));
    for what in [Describe::Children(name()), Describe::ForeignKeys(name())] {
        let described = session.0.describe(&what).await.unwrap();
        assert_eq!(described, Description::Relations(None), "{what:?}");
    }
    let functions = session.0.describe(&Describe::Functions).await.unwrap();
    assert!(matches!(functions, Description::Functions(_)));
    session.assert_usable().await;
}
