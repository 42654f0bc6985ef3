//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::Driver;
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;
use mainstay_testkit::values::{self, Refused, Sample};

use super::place::{Place, driver};

impl Fixture for Place {
    fn driver(&self) -> Arc<dyn Driver> {
        Arc::new(driver(self.settings.clone()))
    }

    fn slow_read(&self) -> &str {
        "SELECT pg_sleep(60)"
    }

    fn prepare(&self) -> &[&str] {
        values::POSTGRES_TYPES
    }

    fn values(&self) -> Vec<Sample> {
        values::postgres()
    }

    fn refused_values(&self) -> Vec<Refused> {
        values::postgres_refused()
    }
}

conformance_tests!(Place::new().await);
