//! What every driver of a message broker must do, as checks that each driver's own tests call against a
//! real private broker.
//!
//! A driver gives a [`BrokerFixture`] and says
//! `mainstay_testkit::broker_conformance_tests!(fixture().await)`: one test a check.

mod bench;
mod links;
mod messages;
mod queues;

use std::sync::Arc;

use mainstay_engine::BoxFuture;
use mainstay_engine::tasks::Tasks;
use mainstay_message::Broker;

pub use links::*;
pub use messages::*;
pub use queues::*;

/// A real broker of its own that the checks run against. Each check may be run once per broker.
pub trait BrokerFixture: Send + Sync {
    /// A new connection. Opened again under a name whose connection was closed before, it goes on with
    /// what was kept for it. Does not wait for the broker.
    fn open(&self, name: &str) -> Arc<dyn Broker>;

    /// A connection with a password that the broker refuses.
    fn open_unwelcome(&self) -> Arc<dyn Broker>;

    /// What all connections run in.
    fn tasks(&self) -> &Tasks;

    /// Ends the broker so that it has kept what is persistent.
    fn stop(&self) -> BoxFuture<'_, ()>;

    /// Starts it again.
    fn start(&self) -> BoxFuture<'_, ()>;

    /// Makes a black hole of it (SIGSTOP).
    fn freeze(&self);

    /// Lets it go on (SIGCONT).
    fn thaw(&self);

    /// Whether the broker tells of a persistent message that nobody takes.
    fn tells_of_nobody(&self) -> bool {
        true
    }
}

macro_rules! broker_checks {
    ($($name:ident),+ $(,)?) => {
        /// A test for each check. The argument is an expression that gives a new [`BrokerFixture`],
        /// evaluated in an async function once per test. The crate needs `tokio` with `macros` and `rt`.
        ///
        /// [`BrokerFixture`]: crate::conformance::broker::BrokerFixture
        #[macro_export]
        macro_rules! broker_conformance_tests {
            ($fixture:expr) => {
                $(
                    #[tokio::test]
                    async fn $name() {
                        let fixture = $fixture;
                        $crate::conformance::broker::$name(&fixture).await;
                    }
                )+
            };
        }
    };
}

broker_checks!(
    a_message_comes_back_the_same,
    large_bodies_go_and_come,
    messages_come_in_the_order_of_their_calls,
    wildcards_stand_for_levels,
    a_message_that_nobody_takes_is_told_where_that_is_asked,
    a_transient_message_reaches_who_listens,
    what_expired_never_comes,
    a_durable_queue_keeps_messages_while_nobody_is_there,
    what_was_not_acknowledged_comes_again,
    acknowledgements_may_come_in_any_order,
    a_small_backlog_loses_nothing,
    dropped_deliveries_end_the_subscription,
    a_refused_login_says_so_and_is_tried_again,
    a_connection_comes_back_with_its_subscriptions,
    a_broker_that_falls_silent_is_left_and_found_again,
    a_dropped_publication_hurts_nobody,
    a_closed_connection_leaves_nothing,
);
