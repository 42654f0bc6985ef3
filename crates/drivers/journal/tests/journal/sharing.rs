//! Many writers at once share transactions and fsyncs.

use std::sync::Arc;

use futures_util::future::join_all;
use mainstay_engine::tasks::Tasks;
use mainstay_journal::WAITING_MAX;
use mainstay_message::JobStore;
use mainstay_message::store::Stage;

use super::shelf::{SERVICE, Shelf, accept, update};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_durable_writers_share_fsyncs() {
    let shelf = Shelf::new();
    let journal = Arc::new(shelf.open().await);
    let tasks = Tasks::new();
    let writers = (0..100).map(|writer| {
        let journal = Arc::clone(&journal);
        tasks.spawn(async move {
            for round in 0..10 {
                let change = accept(&format!("{writer}-{round}"), 1000);
                journal.write(SERVICE, vec![change], true).await.unwrap();
            }
        })
    });
    for writer in join_all(writers).await {
        writer.unwrap();
    }
    let counts = journal.counts();
    assert_eq!(counts.changes, 1000);
    assert!(counts.syncs <= 300, "{counts:?}");
    println!("1000 durable writes of 100 writers: {counts:?}");
    journal.close().await;
    assert_eq!(
        shelf
            .open()
            .await
            .found(SERVICE)
            .await
            .unwrap()
            .unfinished
            .len(),
        1000
    );
}

#[tokio::test]
async fn writes_that_wait_become_one_transaction_and_one_fsync() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    // So large that all others have come before it is written.
    let first = journal.write(SERVICE, vec![accept("first", 32 << 20)], false);
    let others: Vec<_> = (0..500)
        .map(|it| journal.write(SERVICE, vec![accept(&it.to_string(), 10)], true))
        .collect();
    first.await.unwrap();
    assert!(join_all(others).await.iter().all(Result::is_ok));
    let counts = journal.counts();
    assert_eq!(counts.changes, 501);
    assert!(
        counts.transactions <= 3 && (1..=3).contains(&counts.syncs),
        "{counts:?}"
    );
}

#[tokio::test]
async fn writes_that_need_no_fsync_cause_none() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    for number in 0..100 {
        let id = number.to_string();
        journal
            .write(SERVICE, vec![accept(&id, 100)], false)
            .await
            .unwrap();
        journal
            .write(SERVICE, vec![update(&id, Stage::Accepted)], false)
            .await
            .unwrap();
    }
    assert_eq!(journal.counts().syncs, 0);
    assert_eq!(journal.counts().changes, 200);
}

#[tokio::test]
async fn more_calls_than_may_wait_are_refused_and_none_of_the_others_is_lost() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    // While this one is written the others wait.
    let first = journal.write(SERVICE, vec![accept("first", 128 << 20)], false);
    let others: Vec<_> = (0..3 * WAITING_MAX)
        .map(|it| journal.write(SERVICE, vec![accept(&it.to_string(), 0)], false))
        .collect();
    first.await.unwrap();
    let results = join_all(others).await;
    let refused = results.iter().filter(|result| result.is_err()).count();
    assert!(refused > 0);
    let found = journal.found(SERVICE).await.unwrap().unfinished;
    assert_eq!(found.len(), 1 + results.len() - refused);
}
