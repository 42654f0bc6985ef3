//! What the HTTP surface adds to a point read by key: a bare axum handler that does the same query by
//! the raw driver, and Mainstay, in interleaved rounds of one run. `cargo bench` measures and prints the
//! ratio; `cargo test --benches` runs a few rounds.

#![allow(clippy::unwrap_used, reason = "a bench that cannot run must stop")]

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use mainstay_config::{Input, LoadOptions};
use mainstay_engine::tasks::Tasks;
use mainstay_server::Server;
use mainstay_sql::{Access, AnswerMax, Connection, Driver, value};
use mainstay_sqlite::{SqliteDriver, SqliteSettings, create_sample};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Duration, Instant};

const TEXT: &str = "SELECT id, name, city FROM customers WHERE id = ?1";
/// Clients at once, each on a connection of its own.
const CLIENTS: usize = 4;

/// Connections that nobody uses at the moment.
type Idle = Arc<Mutex<Vec<Box<dyn Connection>>>>;

#[derive(Deserialize)]
struct Body {
    sql: String,
    params: Vec<Value>,
}

async fn bare_query(State(idle): State<Idle>, Json(body): Json<Body>) -> Json<Value> {
    let params: Vec<_> = body
        .params
        .iter()
        .map(|json| value::from_json(json, None).unwrap())
        .collect();
    let mut connection = idle.lock().pop().unwrap();
    let answer = connection
        .run(&body.sql, &params, AnswerMax::default(), &|| ())
        .await
        .unwrap();
    idle.lock().push(connection);
    let columns: Vec<_> = answer
        .columns
        .iter()
        .map(|column| json!({"name": &*column.name, "type": column.column_type.to_string()}))
        .collect();
    let rows: Vec<Vec<Value>> = answer
        .rows
        .iter()
        .map(|row| row.iter().map(value::to_json).collect())
        .collect();
    Json(json!({"columns": columns, "rows": rows}))
}

async fn bare(path: &Path, tasks: &Tasks) -> SocketAddr {
    let driver = SqliteDriver::new(SqliteSettings::new(path)).unwrap();
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(driver.connect(Access::ReadOnly).await.unwrap());
    }
    let idle: Idle = Arc::new(Mutex::new(connections));
    let router = Router::new()
        .route("/v1/sources/s/query", post(bare_query))
        .with_state(idle);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tasks.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let service = hyper_util::service::TowerToHyperService::new(router.clone());
            let io = hyper_util::rt::TokioIo::new(stream);
            let connection =
                hyper::server::conn::http1::Builder::new().serve_connection(io, service);
            Tasks::new().spawn(async move {
                let _ = connection.await;
            });
        }
    });
    address
}

fn request(id: usize) -> Vec<u8> {
    let body = json!({"sql": TEXT, "params": [id]}).to_string();
    format!(
        "POST /v1/sources/s/query HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Sends a request and reads its whole answer.
async fn exchange(stream: &mut TcpStream, id: usize, buffer: &mut Vec<u8>) {
    stream.write_all(&request(id)).await.unwrap();
    buffer.clear();
    loop {
        assert!(
            stream.read_buf(buffer).await.unwrap() > 0,
            "the connection ended"
        );
        let text = String::from_utf8_lossy(buffer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.unwrap().parse::<usize>().unwrap() {
            assert!(
                head.starts_with("HTTP/1.1 200") && body.contains("\"rows\":[["),
                "{text}"
            );
            return;
        }
    }
}

/// One round of all clients; how long it took.
async fn round(streams: &mut [TcpStream], requests: usize) -> Duration {
    let began = Instant::now();
    let clients = streams.iter_mut().map(async |stream| {
        let mut buffer = Vec::with_capacity(4096);
        for id in 1..=requests {
            exchange(stream, 1 + id % 200, &mut buffer).await;
        }
    });
    futures_util::future::join_all(clients).await;
    began.elapsed()
}

async fn connect(address: SocketAddr) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..CLIENTS {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        streams.push(stream);
    }
    streams
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

async fn compare(rounds: usize, requests: usize) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sample.db");
    create_sample(&path).unwrap();
    let text = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\ndata_dir = {:?}\n[sources.s]\ndriver = \"sqlite\"\npath = {:?}\n[sources.s.endpoints.a]\n",
        folder.path().join("data").display().to_string(),
        path.display().to_string(),
    );
    let files = vec![Input::Text {
        name: "bench.toml".to_owned(),
        text,
    }];
    let running = Server::start(LoadOptions {
        files,
        ..LoadOptions::default()
    })
    .await
    .unwrap();
    let tasks = Tasks::new();
    let mut bare = connect(bare(&path, &tasks).await).await;
    let mut mainstay = connect(running.address()).await;
    for streams in [&mut bare, &mut mainstay] {
        round(streams, requests).await;
    }
    let (mut of_bare, mut of_mainstay, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let a = round(&mut bare, requests).await.as_secs_f64();
        let b = round(&mut mainstay, requests).await.as_secs_f64();
        of_bare.push(a);
        of_mainstay.push(b);
        ratios.push(a / b);
    }
    let rate = |times| (CLIENTS * requests) as f64 / median(times);
    println!(
        "point reads per second over HTTP: bare {:.0}, mainstay {:.0}; mainstay reaches {:.1} % (median of {rounds} pairs)",
        rate(of_bare),
        rate(of_mainstay),
        100.0 * median(ratios),
    );
    drop((bare, mainstay));
    running.shutdown(Duration::from_secs(5)).await;
}

fn main() {
    let measures = std::env::args().any(|argument| argument == "--bench");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let (rounds, requests) = if measures { (40, 500) } else { (2, 20) };
    runtime.block_on(compare(rounds, requests));
}
