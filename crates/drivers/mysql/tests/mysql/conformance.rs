//! The checks that every driver passes.

use std::sync::Arc;

use mainstay_sql::Driver;
use mainstay_testkit::conformance::Fixture;
use mainstay_testkit::conformance_tests;
use mainstay_testkit::values::{self, Refused, Sample};

use super::place::{Place, driver};

impl Fixture for Place {
    fn driver(&self) -> Arc<dyn Driver> {
        let mut settings = self.settings.clone();
        // MariaDB ends a recursion after 1000 rounds, with no more than a warning.
        settings
            .options
            .push(("max_recursive_iterations".into(), "1000000".into()));
        Arc::new(driver(settings))
    }

    fn slow_read(&self) -> &str {
        "SELECT SLEEP(60)"
    }

    fn values(&self) -> Vec<Sample> {
        values::mariadb()
    }

    fn refused_values(&self) -> Vec<Refused> {
        values::mariadb_refused()
    }
}

conformance_tests!(Place::new().await);
