//! The file sink on real folders.

use std::path::Path;

use serde_json::Value;

use super::super::entry::tests::entry;
use super::*;

const DAY: &str = "2026-11-29T23:59:59.9Z";
const NEXT_DAY: &str = "2026-11-30T00:00:00Z";

fn offer(sink: &FileSink, ids: std::ops::Range<u128>, started: &str) {
    for id in ids {
        sink.offer(Arc::new(entry(id, started)));
    }
}

/// The ids in a file, each line checked to be one JSON object.
fn ids(dir: &Path, date: &str) -> Vec<u128> {
    let text = std::fs::read_to_string(dir.join(format!("audit-{date}.jsonl"))).unwrap();
    assert!(text.ends_with('\n'));
    let id = |line: &str| {
        let value: Value = serde_json::from_str(line).ok()?;
        u128::from_str_radix(value["correlation_id"].as_str()?, 16).ok()
    };
    text.lines().filter_map(id).collect()
}

#[tokio::test]
async fn entries_go_to_the_file_of_the_utc_day_on_which_they_began() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let sink = FileSink::open(dir.path().join("audit"), &tasks);
    offer(&sink, 0..2, DAY);
    offer(&sink, 2..3, NEXT_DAY);
    offer(&sink, 3..4, DAY);
    assert!(sink.close().await);
    let dir = dir.path().join("audit");
    assert_eq!(ids(&dir, "2026-11-29"), [0, 1, 3]);
    assert_eq!(ids(&dir, "2026-11-30"), [2]);
    assert_eq!((sink.written(), sink.dropped()), (4, 0));
    assert_eq!(tasks.running(), 0);
    offer(&sink, 4..5, DAY);
    assert_eq!(sink.dropped(), 1, "offered after the end");
}

#[tokio::test]
async fn files_are_continued_and_a_torn_line_spoils_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let path = dir.path().join("audit-2026-11-29.jsonl");
    std::fs::write(&path, "{\"torn\":").unwrap();
    for id in 0..2 {
        let sink = FileSink::open(dir.path(), &tasks);
        offer(&sink, id..id + 1, DAY);
        assert!(sink.close().await);
    }
    assert_eq!(ids(dir.path(), "2026-11-29"), [0, 1]);
}

#[tokio::test]
async fn the_end_of_the_tasks_and_of_the_last_sink_flush_too() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let sink = FileSink::open(dir.path(), &tasks);
    offer(&sink, 0..700, DAY);
    drop(sink);
    assert!(tasks.idle(Duration::from_secs(5)).await);
    let sink = FileSink::open(dir.path(), &tasks);
    offer(&sink, 700..1400, DAY);
    assert_eq!(tasks.shutdown(Duration::from_secs(5)).await, 0);
    assert_eq!(ids(dir.path(), "2026-11-29"), (0..1400).collect::<Vec<_>>());
}

/// A folder that cannot be made: a file is in its way.
fn blocked(dir: &Path) -> PathBuf {
    let folder = dir.join("audit");
    std::fs::write(&folder, "in the way").unwrap();
    folder
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_refuses_is_reported_once_and_tried_again_until_it_takes_everything() {
    let dir = tempfile::tempdir().unwrap();
    let folder = blocked(dir.path());
    let reports = Arc::new(AtomicU64::new(0));
    let seen = reports.clone();
    let sink = FileSink::open_reporting(&folder, &Tasks::new(), move |problem| {
        assert!(problem.path.ends_with("audit"));
        seen.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new("a report may panic"));
    });
    offer(&sink, 0..3, DAY);
    tokio::time::sleep(Duration::from_millis(3500)).await;
    assert!(sink.last_problem().is_some());
    assert_eq!(reports.load(Ordering::SeqCst), 1);
    std::fs::remove_file(&folder).unwrap();
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(sink.last_problem(), None);
    assert!(sink.close().await);
    assert_eq!(ids(&folder, "2026-11-29"), [0, 1, 2]);
    assert_eq!(sink.dropped(), 0);
}

#[tokio::test(start_paused = true)]
async fn over_its_bound_the_queue_drops_and_counts_and_closing_ends_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let tasks = Tasks::new();
    let sink = FileSink::open(blocked(dir.path()), &tasks);
    let offered = QUEUE_MAX + 5000;
    offer(&sink, 0..offered as u128, DAY);
    assert_eq!(sink.dropped(), 5000);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = tokio::time::Instant::now();
    assert!(!sink.close().await);
    assert!(before.elapsed() <= Duration::from_millis(5010));
    assert_eq!((sink.dropped(), sink.written()), (offered as u64, 0));
    assert_eq!(tasks.running(), 0);
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let sink = FileSink::open(dir.path(), &Tasks::new());
    let path = dir.path().join("audit-2026-11-29.jsonl");
    offer(&sink, 0..1, DAY);
    while sink.written() < 1 {
        tokio::task::yield_now().await;
    }
    std::fs::rename(&path, dir.path().join("old")).unwrap();
    offer(&sink, 1..2, DAY);
    assert!(sink.close().await);
    assert_eq!(ids(dir.path(), "2026-11-29"), [1]);
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_trail() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let sink = FileSink::open(dir.path(), &Tasks::new());
    offer(&sink, 0..1, DAY);
    assert!(sink.close().await);
    let file = std::fs::metadata(dir.path().join("audit-2026-11-29.jsonl")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
}
