//! One table of values, and every surface over it: what goes in as a parameter is in the database what the
//! table says, and comes out of a column and of an expression the same. What the database cannot hold is
//! refused on every surface.

#[path = "values/place.rs"]
mod place;
#[path = "values/surface.rs"]
mod surface;

use mainstay::sql::Value;
use mainstay::sql::value;
use mainstay_testkit::values::{Bare, Refused, Sample};
use serde_json::Value as Json;

use self::place::Place;
use self::surface::{Given, Rows, Surface};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_sqlite_are_the_same_on_every_surface() {
    over(Place::sqlite().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_postgresql_are_the_same_on_every_surface() {
    over(Place::postgres().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_mariadb_are_the_same_on_every_surface() {
    over(Place::mariadb().await).await;
}

async fn over(place: Place) {
    for statement in place.prepare {
        place.change(statement).await;
    }
    let surfaces = place.surfaces();
    assert_eq!(surfaces.len(), 6);
    for (index, sample) in place.samples.iter().enumerate() {
        let table = format!("held_{index}");
        let native = sample.native;
        place
            .change(&format!(
                "CREATE TABLE {table} (s VARCHAR(20), n INT, v {native})"
            ))
            .await;
        for surface in &surfaces {
            comes_back(&place, surface, &table, sample).await;
        }
        let same = place.same("v", sample);
        let held = place
            .count(&format!(
                "SELECT count(*) FROM {table} WHERE n = 1 AND {same}"
            ))
            .await;
        assert_eq!(held, 6, "in the database: {native} {}", sample.literal);
        let nulls = format!("SELECT count(*) FROM {table} WHERE n = 2 AND v IS NULL");
        assert_eq!(place.count(&nulls).await, 6, "NULL of {native}");
    }
    for (index, refused) in place.refused.iter().enumerate() {
        let table = format!("refused_{index}");
        place
            .change(&format!("CREATE TABLE {table} (v {})", refused.native))
            .await;
        for surface in &surfaces {
            is_refused(&place, surface, &table, refused).await;
        }
        let left = place.count(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(left, 0, "{refused:?}");
    }
    place.end().await;
}

/// In as a parameter beside NULL, out from the column and from the expression.
async fn comes_back(place: &Place, surface: &Surface, table: &str, sample: &Sample) {
    let what = format!("{surface}: {} {}", sample.native, sample.literal);
    let (name, first, second) = (
        surface.to_string(),
        place.placeholder(1),
        place.placeholder(2),
    );
    let insert = format!(
        "INSERT INTO {table} (s, n, v) VALUES ('{name}', 1, {first}), ('{name}', 2, {second})"
    );
    let given = [
        Given {
            value: sample.value.clone(),
            json: sample.param(),
        },
        Given {
            value: Value::Null,
            json: format!("{{\"type\": \"{}\", \"value\": null}}", sample.type_name),
        },
    ];
    let written = surface.ask(&insert, &given).await;
    written.unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let select = format!(
        "SELECT v, {} FROM {table} WHERE s = '{name}' ORDER BY n",
        sample.literal
    );
    let rows = surface.ask(&select, &[]).await;
    let rows = rows.unwrap_or_else(|refusal| panic!("{what}: {refusal:?}"));
    let held = Bare {
        value: sample.value.clone(),
        column: sample.column,
        cell: sample.cell(),
    };
    let null = Bare {
        value: Value::Null,
        cell: "null".to_owned(),
        ..held
    };
    let alone = sample.alone();
    assert_same(&rows, 0, &[&held, &null], &what);
    assert_same(&rows, 1, &[&alone, &alone], &what);
}

/// What one column of an answer has.
fn assert_same(rows: &Rows, column: usize, expected: &[&Bare], what: &str) {
    assert_eq!(rows.columns[column], expected[0].column, "{what}");
    assert_eq!(rows.rows.len(), expected.len(), "{what}");
    for (row, expected) in rows.rows.iter().zip(expected) {
        let got = match &row[column] {
            surface::Cell::Value(value) => value.clone(),
            surface::Cell::Json(json) => {
                let form: Json = serde_json::from_str(&expected.cell).unwrap();
                assert!(*json == form, "{what}: {}", short(json));
                let column = value_type(expected.column);
                value::cell_from_json(json, &column).unwrap_or_else(|e| panic!("{what}: {e}"))
            }
        };
        // As it is written: NaN is itself, and zero has its sign.
        let same = format!("{got:?}") == format!("{:?}", expected.value);
        assert!(same, "{what}: {}", short(&format!("{got:?}")));
    }
}

fn value_type(name: &str) -> mainstay::sql::ColumnType {
    mainstay::sql::ColumnType::parse(name).unwrap()
}

fn short(text: &impl ToString) -> String {
    text.to_string().chars().take(200).collect()
}

async fn is_refused(place: &Place, surface: &Surface, table: &str, refused: &Refused) {
    let what = format!("{surface}: {} {:?}", refused.native, refused.value);
    let insert = format!("INSERT INTO {table} (v) VALUES ({})", place.placeholder(1));
    let given = Given {
        value: refused.value.clone(),
        json: refused.param.clone(),
    };
    let refusal = surface.ask(&insert, &[given]).await;
    let Err(refusal) = refusal else {
        panic!("{what}: it was taken");
    };
    let is_callers = matches!(refusal.code.as_str(), "bad_value" | "constraint");
    assert!(is_callers, "{what}: {refusal:?}");
    assert!(refusal.has_hint, "{what}: {refusal:?}");
    assert!(!refusal.in_doubt, "{what}: {refusal:?}");
}
