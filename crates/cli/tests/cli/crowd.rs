//! Crowds of clients that ask for nothing or very slowly, in another process than the server: a query is
//! answered all the same.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::program::{Place, Server};

const IDLE: u64 = 10_000;
/// Heads, and as many bodies, that come byte by byte.
const SLOW: usize = 300;
const QUERIES: usize = 60;
/// What the test needs beside the crowd.
const RESERVE: u64 = 1500;
/// Half of the queries are answered before each slow client has sent more bytes than this. Time itself says
/// nothing on a machine that others use as well; it slows the crowd down just as much.
const ROUNDS_MAX: u64 = 2;
/// A query that is not answered by then never is.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many idle connections as the system allows this process, at most [`IDLE`].
fn idle_wanted() -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let count = IDLE.min(hard.saturating_sub(RESERVE));
    assert!(
        count >= 500,
        "{hard} file descriptors are too few to say anything"
    );
    eprintln!("{count} idle connections of {IDLE}: the limit of file descriptors is {hard}");
    usize::try_from(count).unwrap()
}

#[allow(
    clippy::disallowed_methods,
    reason = "there is no runtime here to block"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// How far the slow clients are.
#[derive(Default)]
struct Drip {
    over: AtomicBool,
    /// Bytes that each of them has sent.
    rounds: AtomicU64,
}

/// Clients whose heads and bodies come byte by byte, until told to end. How many were cut.
fn drip(address: SocketAddr, state: &Drip) -> usize {
    let body =
        "POST /v1/sources/demo/query HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n";
    let mut all: Vec<Option<TcpStream>> = Vec::new();
    let mut cut = 0;
    let begin = |number: usize| {
        let mut stream = TcpStream::connect(address).ok()?;
        let begun = if number < SLOW {
            "GET /healthz HTTP/1.1\r\nx: "
        } else {
            body
        };
        stream.write_all(begun.as_bytes()).ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(stream)
    };
    all.extend((0..2 * SLOW).map(begin));
    while !state.over.load(Ordering::Relaxed) {
        pause(Duration::from_millis(100));
        state.rounds.fetch_add(1, Ordering::Relaxed);
        for (number, slot) in all.iter_mut().enumerate() {
            let goes_on = slot.as_mut().is_some_and(|stream| {
                let is_open = match stream.read(&mut [0; 512]) {
                    Ok(count) => count > 0,
                    Err(error) => error.kind() == ErrorKind::WouldBlock,
                };
                is_open && stream.write_all(b"x").is_ok()
            });
            if !goes_on {
                // A client of this kind comes back at once.
                cut += 1;
                *slot = begin(number);
            }
        }
    }
    cut
}

/// How long queries took.
struct Took {
    median: Duration,
    slowest: Duration,
    /// Bytes that each slow client sent meanwhile.
    median_rounds: u64,
}

/// One query on a connection of its own.
fn query(address: SocketAddr) {
    let mut stream = connect(address);
    let body = r#"{"sql": "SELECT count(*) FROM customers"}"#;
    let request = format!(
        "POST /v1/sources/demo/query HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
}

/// Each of them is answered.
fn queries(address: SocketAddr, state: &Drip) -> Took {
    let (mut times, mut rounds) = (Vec::new(), Vec::new());
    for _ in 0..QUERIES {
        pause(Duration::from_millis(30));
        let (begun, before) = (Instant::now(), state.rounds.load(Ordering::Relaxed));
        query(address);
        times.push(begun.elapsed());
        rounds.push(state.rounds.load(Ordering::Relaxed) - before);
    }
    times.sort();
    rounds.sort_unstable();
    Took {
        median: times[QUERIES / 2],
        slowest: times[QUERIES - 1],
        median_rounds: rounds[QUERIES / 2],
    }
}

/// What a process holds in memory, in KiB.
fn memory(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn crowd(connections_max: u32, are_kept: bool) {
    let wanted = idle_wanted();
    let place = Place::new();
    let text = format!(
        "[server]\nconnections_max = {connections_max}\nheader_timeout = \"1s\"\nrequest_timeout = \"2s\"\n\
         [sources.demo]\ndriver = \"sqlite\"\npath = \"mainstay-data/demo.db\"\n\
         [sources.demo.endpoints.a]\n"
    );
    place.write("crowd.toml", &text);
    // Makes the sample.
    drop(place.serve(&[]));
    let mut server = place.serve(&["--config", "crowd.toml"]);
    let address: SocketAddr = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let state = Arc::new(Drip::default());
    let usual = queries(address, &state).median;
    let before = memory(&server);
    let idle: Vec<TcpStream> = (0..wanted).map(|_| connect(address)).collect();
    let dripping = std::thread::spawn({
        let state = Arc::clone(&state);
        move || drip(address, &state)
    });
    pause(Duration::from_millis(500));
    let took = queries(address, &state);
    let (median, slowest) = (took.median, took.slowest);
    let each = (memory(&server) - before) * 1024 / u64::from(connections_max).min(wanted as u64);
    eprintln!(
        "{connections_max} places: a query took {usual:?} alone, {median:?} in the crowd, at most {slowest:?}; \
         {each} bytes a connection"
    );
    let rounds = took.median_rounds;
    assert!(rounds <= ROUNDS_MAX, "{rounds} bytes of each slow client");
    state.over.store(true, Ordering::Relaxed);
    let cut = dripping.join().unwrap();
    assert!(cut >= SLOW, "only {cut} slow clients were cut");
    let kept = idle.iter().filter(|stream| {
        stream.set_nonblocking(true).unwrap();
        let read = (&mut &**stream).read(&mut [0; 8]);
        read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    });
    let kept = kept.count();
    assert_eq!(kept == wanted, are_kept, "{kept} of {wanted} are open");
    drop(idle);
    server.signal(Signal::SIGTERM);
    server.hear("nothing was left");
}

#[test]
fn ten_thousand_idle_connections_and_slow_clients_starve_no_query() {
    // With a place for each, and with a tenth of the places; one crowd at a time, for want of descriptors.
    crowd(12_000, true);
    crowd(1024, false);
}
