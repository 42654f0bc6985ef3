//! The journal keeps what the store in memory keeps.

use fastrand::Rng;
use mainstay_message::store::Found;
use mainstay_message::{JobStore, MemoryStore};
use mainstay_testkit::{cases, seed};

use super::draw::changes;
use super::shelf::{SERVICE, Shelf, accept, finish, reply};

const SERVICES: &[&str] = &["compute", "storage", "ä'\""];

#[tokio::test]
async fn what_was_written_at_random_is_found_again_as_in_memory_and_after_reopening() {
    let mut rng = Rng::with_seed(seed());
    for case in 0..cases(20, 1000) {
        let shelf = Shelf::new();
        let memory = MemoryStore::new();
        for _ in 0..rng.usize(1..4) {
            let journal = shelf.open().await;
            for _ in 0..rng.usize(0..30) {
                let service = SERVICES[rng.usize(..SERVICES.len())];
                let (changes, durable) = (changes(&mut rng), rng.u8(0..8) == 0);
                memory
                    .write(service, changes.clone(), durable)
                    .await
                    .unwrap();
                let written = journal.write(service, changes, durable);
                // Dropped or awaited, its changes are in their place.
                if rng.bool() {
                    written.await.unwrap();
                }
            }
            for service in SERVICES {
                let (expected, found) = (memory.found(service).await, journal.found(service).await);
                assert_eq!(found, expected, "case {case}, {service}");
            }
            journal.close().await;
        }
    }
}

#[tokio::test]
async fn what_a_dropped_journal_was_given_is_there_when_it_is_opened_again() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    drop(journal.write(SERVICE, vec![accept("a", 100), reply("a", 10)], false));
    drop(journal.write(SERVICE, vec![accept("b", 100), finish("b")], false));
    drop(journal);
    let found = shelf.open().await.found(SERVICE).await.unwrap();
    let unfinished: Vec<_> = found.unfinished.iter().map(|it| it.id.as_str()).collect();
    assert_eq!((unfinished, found.finished), (vec!["a"], vec!["b".into()]));
    assert!(found.unfinished[0].reply.is_some());
}

#[tokio::test]
async fn a_closed_journal_says_so_and_leaves_one_private_file() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    assert!(journal.is_lasting());
    assert_eq!(journal.found(SERVICE).await.unwrap(), Found::default());
    journal
        .write(SERVICE, vec![accept("a", 1)], true)
        .await
        .unwrap();
    assert_modes(&shelf, 2);
    journal.close().await;
    journal.close().await;
    let error = journal
        .write(SERVICE, vec![finish("a")], false)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("closed"), "{error}");
    assert!(journal.found(SERVICE).await.is_err());
    assert_modes(&shelf, 1);
}

/// So many files, which only their owner may read.
fn assert_modes(shelf: &Shelf, files: usize) {
    use std::os::unix::fs::PermissionsExt;
    let entries: Vec<_> = std::fs::read_dir(shelf.folder.path())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert_eq!(entries.len(), files, "{entries:?}");
    for entry in entries {
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{entry:?}");
    }
}
