//! A stream cut at every point, on either side of Mainstay: its reader can always tell, and the lease always
//! comes back.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use mainstay_engine::tasks::Tasks;
use mainstay_testkit::cases;
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};

use super::rig::{Rig, eventually, head, options};

/// Rows of several batches.
const ROWS: u64 = 3000;
const QUERY: &str = "SELECT g AS n, repeat('x', 200) AS pad FROM generate_series(1, 3000) g";
/// Far longer than any exchange here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nothing is cut.
const NEVER: i64 = i64::MAX;

/// A network that ends every connection once so many bytes have come down from the server.
struct Cutter {
    address: SocketAddr,
    left: Arc<AtomicI64>,
    passed: Arc<AtomicU64>,
    _tasks: Tasks,
}

impl Cutter {
    async fn start(upstream: SocketAddr) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cutter = Cutter {
            address: listener.local_addr().unwrap(),
            left: Arc::new(AtomicI64::new(NEVER)),
            passed: Arc::default(),
            _tasks: Tasks::new(),
        };
        let (left, passed, tasks) = (
            cutter.left.clone(),
            cutter.passed.clone(),
            cutter._tasks.clone(),
        );
        cutter._tasks.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (left, passed) = (left.clone(), passed.clone());
                tasks.spawn(async move {
                    if let Ok(server) = TcpStream::connect(upstream).await {
                        carry(client, server, &left, &passed).await;
                    }
                });
            }
        });
        cutter
    }

    /// From now on so many bytes pass.
    fn arm(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    fn passed(&self) -> u64 {
        self.passed.load(Ordering::SeqCst)
    }
}

async fn carry(mut client: TcpStream, mut server: TcpStream, left: &AtomicI64, passed: &AtomicU64) {
    let (mut from_client, mut to_client) = client.split();
    let (mut from_server, mut to_server) = server.split();
    let down = async {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_server.read(&mut buffer).await {
            let wanted = i64::try_from(count).unwrap();
            let had = left.fetch_sub(wanted, Ordering::SeqCst);
            let may_pass = usize::try_from(had.clamp(0, wanted)).unwrap();
            passed.fetch_add(may_pass as u64, Ordering::SeqCst);
            if to_client.write_all(&buffer[..may_pass]).await.is_err() || may_pass < count {
                return;
            }
        }
    };
    tokio::select! {
        () = down => {}
        _ = copy(&mut from_client, &mut to_server) => {}
    }
}

/// What a reader has of a stream.
struct Read {
    /// Nothing if there was no answer.
    status: Option<u16>,
    text: String,
    /// The body came to its end.
    is_whole: bool,
}

impl Read {
    /// The number of rows, if the last line says that these are all.
    fn done(&self) -> Option<u64> {
        let line = self.text.strip_suffix('\n')?.lines().next_back()?;
        let line: Value = serde_json::from_str(line).ok()?;
        line["done"]["rows"].as_u64()
    }

    /// Whether it is told that something is wrong: by a document, by the last line, or by its lack.
    fn tells(&self) -> bool {
        let last = self.text.trim_end().lines().next_back().unwrap_or_default();
        let last: Value = serde_json::from_str(last).unwrap_or_default();
        !self.is_whole || last["problem"]["code"].is_string() || last["code"].is_string()
    }

    /// Either all rows and a last line that says so, or something that says that it is not so.
    fn judge(&self, what: &str) {
        match self.done() {
            Some(rows) => {
                let lines = self.text.lines().count() as u64;
                assert_eq!((rows, lines), (ROWS, ROWS + 2), "{what}");
                assert_eq!(self.status, Some(200), "{what}");
            }
            None => {
                let end = self.text.len().saturating_sub(300);
                let end = self.text.get(end..).unwrap_or_default();
                assert!(self.tells(), "{what}: {:?} {end}", self.status);
            }
        }
    }
}

