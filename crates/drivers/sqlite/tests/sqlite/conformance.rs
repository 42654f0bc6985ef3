//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::{Driver, Value};
use mainstay_sqlite::SqliteDriver;
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;

use super::bench::Bench;

impl Fixture for Bench {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(SqliteDriver::new(self.settings()).unwrap())
    }

    fn slow_read(&self) -> &str {
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) \
         SELECT max(i) FROM n"
    }

    fn values(&self) -> Vec<(&'static str, Value)> {
        vec![
            ("INTEGER", Value::I64(i64::MIN)),
            ("INTEGER", Value::I64(i64::MAX)),
            ("REAL", Value::F64(-0.1)),
            ("REAL", Value::F64(f64::INFINITY)),
            ("TEXT", Value::Text(String::new())),
            ("TEXT", Value::Text("ünï 🙂 'quoted'".into())),
            ("BLOB", Value::Bytes(vec![0, 255, 0].into())),
        ]
    }

    fn refused_values(&self) -> Vec<(&'static str, Value)> {
        vec![("REAL", Value::F64(f64::NAN))]
    }
}

/// A database that is there: read-only sessions make no file.
async fn database() -> Bench {
    let bench = Bench::new();
    drop(bench.connect().await);
    bench
}

conformance_tests!(database().await);
