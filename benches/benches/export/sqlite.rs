//! Beside rusqlite, both from one file.

use std::hint::black_box;
use std::time::Duration;

use mainstay_benches::timed;
use tokio::runtime::Runtime;

use crate::{lines_on, mainstay, pairs};

const TEXT: &str = "SELECT id, name, amount, at FROM export";

/// Reads every value and throws it away. How long it took.
fn raw(connection: &rusqlite::Connection, rows: u64) -> anyhow::Result<Duration> {
    let mut read = Ok(0);
    let taken = timed(1, || {
        read = connection.prepare_cached(TEXT).and_then(|mut statement| {
            let columns = statement.column_count();
            let mut found = statement.query([])?;
            let mut read = 0;
            while let Some(row) = found.next()? {
                for column in 0..columns {
                    black_box(row.get_ref(column)?);
                }
                read += 1;
            }
            Ok(read)
        });
    });
    let read = read?;
    anyhow::ensure!(read == rows, "{read} rows");
    Ok(taken)
}

pub(crate) fn compare(runtime: &Runtime, count: usize, rows: u64) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("export.db");
    let connection = rusqlite::Connection::open(&file)?;
    connection.execute_batch(&format!(
        "PRAGMA journal_mode = WAL; \
         CREATE TABLE export (id INTEGER PRIMARY KEY, name TEXT, amount REAL, at DATETIME); \
         INSERT INTO export SELECT n, 'name ' || n, n / 7.0, datetime(1767225600 + n, 'unixepoch') \
         FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < {rows}) SELECT n FROM c)"
    ))?;
    let source = format!(
        "[sources.s]\ndriver = \"sqlite\"\npath = {:?}\n[sources.s.endpoints.a]\n",
        file.display().to_string()
    );
    let running = runtime.block_on(mainstay(folder.path(), &source))?;
    let share = pairs(
        "SQLite",
        count,
        rows,
        &mut || raw(&connection, rows),
        &mut || lines_on(runtime, &running, TEXT, rows),
    );
    runtime.block_on(running.shutdown(Duration::from_secs(5)));
    share
}
