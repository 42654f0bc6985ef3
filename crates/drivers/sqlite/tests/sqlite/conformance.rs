//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::Driver;
use mainstay_sqlite::SqliteDriver;
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;
use mainstay_testkit::values::{self, Refused, Sample};

use super::bench::Bench;

impl Fixture for Bench {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(SqliteDriver::new(self.settings()).unwrap())
    }

    fn slow_read(&self) -> &str {
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) \
         SELECT max(i) FROM n"
    }

    fn values(&self) -> Vec<Sample> {
        values::sqlite()
    }

    fn refused_values(&self) -> Vec<Refused> {
        values::sqlite_refused()
    }
}

/// A database that is there: read-only sessions make no file.
async fn database() -> Bench {
    let bench = Bench::new();
    drop(bench.connect().await);
    bench
}

conformance_tests!(database().await);
