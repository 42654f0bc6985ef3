//! Endpoints without work keep no connections.

use std::time::Duration;

use mainstay_engine::Role;
use mainstay_sql::{Begin, Database, Options, Scope, Verbs};

use super::pair::{Pair, pair};
use super::write;

impl Pair {
    async fn warm(&self) {
        for _ in 0..20 {
            let read = self.proxy.query("SELECT 1", vec![], Options::default());
            read.await.unwrap();
        }
        self.settle().await;
    }

    /// Lets what follows from an event happen.
    async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    fn idle(&self) -> [u32; 2] {
        self.plains.each_ref().map(|plain| plain.pool_stats().idle)
    }
}

#[tokio::test(start_paused = true)]
async fn draining_an_endpoint_closes_its_idle_connections_and_undraining_lets_it_have_some_again() {
    let pair = pair(Role::Replica);
    pair.warm().await;
    assert_eq!(pair.idle(), [1, 1]);
    pair.proxy.source().drain_endpoint("b").unwrap();
    pair.settle().await;
    assert_eq!(pair.idle(), [1, 0]);
    assert!(pair.drivers[1].sessions().is_empty());
    pair.warm().await;
    assert_eq!(pair.idle(), [1, 0]);
    pair.proxy.source().undrain_endpoint("b").unwrap();
    pair.settle().await;
    pair.warm().await;
    assert_eq!(pair.idle(), [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn work_in_flight_on_a_drained_endpoint_goes_on_and_its_connection_is_closed_after_it() {
    let pair = pair(Role::Replica);
    let begun = pair.proxy.begin(&Begin::default(), Scope::default()).await;
    let mut transaction = begun.unwrap();
    pair.proxy.source().drain_endpoint("a").unwrap();
    pair.settle().await;
    transaction.run(&write()).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(pair.drivers[0].counts().commits, 1);
    assert!(pair.drivers[0].sessions().is_empty());
}

#[tokio::test(start_paused = true)]
async fn removing_an_endpoint_closes_its_idle_connections() {
    let pair = pair(Role::Replica);
    pair.warm().await;
    pair.proxy.source().remove_endpoint("b").unwrap();
    pair.settle().await;
    assert_eq!(pair.idle(), [1, 0]);
}
