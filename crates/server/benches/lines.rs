//! An export of many rows as lines, beside the raw driver that reads the same rows and throws them away,
//! in interleaved rounds of one run, both from one private PostgreSQL server. `cargo bench` measures a
//! million rows and prints the ratio; `cargo test --benches` runs a small round.

#![allow(clippy::unwrap_used, reason = "a bench that cannot run must stop")]

use std::net::SocketAddr;
use std::pin::pin;

use futures_util::TryStreamExt;
use mainstay_config::{Input, LoadOptions};
use mainstay_engine::tasks::Tasks;
use mainstay_server::{Running, Server};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const TEXT: &str = "SELECT id, name, amount, at FROM export";

/// Reads every row with the raw driver. How long it took.
async fn raw(client: &Client, rows: u64) -> Duration {
    let began = Instant::now();
    let none: [&(dyn tokio_postgres::types::ToSql + Sync); 0] = [];
    let stream = client.query_raw(TEXT, none).await.unwrap();
    let mut stream = pin!(stream);
    let mut read = 0;
    while let Some(row) = stream.try_next().await.unwrap() {
        std::hint::black_box(&row);
        read += 1;
    }
    assert_eq!(read, rows);
    began.elapsed()
}

/// Reads every line to a null sink. How long it took.
async fn lines(address: SocketAddr, rows: u64, buffer: &mut [u8]) -> Duration {
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = json!({"sql": TEXT}).to_string();
    let request = format!(
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\naccept: application/x-ndjson\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut last = Vec::new();
    loop {
        let count = stream.read(buffer).await.unwrap();
        if count == 0 {
            break;
        }
        last.extend_from_slice(&buffer[count.saturating_sub(1024)..count]);
        let cut = last.len().saturating_sub(1024);
        last.drain(..cut);
    }
    let end = String::from_utf8_lossy(&last);
    assert!(
        end.contains(&format!("{{\"done\":{{\"rows\":{rows},")),
        "{end}"
    );
    began.elapsed()
}

async fn mainstay(folder: &std::path::Path, port: u16) -> Running {
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\n[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\n\
         port = {port}\ndatabase = \"postgres\"\nuser = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\nrole = \"primary\"\n",
        folder.display().to_string(),
    );
    let name = "bench.toml".to_owned();
    let options = LoadOptions {
        files: vec![Input::Text { name, text }],
        ..LoadOptions::default()
    };
    Server::start(options).await.unwrap()
}

async fn compare(rounds: usize, rows: u64) {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let table = format!(
        "CREATE TABLE export AS SELECT n AS id, 'name ' || n AS name, (n / 7.0)::float8 AS amount, \
         timestamptz '2026-01-01' + n * interval '1 s' AS at FROM generate_series(1, {rows}) AS n"
    );
    server.sql(&table).await.unwrap();
    server.sql("VACUUM ANALYZE export").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let running = mainstay(folder.path(), server.port()).await;
    let connected = tokio_postgres::connect(&server.url("postgres"), NoTls).await;
    let (client, connection) = connected.unwrap();
    let tasks = Tasks::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    let mut buffer = vec![0; 256 << 10];
    raw(&client, rows).await;
    lines(running.address(), rows, &mut buffer).await;
    let (mut of_raw, mut of_lines, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let a = raw(&client, rows).await.as_secs_f64();
        let b = lines(running.address(), rows, &mut buffer)
            .await
            .as_secs_f64();
        of_raw.push(a);
        of_lines.push(b);
        ratios.push(a / b);
    }
    println!(
        "rows per second: raw driver {:.0}, as lines {:.0}; lines reach {:.1} % (median of {rounds} pairs of {rows} rows)",
        rows as f64 / median(of_raw),
        rows as f64 / median(of_lines),
        100.0 * median(ratios),
    );
    drop(client);
    running.shutdown(Duration::from_secs(5)).await;
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (rounds, rows) = if measures {
        (7, 1_000_000)
    } else {
        (1, 20_000)
    };
    runtime.block_on(compare(rounds, rows));
}
