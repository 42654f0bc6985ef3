//! Sessions read their own writes, however those ended.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Role, Safety};
use mainstay_sql::{Begin, Code, Database, Options, Position, Scope, SqlError, Verbs};
use mainstay_testkit::cut::cut_at;
use mainstay_testkit::scripted::reply::{connection_lost, constraint_broken};
use mainstay_testkit::scripted::{Point, Reply};

use super::pair::{Pair, pair};
use super::write;

const WRITE: &str = "UPDATE t SET a = 1";

/// A primary at 100 and a replica that has replayed all of it, with a session that is known here.
async fn known() -> Pair {
    let pair = pair(Role::Replica);
    pair.at(100, 1000);
    pair.read().await;
    tokio::time::sleep(Duration::from_secs(11)).await;
    assert!(pair.is_read_from_replica().await, "nothing was written yet");
    pair
}

fn session() -> Options {
    Options {
        session: Some(Arc::from("s")),
        ..Options::default()
    }
}

impl Pair {
    fn at(&self, primary: u64, replica: u64) {
        self.drivers[0].set_position(Some(Position::Lsn(primary)));
        self.drivers[1].set_position(Some(Position::Lsn(replica)));
    }

    async fn read(&self) -> String {
        let read = self.proxy.query("SELECT 1", vec![], session()).await;
        read.unwrap().meta.endpoint.unwrap().to_string()
    }

    /// Some of these reads would meet the replica if it was allowed to serve the session.
    async fn is_read_from_replica(&self) -> bool {
        for _ in 0..20 {
            if self.read().await == "b" {
                return true;
            }
        }
        false
    }

    async fn write(&self) -> Result<(), SqlError> {
        let written = self.proxy.execute(WRITE, vec![], session()).await;
        written.map(drop)
    }

