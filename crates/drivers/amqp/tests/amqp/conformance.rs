//! What every driver of a broker must do.

use super::fixture::Fixture;

mainstay_testkit::broker_conformance_tests!(Fixture::start().await);