/// Asks for a stream and reads what there is of it.
async fn read(address: SocketAddr, sql: &str) -> Read {
    let mut read = Read {
        status: None,
        text: String::new(),
        is_whole: false,
    };
    // The connection is part of the reading: whoever stops reading leaves.
    let reading = async {
        let stream = TcpStream::connect(address).await.unwrap();
        let io = TokioIo::new(stream);
        let Ok((sender, connection)) = hyper::client::conn::http1::handshake(io).await else {
            return;
        };
        let _ = tokio::join!(take(sender, sql, &mut read), connection);
    };
    tokio::time::timeout(PATIENCE, reading)
        .await
        .expect("an end in time");
    read
}

async fn take(mut sender: SendRequest<Full<Bytes>>, sql: &str, read: &mut Read) {
    let request = Request::post("/v1/sources/s/query")
        .header("host", "localhost")
        .header("accept", "application/x-ndjson")
        .body(Full::<Bytes>::from(json!({"sql": sql}).to_string()))
        .unwrap();
    let Ok(response) = sender.send_request(request).await else {
        return;
    };
    read.status = Some(response.status().as_u16());
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    read.is_whole = loop {
        match body.frame().await {
            None => break true,
            Some(Err(_)) => break false,
            Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().unwrap()),
        }
    };
    read.text = String::from_utf8_lossy(&bytes).into_owned();
}

/// A real server behind a network that can be cut.
struct Place {
    server: PostgresServer,
    network: Cutter,
    rig: Rig,
}

impl Place {
    async fn start() -> Place {
        let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
        let upstream = SocketAddr::from(([127, 0, 0, 1], server.port()));
        let network = Cutter::start(upstream).await;
        let folder = Arc::new(tempfile::tempdir().unwrap());
        // No circuit: it would answer in the place of the cut server.
        let text = format!(
            "{}stream_idle = \"8s\"\n[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"postgres\"\n\
             user = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\n[sources.s.policy.circuit]\nmode = \"off\"\n\
             [sources.s.policy.health]\ninterval = \"200ms\"\n[sources.s.policy.retry]\nattempts_max = 1\ndeadline = \"10s\"\n",
            head(folder.path()),
            network.address.port(),
        );
        let rig = Rig::from_options(folder, options(text)).await.unwrap();
        let place = Place {
            server,
            network,
            rig,
        };
        place.works().await;
        place
    }

    /// The server is known as primary, and nothing is held.
    async fn works(&self) {
        eventually("all is given back, and the server is there", async || {
            let source = self.rig.client.get("/v1/sources/s").await.good();
            let metrics = self.rig.client.get("/v1/sources/s/metrics").await.good();
            let endpoint = &metrics["endpoints"][0];
            source["primary"] == "a"
                && source["members"][0]["health"] == "up"
                && endpoint["pool"]["active"] == 0
                && endpoint["in_flight"] == 0
        })
        .await;
    }

    async fn is_idle(&self) {
        eventually("the server has stopped", async || {
            let running = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() \
                           AND query LIKE '%generate_series%'";
            self.server.value(running).await.is_ok_and(|count| count == "0")
        })
        .await;
    }
}

/// Points of a stream of so many bytes: its begin and its end closely, the rest at random.
fn points(total: i64, rng: &mut fastrand::Rng) -> Vec<i64> {
    let step = i64::try_from(cases(23, 1)).unwrap();
    let begin = (0..600).step_by(usize::try_from(step).unwrap());
    let end = (0..600)
        .step_by(usize::try_from(step).unwrap())
        .map(|back| total - back);
    let middle = (0..cases(20, 400)).map(|_| rng.i64(600..total - 600));
    begin.chain(end).chain(middle).collect()
}

