//! A disk that takes no more.

use std::process::Command;

use mainstay_journal::{Journal, JournalSettings};
use mainstay_message::{JobStore, StoreError};

use super::shelf::{SERVICE, Shelf, accept, reply};

/// Where the child writes; set in the child alone.
const FOLDER: &str = "MAINSTAY_JOURNAL_FULL";
/// This test, which the child runs as well.
const NAME: &str = "journal::full::what_a_full_disk_refuses_leaves_nothing_and_the_rest_stays";
/// The system lets no file of the child become larger, and leaves it alive when one would.
const LIMITED: &str = r#"ulimit -f 4000; trap "" XFSZ; exec "$0" --exact "$1" --nocapture"#;

#[tokio::test]
async fn what_a_full_disk_refuses_leaves_nothing_and_the_rest_stays() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return fill(JournalSettings::within(folder)).await;
    }
    let shelf = Shelf::new();
    let output = Command::new("sh")
        .args(["-c", LIMITED])
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env(FOLDER, shelf.folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let written = |line: &str| line.strip_prefix("written ")?.parse::<usize>().ok();
    let written: Vec<usize> = text.lines().filter_map(written).collect();
    assert!(written.len() > 10 && text.contains("refused"), "{text}");
    let found = shelf.open().await.found(SERVICE).await.unwrap();
    let ids: Vec<usize> = found
        .unfinished
        .iter()
        .map(|it| it.id.parse().unwrap())
        .collect();
    assert_eq!(ids, written);
    assert!(found.unfinished.iter().all(|it| it.reply.is_some()));
}

/// The child: writes until the disk is full, and then something small.
async fn fill(settings: JournalSettings) {
    let journal = Journal::open(settings).await.unwrap();
    println!();
    for number in 0.. {
        let result = write(&journal, number, 20_000).await;
        if let Err(error) = result {
            println!("refused: {error}");
            // It may fit or not, and is told rightly.
            let _ = write(&journal, number + 1, 10).await;
            return;
        }
    }
}

async fn write(journal: &Journal, number: usize, body: usize) -> Result<(), StoreError> {
    let id = number.to_string();
    let changes = vec![accept(&id, body), reply(&id, body)];
    journal
        .write(SERVICE, changes, number.is_multiple_of(5))
        .await?;
    println!("written {number}");
    Ok(())
}
