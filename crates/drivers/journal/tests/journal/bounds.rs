//! How large it becomes, and what happens where there is no more room.

use mainstay_journal::{Journal, LENGTH_MAX_LEAST};
use mainstay_message::store::{FINISHED_FOR, FINISHED_MAX};
use mainstay_message::{Change, JobStore};

use super::shelf::{SERVICE, Shelf, accept, finish, reply};

#[tokio::test]
async fn requests_that_come_and_go_do_not_make_the_file_grow() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    for number in 0..2000 {
        let id = number.to_string();
        let mut changes = vec![accept(&id, 10_000), reply(&id, 30_000)];
        if number >= 20 {
            changes.push(finish(&(number - 20).to_string()));
        }
        journal.write(SERVICE, changes, false).await.unwrap();
    }
    journal.close().await;
    // 80 MB went through it, 20 requests at a time.
    assert!(shelf.length() < 2 << 20, "{}", shelf.length());
}

#[tokio::test]
async fn a_burst_gives_its_space_back_when_it_is_opened_again() {
    let shelf = Shelf::new();
    let journal = shelf.open().await;
    for number in 0..10 {
        let change = accept(&number.to_string(), 8 << 20);
        journal.write(SERVICE, vec![change], false).await.unwrap();
    }
    for number in 0..9 {
        let change = finish(&number.to_string());
        journal.write(SERVICE, vec![change], false).await.unwrap();
    }
    journal.close().await;
    assert!(shelf.length() > 80 << 20, "{}", shelf.length());
    let journal = shelf.open().await;
    assert!(shelf.length() < 9 << 20, "{}", shelf.length());
    assert_eq!(journal.found(SERVICE).await.unwrap().unfinished.len(), 1);
}

#[tokio::test]
async fn those_that_ended_are_forgotten_by_number_and_by_time() {
    let shelf = Shelf::new();
    let rows = || -> usize {
        let count = "SELECT count(*) FROM finished";
        let count = shelf.raw().query_row(count, [], |row| row.get::<_, u32>(0));
        count.unwrap() as usize
    };
    let journal = shelf.open().await;
    end_many(&journal).await;
    let found = journal.found(SERVICE).await.unwrap().finished;
    assert_eq!(found.len(), FINISHED_MAX);
    assert_eq!(
        (found[0].as_str(), found[FINISHED_MAX - 1].as_str()),
        ("5000", "104999")
    );
    journal.close().await;
    assert!(
        (FINISHED_MAX..FINISHED_MAX + 1000).contains(&rows()),
        "{}",
        rows()
    );

    let past = FINISHED_FOR.as_millis() as i64;
    let age = "UPDATE finished SET at_ms = at_ms - ?1 WHERE place < 104000";
    assert!(shelf.raw().execute(age, [past]).unwrap() > 0);
    let journal = shelf.open().await;
    assert_eq!(journal.found(SERVICE).await.unwrap().finished.len(), 1000);
    end_many(&journal).await;
    journal.close().await;
    assert!(
        (FINISHED_MAX..FINISHED_MAX + 1000).contains(&rows()),
        "{}",
        rows()
    );
}

/// 5,000 more than are remembered.
async fn end_many(journal: &Journal) {
    for first in (0..FINISHED_MAX + 5000).step_by(1000) {
        let changes: Vec<Change> = (first..first + 1000)
            .map(|it| finish(&it.to_string()))
            .collect();
        journal.write(SERVICE, changes, false).await.unwrap();
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_whole_and_what_fits_goes_on() {
    let shelf = Shelf::new();
    let settings = shelf.settings().length_max(LENGTH_MAX_LEAST);
    let journal = Journal::open(settings.clone()).await.unwrap();
    journal
        .write(SERVICE, vec![accept("kept", 1000)], true)
        .await
        .unwrap();
    let (before, too_large, after) = tokio::join!(
        journal.write(SERVICE, vec![accept("before", 1000)], false),
        journal.write(
            SERVICE,
            vec![accept("small", 10), accept("large", 2 << 20)],
            false
        ),
        journal.write(SERVICE, vec![reply("before", 1000)], true),
    );
    let error = too_large.unwrap_err();
    assert!(error.to_string().contains("full"), "{error}");
    assert_eq!((before, after), (Ok(()), Ok(())));
    let expected = journal.found(SERVICE).await.unwrap();
    let ids: Vec<_> = expected
        .unfinished
        .iter()
        .map(|it| it.id.as_str())
        .collect();
    assert_eq!(ids, ["kept", "before"]);
    assert!(expected.unfinished[1].reply.is_some());
    journal.close().await;
    let journal = Journal::open(settings).await.unwrap();
    assert_eq!(journal.found(SERVICE).await.unwrap(), expected);
}