#[tokio::test]
async fn a_network_cut_at_any_byte_from_the_database_is_told() {
    let place = Place::start().await;
    let address = place.rig.client.address();
    let before = place.network.passed();
    let whole = read(address, QUERY).await;
    assert_eq!(whole.done(), Some(ROWS), "{:?}", whole.status);
    let total = i64::try_from(place.network.passed() - before).unwrap();
    assert!(total > 600_000, "{total}");
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut whole, mut cut) = (0, 0);
    for point in points(total, &mut rng) {
        place.network.arm(point);
        let read = read(address, QUERY).await;
        read.judge(&format!("cut after {point} of {total} bytes"));
        match read.done() {
            Some(_) => whole += 1,
            None => cut += 1,
        }
        place.network.arm(NEVER);
        place.works().await;
    }
    // The checks of health take a part of what passes, so that some cuts come behind the end.
    assert!(cut > whole, "{cut} were cut, {whole} were not");
    place.is_idle().await;
    place.rig.end().await;
}

#[tokio::test]
async fn a_network_cut_at_any_byte_to_the_client_is_seen_by_it_and_gives_the_lease_back() {
    let place = Place::start().await;
    let client = Cutter::start(place.rig.client.address()).await;
    let whole = read(client.address, QUERY).await;
    assert_eq!(whole.done(), Some(ROWS));
    let total = i64::try_from(client.passed()).unwrap();
    let mut rng = fastrand::Rng::with_seed(8);
    for point in points(total, &mut rng) {
        client.arm(point);
        let read = read(client.address, QUERY).await;
        read.judge(&format!("cut after {point} of {total} bytes"));
        // Its length varies by some digits of the time that it took.
        assert!(!read.is_whole || point > total - 32, "{point} of {total}");
        place.works().await;
    }
    place.is_idle().await;
    place.rig.end().await;
}

/// Statements that stand still before their first row, between rows and behind the last one.
const PHASES: [(&str, &str); 3] = [
    (
        "before the first row",
        "SELECT g FROM generate_series(1, 3) g, pg_sleep(600)",
    ),
    (
        "between rows",
        "SELECT g FROM generate_series(1, 20000) g UNION ALL SELECT 1 FROM pg_sleep(600) UNION ALL SELECT 2",
    ),
    (
        "behind the last row",
        "SELECT g FROM generate_series(1, 20000) g UNION ALL SELECT 1 FROM pg_sleep(600) s WHERE s::text = 'x'",
    ),
];

#[tokio::test]
async fn a_statement_cancelled_ended_or_left_in_any_phase_is_told_and_gives_the_lease_back() {
    let place = Place::start().await;
    let address = place.rig.client.address();
    let stop = |how: &str| {
        format!(
            "SELECT {how}(pid) FROM pg_stat_activity WHERE query LIKE '%generate_series%' AND wait_event = 'PgSleep'"
        )
    };
    let sleeps = async || {
        eventually("it stands still", async || {
            let sleeping = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%' \
                            AND wait_event = 'PgSleep'";
            place.server.value(sleeping).await.is_ok_and(|count| count == "1")
        })
        .await;
    };
    for (phase, sql) in PHASES {
        for how in [
            "pg_cancel_backend",
            "pg_terminate_backend",
            "cut",
            "leave",
            "kill",
        ] {
            let acting = async {
                sleeps().await;
                match how {
                    "cut" => place.network.arm(0),
                    "kill" => place.server.kill9().await.unwrap(),
                    "leave" => {}
                    how => drop(place.server.sql(&stop(how)).await.unwrap()),
                }
                if how == "cut" {
                    // The next byte that comes is one too many.
                    place.server.sql(&stop("pg_cancel_backend")).await.unwrap();
                }
            };
            let what = format!("{how} {phase}");
            if how == "leave" {
                tokio::select! {
                    read = read(address, sql) => panic!("{what}: it ended by itself: {}", read.text),
                    () = acting => {}
                }
            } else {
                let (read, ()) = tokio::join!(read(address, sql), acting);
                assert_eq!(read.done(), None, "{what}");
                assert!(read.tells(), "{what}: {:?} {}", read.status, read.text);
            }
            place.network.arm(NEVER);
            if how == "kill" {
                place.server.start_again().await.unwrap();
            }
            place.works().await;
            place.is_idle().await;
        }
    }
    place.rig.end().await;
}
