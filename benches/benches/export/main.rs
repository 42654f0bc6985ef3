//! An export of many rows as lines (NDJSON) to a null sink, beside the raw driver that reads the same rows
//! and throws them away: rows per second, in interleaved pairs of one run.
//!
//! `cargo bench --bench export` measures a million rows; under `cargo test --benches` a small round shows
//! that it still works. `-- sqlite` measures that database only.

mod postgres;
mod sqlite;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use mainstay_benches::is_measuring;
use mainstay_config::{Input, LoadOptions};
use mainstay_server::{Running, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// Lines reach at least this share of the raw driver's rate; a measured run fails where they reach less than
/// seven eighths of it.
const SHARE_MIN: f64 = 0.70;

type Compare = fn(&Runtime, usize, u64) -> anyhow::Result<f64>;

fn main() -> anyhow::Result<()> {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let is_chosen = |name: &str| {
        let mut names = chosen.iter().filter(|word| !word.starts_with('-'));
        names.clone().next().is_none() || names.any(|word| word == name)
    };
    let (pairs, rows) = match is_measuring() {
        true => (9, 1_000_000),
        false => (1, 20_000),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let all: [(&str, Compare); 2] = [("sqlite", sqlite::compare), ("postgres", postgres::compare)];
    let mut problems = Vec::new();
    for (name, compare) in all {
        if !is_chosen(name) {
            continue;
        }
        let share = compare(&runtime, pairs, rows)?;
        if is_measuring() && share < SHARE_MIN * 7.0 / 8.0 {
            problems.push(format!("{name}: lines reach {:.1} %", 100.0 * share));
        }
    }
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Measures both in turn; the median of the share that lines reach.
fn pairs(
    name: &str,
    pairs: usize,
    rows: u64,
    raw: &mut dyn FnMut() -> anyhow::Result<Duration>,
    lines: &mut dyn FnMut() -> anyhow::Result<Duration>,
) -> anyhow::Result<f64> {
    // Once unmeasured, for caches and connections.
    raw()?;
    lines()?;
    let (mut of_raw, mut of_lines, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for pair in 0..pairs {
        let early = if pair % 2 == 0 { Some(raw()?) } else { None };
        let b = lines()?.as_secs_f64();
        let a = match early {
            Some(a) => a,
            None => raw()?,
        };
        let a = a.as_secs_f64();
        of_raw.push(a);
        of_lines.push(b);
        shares.push(a / b);
    }
    let rate = |times| rows as f64 / median(times);
    let (raw, lines, share) = (rate(of_raw), rate(of_lines), median(shares.clone()));
    let range = |at: usize| {
        let mut sorted = shares.clone();
        sorted.sort_by(f64::total_cmp);
        100.0 * sorted[at]
    };
    println!(
        "export, {name}: raw driver {raw:.0} rows/s, lines {lines:.0} rows/s, which is {:.1} % ({:.1} to {:.1}; at least {:.0} asked), {pairs} pairs of {rows} rows",
        100.0 * share,
        range(0),
        range(pairs - 1),
        100.0 * SHARE_MIN,
    );
    Ok(share)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The program before one source `s`.
async fn mainstay(folder: &Path, source: &str) -> anyhow::Result<Running> {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\n{source}",
        folder.display().to_string(),
    );
    let options = LoadOptions {
        files: vec![Input::Text {
            name: "bench.toml".to_owned(),
            text,
        }],
        ..LoadOptions::default()
    };
    Ok(Server::start(options).await?)
}

/// Reads every line to a null sink. How long it took.
async fn lines(address: SocketAddr, sql: &str, rows: u64) -> anyhow::Result<Duration> {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await?;
    let body = serde_json::json!({"sql": sql}).to_string();
    let request = format!(
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\naccept: application/x-ndjson\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = vec![0; 256 << 10];
    let mut last = Vec::new();
    loop {
        let count = stream.read(&mut buffer).await?;
        if count == 0 {
            break;
        }
        last.extend_from_slice(&buffer[count.saturating_sub(1024)..count]);
        let cut = last.len().saturating_sub(1024);
        last.drain(..cut);
    }
    let taken = began.elapsed();
    let end = String::from_utf8_lossy(&last);
    let is_whole = end.contains(&format!("{{\"done\":{{\"rows\":{rows},"));
    anyhow::ensure!(is_whole, "the lines are not whole: {end}");
    Ok(taken)
}

/// The same on the runtime.
fn lines_on(
    runtime: &Runtime,
    running: &Running,
    sql: &str,
    rows: u64,
) -> anyhow::Result<Duration> {
    runtime
        .block_on(lines(running.address(), sql, rows))
        .context("lines")
}
