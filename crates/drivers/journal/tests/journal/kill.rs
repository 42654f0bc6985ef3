//! A process that is killed while it writes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use futures_util::future::join_all;
use mainstay_engine::tasks::Tasks;
use mainstay_journal::{Journal, JournalSettings};
use mainstay_message::JobStore;
use mainstay_message::store::Stage;
use mainstay_testkit::{cases, seed};

use super::shelf::{Shelf, accept, finish, reply, update};

/// Where the child writes; set in the child alone.
const FOLDER: &str = "MAINSTAY_JOURNAL_CHILD";
/// This test, which the child runs as well.
const NAME: &str = "journal::kill::everything_that_was_acknowledged_is_there_after_a_kill";
const WRITERS: usize = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_that_was_acknowledged_is_there_after_a_kill() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_for_ever(JournalSettings::within(folder)).await;
    }
    let mut rng = fastrand::Rng::with_seed(seed());
    let shelf = Shelf::new();
    // One file over all kills: each start finds what the one before left.
    for round in 0..cases(8, 100) {
        let acknowledged = run_and_kill(&shelf, rng.usize(1..2000));
        let journal = shelf.open().await;
        for (writer, step) in acknowledged {
            check(&journal, writer, step, round).await;
        }
        journal.close().await;
    }
}

/// The last step of each writer that a child has printed, which is killed after so many.
fn run_and_kill(shelf: &Shelf, steps: usize) -> BTreeMap<usize, usize> {
    let mut child = start(shelf);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let written = lines
        .map_while(Result::ok)
        .filter_map(|line| acknowledgement(&line));
    let mut acknowledged = BTreeMap::new();
    for (count, (writer, step)) in written.enumerate() {
        if count == steps {
            // What it has printed meanwhile counts as well.
            child.kill().unwrap();
        }
        acknowledged.insert(writer, step);
    }
    assert!(!child.wait().unwrap().success());
    assert!(!acknowledged.is_empty(), "the child wrote nothing");
    acknowledged
}

/// What must be there when this was the last step that was printed: later ones may have been made.
async fn check(journal: &Journal, writer: usize, step: usize, round: usize) {
    let found = journal.found(&format!("service-{writer}")).await.unwrap();
    let (number, part) = (step / 4, step % 4);
    let id = number.to_string();
    let what = || format!("round {round}, writer {writer}, step {step}");
    let has_ended = found.finished.iter().any(|ended| *ended == id);
    match found.unfinished.iter().find(|it| it.id == id) {
        None => assert!(has_ended, "{}", what()),
        Some(open) => {
            assert!(part < 3 && !has_ended, "{}", what());
            assert!(
                part < 1 || open.record.stage == Stage::Accepted,
                "{}",
                what()
            );
            assert!(part < 2 || open.reply.is_some(), "{}", what());
            assert_eq!(open.request.body.len(), body(number), "{}", what());
        }
    }
    // A writer ends one before it begins the next.
    assert!(found.unfinished.len() <= 1, "{}", what());
    let ended: Vec<usize> = found
        .finished
        .iter()
        .map(|id| id.parse().unwrap())
        .collect();
    let expected: Vec<usize> = (0..ended.len()).collect();
    assert_eq!(ended, expected, "{}", what());
}

fn body(number: usize) -> usize {
    number * 37 % 9000
}

fn start(shelf: &Shelf) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(FOLDER, shelf.folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn acknowledgement(line: &str) -> Option<(usize, usize)> {
    let (writer, step) = line.strip_prefix("written ")?.split_once(' ')?;
    Some((writer.parse().ok()?, step.parse().ok()?))
}

/// The child: writers that go on where they were, and print each step once it is acknowledged.
async fn write_for_ever(settings: JournalSettings) {
    let journal = Arc::new(Journal::open(settings).await.unwrap());
    let tasks = Tasks::new();
    // The test's own line has no end before it.
    println!();
    let writers = (0..WRITERS).map(|writer| tasks.spawn(write_steps(Arc::clone(&journal), writer)));
    join_all(writers).await;
}

async fn write_steps(journal: Arc<Journal>, writer: usize) {
    let service = format!("service-{writer}");
    let found = journal.found(&service).await.unwrap();
    // What the kill left open ends now, so that each run is checked alone.
    for open in &found.unfinished {
        journal
            .write(&service, vec![finish(&open.id)], false)
            .await
            .unwrap();
    }
    for step in 4 * (found.finished.len() + found.unfinished.len()).. {
        let number = step / 4;
        let id = number.to_string();
        let change = match step % 4 {
            0 => accept(&id, body(number)),
            1 => update(&id, Stage::Accepted),
            2 => reply(&id, 500),
            _ => finish(&id),
        };
        // A third of them for the disk, at changing steps.
        let durable = step % 3 == 0;
        journal
            .write(&service, vec![change], durable)
            .await
            .unwrap();
        // One write, so that the kill cuts no line.
        let line = format!("written {writer} {step}\n");
        std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
    }
}