    async fn write_unknown(&self) {
        self.drivers[0].next(Point::Run, Reply::breaks(connection_lost()));
        let error = self.write().await.unwrap_err();
        assert_eq!(error.code(), Code::OutcomeUnknown);
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_serves_a_session_once_it_has_replayed_its_write() {
    let pair = known().await;
    pair.at(200, 199);
    pair.write().await.unwrap();
    // What it was known to have replayed before is not known of the new numbers.
    pair.proxy.source().snapshot().endpoints[1]
        .endpoint
        .note_position(199);
    assert!(!pair.is_read_from_replica().await);
    pair.at(200, 200);
    assert!(pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_outcome_is_unknown_keeps_its_session_on_the_primary() {
    let pair = known().await;
    pair.write_unknown().await;
    assert!(!pair.is_read_from_replica().await);
    // The position of a later write does not cover it: it may still be under way at the server.
    pair.write().await.unwrap();
    assert!(!pair.is_read_from_replica().await);
    for _ in 0..30 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        pair.read().await;
    }
    assert!(pair.is_read_from_replica().await, "it is over by now");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_provably_did_nothing_leaves_its_session_as_it_was() {
    let pair = known().await;
    pair.drivers[0].next(Point::Run, Reply::fails(constraint_broken()));
    pair.write().await.unwrap_err();
    assert!(pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_caller_left_keeps_its_session_on_the_primary() {
    let pair = known().await;
    pair.drivers[0].next(Point::Run, Reply::hangs());
    let left = tokio::time::timeout(Duration::from_millis(10), pair.write()).await;
    assert!(left.is_err());
    assert!(!pair.is_read_from_replica().await);
    let pair = known().await;
    for driver in &pair.drivers {
        driver.set_yields(2);
    }
    // Wherever it is dropped once its statement has left, and not before.
    let mut k = 1;
    while cut_at(k, pair.write()).await.is_none() {
        k += 1;
    }
    let statements = pair.drivers[0].counts().statements;
    assert!(statements > 1 && k > 3, "{statements} {k}");
    assert!(!pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn of_two_writes_at_once_the_newest_position_counts() {
    let pair = known().await;
    pair.at(200, 150);
    pair.proxy.source().snapshot().endpoints[1]
        .endpoint
        .note_position(150);
    let slow = Reply::default().wait_after(Duration::from_millis(50));
    pair.drivers[0].next(Point::Position, slow);
    let early = async {
        pair.write().await.unwrap();
    };
    let late = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        pair.write().await.unwrap();
        // The answer to the earlier question comes late and speaks of an earlier moment.
        pair.at(120, 150);
    };
    tokio::join!(early, late);
    assert!(!pair.is_read_from_replica().await);
    pair.at(200, 200);
    assert!(pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_could_not_be_had_is_asked_for_by_the_next_read() {
    let pair = known().await;
    pair.at(200, 200);
    for _ in 0..2 {
        pair.drivers[0].next(Point::Position, Reply::breaks(connection_lost()));
    }
    pair.write().await.unwrap();
    assert_eq!(pair.read().await, "a");
    assert!(pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn commits_are_writes_of_their_session_too() {
    let begin = Begin {
        options: session(),
        ..Begin::default()
    };
    for (reply, is_known) in [
        (Reply::default(), true),
        (Reply::breaks(connection_lost()), false),
    ] {
        let pair = known().await;
        pair.at(200, 200);
        let begun = pair.proxy.begin(&begin, Scope::default()).await;
        let mut transaction = begun.unwrap();
        transaction.run(&write()).await.unwrap();
        pair.drivers[0].next(Point::Commit, reply);
        assert_eq!(transaction.commit().await.is_ok(), is_known);
        assert_eq!(pair.is_read_from_replica().await, is_known);
    }
    let pair = known().await;
    let mut transaction = pair.proxy.begin(&begin, Scope::default()).await.unwrap();
    transaction.run(&write()).await.unwrap();
    transaction.rollback().await.unwrap();
    assert!(pair.is_read_from_replica().await);
    // What looks like a read may write through a view or an operator.
    let pair = known().await;
    pair.at(200, 150);
    pair.drivers[1].set_position(Some(Position::Lsn(150)));
    pair.proxy.source().snapshot().endpoints[1]
        .endpoint
        .note_position(150);
    let mut transaction = pair.proxy.begin(&begin, Scope::default()).await.unwrap();
    let mut read = write();
    read.safety = Safety::Read;
    transaction.run(&read).await.unwrap();
    transaction.commit().await.unwrap();
    assert!(!pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn a_committed_write_does_not_wait_for_a_server_that_does_not_say_how_far_it_is() {
    let pair = known().await;
    pair.at(200, 200);
    pair.drivers[0].next(Point::Position, Reply::hangs());
    let began = tokio::time::Instant::now();
    pair.write().await.unwrap();
    let wait = pair.proxy.source().snapshot();
    let wait = wait.policy.route.read_your_writes_wait;
    assert!(
        began.elapsed() <= wait + Duration::from_millis(1),
        "{:?}",
        began.elapsed()
    );
    // The session's next read asks again.
    assert!(pair.is_read_from_replica().await);
    for driver in &pair.drivers[..1] {
        driver.always(Point::Position, Reply::hangs());
    }
    pair.write().await.unwrap();
    assert!(!pair.is_read_from_replica().await);
}

#[tokio::test(start_paused = true)]
async fn so_are_streams_and_closures_that_write() {
    let options = || Options {
        safety: Some(Safety::Write),
        ..session()
    };
    let text = "UPDATE t SET a = 1 RETURNING a";
    let pair = known().await;
    pair.at(200, 200);
    let mut stream = pair
        .proxy
        .stream_query(text, vec![], options())
        .await
        .unwrap();
    while stream.next().await.unwrap().is_some() {}
    assert!(pair.is_read_from_replica().await);
    pair.drivers[0].next(
        Point::Open,
        Reply::rows(vec![vec![mainstay_sql::Value::Null]; 5000]),
    );
    let stream = pair.proxy.stream_query(text, vec![], options()).await;
    drop(stream.unwrap());
    assert!(!pair.is_read_from_replica().await, "left in the middle");

    let pair = known().await;
    pair.drivers[0].next(Point::Run, Reply::breaks(connection_lost()));
    let ended = pair
        .proxy
        .run(Safety::Write, session(), |mut lent| async move {
            lent.execute(WRITE, vec![]).await
        });
    ended.await.unwrap_err();
    assert!(!pair.is_read_from_replica().await);
}
