//! One event at a server is one failure to its circuit, however many callers met it.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_engine::Role;
use mainstay_sql::{Options, Verbs};
use mainstay_testkit::scripted::reply::connection_lost;
use mainstay_testkit::scripted::{Point, Reply};

use super::pair::pair;

#[tokio::test(start_paused = true)]
async fn connections_that_a_restart_breaks_at_once_weigh_as_one_failure() {
    let pair = pair(Role::Replica);
    let wait = Duration::from_millis(50);
    let write = || {
        let text = "UPDATE t SET a = 1";
        pair.proxy.execute(text, Vec::new(), Options::default())
    };
    let opened = || pair.proxy.source().status()[0].stats.circuit_opened;
    for restart in 1..=3 {
        for _ in 0..9 {
            let reply = Reply::breaks(connection_lost()).wait_before(wait);
            pair.drivers[0].next(Point::Run, reply);
        }
        let ended = join_all((0..9).map(|_| write())).await;
        assert!(ended.iter().all(Result::is_err), "restart {restart}");
        assert_eq!(opened(), 0, "restart {restart}");
        write().await.unwrap();
    }
    // One after the other on connections of their own they are failures of their own.
    for _ in 0..9 {
        pair.drivers[0].next(Point::Run, Reply::breaks(connection_lost()));
        write().await.unwrap_err();
    }
    assert_eq!(opened(), 1);
}
