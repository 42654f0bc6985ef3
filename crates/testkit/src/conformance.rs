//! What every SQL driver must do, as checks that each driver's own tests call against its real database.
//!
//! A driver gives a [`Fixture`] and says `mainstay_testkit::conformance_tests!(fixture().await)`: one test
//! a check. [`run`] runs them all on one fixture, for databases that are dear to start.
#![allow(
    clippy::unwrap_used,
    reason = "a check that cannot go on has failed and must stop"
)]

mod answers;
mod bench;
pub mod broker;
mod catalog;
mod interruptions;
mod sessions;
mod statements;
mod stray;
mod transactions;
mod values;

use std::sync::Arc;

use mainstay_sql::Driver;

use crate::values::{Refused, Sample};

pub use answers::*;
pub use catalog::*;
pub use interruptions::*;
pub use sessions::*;
pub use statements::*;
pub use stray::*;
pub use transactions::*;
pub use values::*;

/// A real database that the checks run against. Each check makes tables with a name of its own, and may
/// be run once per database.
pub trait Fixture: Send + Sync {
    /// A driver of the database, as its writer.
    fn driver(&self) -> Arc<dyn Driver>;

    /// A read that takes at least ten seconds unless it is cancelled.
    fn slow_read(&self) -> &str;

    /// Statements that make what the values need.
    fn prepare(&self) -> &[&str] {
        &[]
    }

    /// Values that must come back the same, from a column and from their expression.
    fn values(&self) -> Vec<Sample>;

    /// Values that their column cannot hold: refused, never bent.
    fn refused_values(&self) -> Vec<Refused>;
}

macro_rules! checks {
    ($($name:ident),+ $(,)?) => {
        /// Runs every check on one database, one after the other.
        ///
        /// # Panics
        /// At the first check that fails.
        pub async fn run(fixture: &dyn Fixture) {
            $(
                eprintln!("conformance: {}", stringify!($name));
                $name(fixture).await;
            )+
        }

        /// A test for each check. The argument is an expression that gives a new [`Fixture`], evaluated
        /// in an async function once per test. The crate needs `tokio` with `macros` and `rt`.
        ///
        /// [`Fixture`]: crate::conformance::Fixture
        #[macro_export]
        macro_rules! conformance_tests {
            ($fixture:expr) => {
                $(
                    #[tokio::test]
                    async fn $name() {
                        let fixture = $fixture;
                        $crate::conformance::$name(&fixture).await;
                    }
                )+
            };
        }
    };
}

checks!(
    values_come_back_the_same,
    values_that_do_not_fit_are_refused,
    columns_have_names_and_types,
    the_hand_over_is_told_before_the_effect,
    affected_rows_are_counted,
    a_broken_constraint_is_the_callers_and_changes_nothing,
    unknown_names_and_bad_syntax_are_the_callers,
    an_open_quote_is_refused,
    a_nul_byte_is_refused,
    a_wrong_number_of_parameters_is_refused,
    two_statements_in_one_text_are_refused,
    unicode_names_are_taken_as_they_are,
    an_answer_beyond_its_bounds_is_refused,
    streams_are_bounded_in_rows_and_bytes,
    a_stream_that_is_left_early_is_cleaned_up,
    a_cancelled_statement_says_that_it_did_nothing,
    a_late_cancel_hits_nothing,
    a_dropped_statement_is_cleaned_up,
    a_dropped_statement_frees_its_place_in_a_pool,
    read_only_sessions_refuse_every_change,
    a_reset_session_is_like_a_new_one,
    a_changed_table_is_prepared_again,
    a_commit_is_seen_and_a_rollback_is_not,
    savepoints_undo_a_part,
    a_begin_that_is_dropped_leaks_no_transaction,
    a_transaction_that_is_dropped_is_rolled_back,
    a_script_stops_at_its_first_failure_and_undoes_the_rest,
    many_rows_are_written_whole_or_not_at_all,
    a_transaction_that_nobody_began_is_undone_and_told,
    a_transaction_that_a_statement_ended_is_lost,
    the_catalog_describes_tables_keys_and_relations,
    what_is_not_there_is_not_described,
    a_probe_answers,
);
