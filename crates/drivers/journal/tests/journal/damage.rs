//! Files that are none, no longer, or not for us.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};

use mainstay_journal::{Journal, JournalError, JournalSettings};
use mainstay_message::JobStore;

use super::shelf::{SERVICE, Shelf, accept, finish};

/// A closed journal with some requests.
async fn filled() -> Shelf {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    for number in 0..200 {
        let id = format!("request-{number}");
        let mut changes = vec![accept(&id, 3000)];
        if number % 4 == 0 {
            changes.push(finish(&id));
        }
        journal.write(SERVICE, changes, false).await.unwrap();
    }
    journal.close().await;
    shelf
}

async fn refused(shelf: &Shelf) -> JournalError {
    let before = fs::read(shelf.path()).unwrap();
    let error = shelf.try_open().await.expect_err("it was taken");
    assert!(
        fs::read(shelf.path()).unwrap() == before,
        "the file was changed"
    );
    error
}

#[tokio::test]
async fn a_file_cut_anywhere_is_refused_and_left_as_it_is() {
    let shelf = filled().await;
    let whole = fs::read(shelf.path()).unwrap();
    let end = whole.len();
    for length in [
        0,
        1,
        15,
        16,
        50,
        99,
        100,
        511,
        512,
        4095,
        4096,
        8192,
        end / 2,
        end - 4096,
        end - 1,
    ] {
        fs::write(shelf.path(), &whole[..length]).unwrap();
        let error = refused(&shelf).await;
        assert!(
            matches!(error, JournalError::Damaged { .. }),
            "{length}: {error:?}"
        );
        let text = error.to_string();
        assert!(
            text.contains("move") && text.contains("jobs.sqlite3-wal"),
            "{text}"
        );
    }
    fs::write(shelf.path(), &whole).unwrap();
    assert_eq!(
        shelf
            .open()
            .await
            .found(SERVICE)
            .await
            .unwrap()
            .unfinished
            .len(),
        150
    );
}

#[tokio::test]
async fn a_page_of_garbage_is_refused_wherever_it_is() {
    let shelf = filled().await;
    let whole = fs::read(shelf.path()).unwrap();
    let mut damaged = 0;
    for page in 0..whole.len() / 4096 {
        fs::write(shelf.path(), &whole).unwrap();
        let file = OpenOptions::new().write(true).open(shelf.path()).unwrap();
        file.write_all_at(&[0xa5; 4096], page as u64 * 4096)
            .unwrap();
        match shelf.try_open().await {
            Ok(journal) => {
                // A free page holds nothing that could be damaged.
                let found = journal.found(SERVICE).await;
                assert_eq!(found.unwrap().unfinished.len(), 150, "page {page}");
                journal.close().await;
            }
            Err(JournalError::Damaged { .. }) => damaged += 1,
            Err(other) => panic!("page {page}: {other:?}"),
        }
    }
    assert!(damaged > 100, "{damaged}");
}

#[tokio::test]
async fn another_processs_journal_is_refused_with_what_to_do() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    let error = refused(&shelf).await;
    assert!(matches!(error, JournalError::InUse { .. }), "{error:?}");
    assert!(error.to_string().contains("stop the other one"), "{error}");
    journal
        .write(SERVICE, vec![accept("a", 1)], true)
        .await
        .unwrap();
    journal.close().await;
    shelf.open().await;
}

#[tokio::test]
async fn a_later_format_and_another_programs_database_are_refused() {
    let shelf = filled().await;
    shelf.raw().pragma_update(None, "user_version", 2).unwrap();
    let error = refused(&shelf).await;
    assert!(
        matches!(
            error,
            JournalError::Newer {
                found: 2,
                known: 1,
                ..
            }
        ),
        "{error:?}"
    );
    shelf
        .raw()
        .pragma_update(None, "application_id", 0)
        .unwrap();
    let error = refused(&shelf).await;
    assert!(matches!(error, JournalError::Foreign { .. }), "{error:?}");
}

#[tokio::test]
async fn a_log_without_its_file_is_no_new_journal() {
    let shelf = Shelf::new();
    fs::write(shelf.folder.path().join("jobs.sqlite3-wal"), "x").unwrap();
    let error = shelf.try_open().await.unwrap_err();
    assert!(matches!(error, JournalError::Torn { .. }), "{error:?}");
    assert!(!shelf.path().exists());
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named_and_a_file_that_others_may_read_is_made_private() {
    let shelf = filled().await;
    fs::set_permissions(shelf.path(), fs::Permissions::from_mode(0o644)).unwrap();
    shelf.open().await.close().await;
    assert_eq!(
        fs::metadata(shelf.path()).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let settings = JournalSettings::within(shelf.folder.path().join("none"));
    let error = Journal::open(settings).await.unwrap_err();
    assert!(matches!(error, JournalError::System { .. }), "{error:?}");
    assert!(error.to_string().contains("none"), "{error}");
}

#[tokio::test]
async fn a_log_cut_anywhere_gives_what_was_written_up_to_there_and_no_half_of_a_write() {
    const WRITES: usize = 40;
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    for number in 0..WRITES {
        let changes = vec![
            accept(&format!("{number}-a"), 700 * number),
            accept(&format!("{number}-b"), 10),
        ];
        journal.write(SERVICE, changes, false).await.unwrap();
    }
    // As a crash leaves them: nothing has gone from the log to the file yet.
    let log = fs::read(shelf.folder.path().join("jobs.sqlite3-wal")).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for length in (0..log.len()).step_by(log.len() / 50).chain([log.len()]) {
        let copy = Shelf::new();
        fs::copy(shelf.path(), copy.path()).unwrap();
        fs::write(copy.folder.path().join("jobs.sqlite3-wal"), &log[..length]).unwrap();
        let found = copy.open().await.found(SERVICE).await.unwrap();
        let ids: Vec<&str> = found.unfinished.iter().map(|it| it.id.as_str()).collect();
        let writes = ids.len() / 2;
        let expected: Vec<String> = (0..writes)
            .flat_map(|number| [format!("{number}-a"), format!("{number}-b")])
            .collect();
        assert_eq!(ids, expected, "{length} of {}", log.len());
        seen.insert(writes);
    }
    assert!(
        seen.len() > 10 && seen.contains(&0) && seen.contains(&WRITES),
        "{seen:?}"
    );
}
