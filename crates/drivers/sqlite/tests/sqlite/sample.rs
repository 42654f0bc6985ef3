use mainstay_sql::{Access, Connection, Driver, Value};
use mainstay_sqlite::{SqliteDriver, SqliteSettings, create_sample};

use super::bench::{Bench, run, scalar};

async fn connect(bench: &Bench) -> Box<dyn Connection> {
    let settings = SqliteSettings::new(bench.path());
    let driver = SqliteDriver::new(settings).unwrap();
    driver.connect(Access::ReadWrite).await.unwrap()
}

#[tokio::test]
async fn the_sample_is_made_once_and_has_a_few_thousand_rows() {
    let bench = Bench::new();
    assert!(create_sample(&bench.path()).unwrap());
    assert!(!create_sample(&bench.path()).unwrap());
    let mut c = connect(&bench).await;
    let count = "SELECT (SELECT count(*) FROM customers) + (SELECT count(*) FROM products) \
                 + (SELECT count(*) FROM orders) + (SELECT count(*) FROM order_items)";
    assert_eq!(
        scalar(&mut c, count).await,
        Value::I64(250 + 60 + 1200 + 3000)
    );
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM order_totals").await,
        Value::I64(1200)
    );
    assert_eq!(
        scalar(&mut c, "PRAGMA integrity_check").await,
        Value::Text("ok".into())
    );
    assert!(
        run(&mut c, "PRAGMA foreign_key_check")
            .await
            .unwrap()
            .rows
            .is_empty()
    );
}

#[tokio::test]
async fn the_sample_has_the_same_rows_each_time_and_typed_ones() {
    let (a, b) = (Bench::new(), Bench::new());
    let mut answers = Vec::new();
    for bench in [&a, &b] {
        create_sample(&bench.path()).unwrap();
        let mut c = connect(bench).await;
        let customers = run(&mut c, "SELECT * FROM customers").await.unwrap();
        let orders = run(&mut c, "SELECT * FROM orders").await.unwrap();
        assert!(matches!(customers.rows[0][4], Value::Date(_)));
        assert!(matches!(orders.rows[0][2], Value::Timestamp(_)));
        let totals = run(&mut c, "SELECT * FROM order_totals ORDER BY order_id")
            .await
            .unwrap();
        let json = run(&mut c, "SELECT details FROM products").await.unwrap();
        assert!(matches!(json.rows[0][0], Value::Json(_)));
        answers.push([customers.rows, orders.rows, totals.rows, json.rows]);
    }
    assert_eq!(answers[0], answers[1]);
}

#[tokio::test]
async fn a_file_with_tables_of_its_own_is_left_as_it_is() {
    let (bench, mut c) = Bench::with(&["CREATE TABLE mine(a)"]).await;
    assert!(!create_sample(&bench.path()).unwrap());
    assert_eq!(
        scalar(&mut c, "SELECT count(*) FROM sqlite_master").await,
        Value::I64(1)
    );
    let nowhere = bench.folder.path().join("no").join("folder");
    let error = create_sample(&nowhere).unwrap_err();
    assert!(
        error.to_string().contains("check that the folder"),
        "{error}"
    );
}

#[test]
fn of_several_makers_at_once_one_makes_the_sample() {
    let bench = Bench::new();
    for round in 0..20 {
        let path = bench.folder.path().join(format!("{round}.db"));
        let made: usize = std::thread::scope(|scope| {
            let makers: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| create_sample(&path).unwrap()))
                .collect();
            makers
                .into_iter()
                .map(|maker| usize::from(maker.join().unwrap()))
                .sum()
        });
        assert_eq!(made, 1);
    }
}
