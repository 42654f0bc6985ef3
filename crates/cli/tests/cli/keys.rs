//! The same `Idempotency-Key` many times at once, over a killed program and over a killed database: one effect, one
//! answer.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper_util::rt::TokioIo;
use mainstay_engine::tasks::Tasks;
use mainstay_testkit::cases;
use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::program::{Place, Server};

const AT_ONCE: usize = 100;

/// The last kill: by then the first request has long had its effect.
const KILL_AFTER_MAX: Duration = Duration::from_millis(200);

/// By then a request has its answer, whatever was killed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is sent; the number tells requests apart.
fn insert(number: u64) -> Value {
    json!({"entity": "effects", "values": {"what": number}})
}

#[derive(Debug, Clone)]
struct Reply {
    status: u16,
    replayed: bool,
    body: Value,
}

#[derive(Clone)]
struct Client {
    address: String,
    tasks: Tasks,
}

impl Client {
    fn new(server: &Server) -> Self {
        let address = server.url.trim_start_matches("http://");
        Client {
            address: address.trim_end_matches('/').to_owned(),
            tasks: Tasks::new(),
        }
    }

    /// `None`: the program is gone.
    async fn post(&self, verb: &str, headers: &[(&str, &str)], body: &Value) -> Option<Reply> {
        let stream = TcpStream::connect(&self.address).await.ok()?;
        let io = TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(io).await.ok()?;
        self.tasks.spawn(async move {
            let _ = connection.await;
        });
        let mut request =
            Request::post(format!("/v1/sources/s/{verb}")).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = Full::new(Bytes::from(body.to_string()));
        let response = sender
            .send_request(request.body(body).unwrap())
            .await
            .ok()?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        let replayed = head.headers.get("idempotency-replayed");
        Some(Reply {
            status: head.status.as_u16(),
            replayed: replayed.is_some_and(|value| value == "true"),
            body: serde_json::from_slice(&body).unwrap(),
        })
    }

    async fn insert(&self, key: &str, number: u64) -> Option<Reply> {
        let headers = [("idempotency-key", key)];
        self.post("insert", &headers, &insert(number)).await
    }

    /// Sends it until it is answered well, as clients do.
    async fn insist(&self, key: &str, number: u64) -> Reply {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.insert(key, number).await {
                Some(reply) if reply.status == 200 => return reply,
                other => assert!(Instant::now() < end, "{key}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn count(&self, number: u64) -> i64 {
        let sql = format!("SELECT count(*) FROM effects WHERE what = {number}");
        let body = json!({"sql": sql, "options": {"read_from": "primary"}});
        let reply = self.post("scalar", &[], &body).await.unwrap();
        assert_eq!(reply.status, 200, "{reply:?}");
        reply.body["value"].as_i64().unwrap()
    }
}

/// A database with the program before it.
struct Story {
    place: Place,
    next: u64,
}

/// What the program is to use.
trait Back {
    const TABLE: &str;
    fn source(&self, place: &Place) -> String;
    /// Kills it and starts it again; `false`: it has no process of its own.
    async fn kill(&self) -> bool;
}

impl Back for PostgresServer {
    const TABLE: &str =
        "CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what bigint)";

    fn source(&self, _place: &Place) -> String {
        format!(
            "driver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"postgres\"\nuser = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\n",
            self.port()
        )
    }

    async fn kill(&self) -> bool {
        self.kill9().await.unwrap();
        self.start_again().await.unwrap();
        true
    }
}

impl Back for MariadbServer {
    const TABLE: &str = "CREATE TABLE effects (id bigint AUTO_INCREMENT PRIMARY KEY, what bigint)";

    fn source(&self, _place: &Place) -> String {
        format!(
            "driver = \"mysql\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"test\"\nuser = \"root\"\ntls = \"off\"\n[sources.s.endpoints.a]\n",
            self.port()
        )
    }

    async fn kill(&self) -> bool {
        self.kill9().await.unwrap();
        self.start_again().await.unwrap();
        true
    }
}

/// A file in the place of the program.
struct SqliteFile;

impl Back for SqliteFile {
    const TABLE: &str = "CREATE TABLE effects (id INTEGER PRIMARY KEY, what INTEGER)";

    fn source(&self, place: &Place) -> String {
        let path = place.path().join("s.db").display().to_string();
        format!(
            "driver = \"sqlite\"\npath = {path:?}\noptions = {{ create = \"true\" }}\n[sources.s.endpoints.a]\nrole = \"primary\"\n"
        )
    }

    async fn kill(&self) -> bool {
        false
    }
}

impl Story {
    fn new(back: &impl Back) -> Self {
        let place = Place::new();
        let text = format!(
            "[sources.s]\nidempotency_table = \"mainstay_keys\"\n{}[sources.s.policy.health]\ninterval = \"200ms\"\n",
            back.source(&place)
        );
        place.write("mainstay.toml", &text);
        Story { place, next: 0 }
    }

    async fn serve(&self) -> (Server, Client) {
        let server = self.place.serve(&["--config", "mainstay.toml"]);
        let client = Client::new(&server);
        (server, client)
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// Sends the same request many times at once; the replies that came.
async fn at_once(client: &Client, key: &str, number: u64) -> Vec<Reply> {
    let mut sending = JoinSet::new();
    for _ in 0..AT_ONCE {
        let (client, key) = (client.clone(), key.to_owned());
        sending.spawn(async move { client.insert(&key, number).await });
    }
    let ended = sending.join_all().await;
    ended.into_iter().flatten().collect()
}

/// All good replies are one answer.
fn one_answer(replies: &[Reply]) -> Option<Value> {
    let good = replies.iter().filter(|reply| reply.status == 200);
    let mut keys: Vec<&Value> = good.map(|reply| &reply.body["keys"]).collect();
    keys.dedup();
    assert!(keys.len() <= 1, "{keys:?}");
    keys.pop().cloned()
}

async fn tell<B: Back>(back: &B) {
    let mut story = Story::new(back);
    let (server, client) = story.serve().await;
    make_table::<B>(&client).await;

    let number = story.number();
    let replies = at_once(&client, "one", number).await;
    assert_eq!(replies.len(), AT_ONCE);
    let failed: Vec<_> = replies.iter().filter(|it| it.status != 200).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(one_answer(&replies).is_some());
    assert_eq!(replies.iter().filter(|it| !it.replayed).count(), 1);
    assert_eq!(client.count(number).await, 1);

    let other = story.number();
    let mismatch = client.insert("one", other).await.unwrap();
    assert_eq!(mismatch.status, 422, "{mismatch:?}");
    assert_eq!(mismatch.body["code"], "idempotency_mismatch");
    assert_eq!(mismatch.body["sent"], "no");
    assert_eq!(client.count(other).await, 0);
    assert_eq!(client.insert("ONE", other).await.unwrap().status, 200);

    drop(server);
    over_a_killed_program(&mut story).await;
    over_a_killed_database(&mut story, back).await;
}

async fn make_table<B: Back>(client: &Client) {
    let end = Instant::now() + PATIENCE;
    loop {
        let made = client.post("execute", &[], &json!({"sql": B::TABLE})).await;
        match made {
            Some(reply) if reply.status == 200 => return,
            other => assert!(Instant::now() < end, "{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The program is killed while it has the requests in hand; whoever had no answer sends it again.
async fn over_a_killed_program(story: &mut Story) {
    let (mut before, mut after) = (0, 0);
    let last_round = u32::try_from(cases(4, 40)).unwrap();
    for round in 0..=last_round {
        let (server, client) = story.serve().await;
        let (number, key) = (story.number(), format!("crash {round}"));
        client.insist("warm", 0).await;
        // Once before the first one is there, once when all are answered, else somewhere between.
        if round == 0 {
            server.signal(Signal::SIGKILL);
        }
        let kill = async {
            if 0 < round && round < last_round {
                tokio::time::sleep(KILL_AFTER_MAX * round / last_round).await;
                server.signal(Signal::SIGKILL);
            }
        };
        let (early, ()) = tokio::join!(at_once(&client, &key, number), kill);
        if round == last_round {
            server.signal(Signal::SIGKILL);
        }
        drop(server);
        let (server, client) = story.serve().await;
        let first = one_answer(&early);
        let last = client.insist(&key, number).await;
        before += usize::from(last.replayed);
        after += usize::from(!last.replayed);
        assert!(first.is_none() || last.replayed, "{early:?}");
        if let Some(first) = first {
            assert_eq!(first, last.body["keys"]);
        }
        let late = at_once(&client, &key, number).await;
        assert_eq!(one_answer(&late).as_ref(), Some(&last.body["keys"]));
        assert!(late.iter().all(|it| it.replayed || it.status != 200));
        assert_eq!(client.count(number).await, 1, "{key}");
        drop(server);
    }
    println!("{before} had their effect before the crash, {after} after it");
    assert!(before > 0 && after > 0);
}

async fn over_a_killed_database(story: &mut Story, back: &impl Back) {
    let (server, client) = story.serve().await;
    for round in 0..cases(2, 20) {
        let (number, key) = (story.number(), format!("kill {round}"));
        client.insist("warm", 0).await;
        let kill = async {
            tokio::time::sleep(Duration::from_millis(1 + 2 * round as u64)).await;
            back.kill().await
        };
        let (early, killed) = tokio::join!(at_once(&client, &key, number), kill);
        if !killed {
            break;
        }
        assert_eq!(early.len(), AT_ONCE, "each has an answer of some kind");
        let first = one_answer(&early);
        let last = client.insist(&key, number).await;
        if let Some(first) = first {
            assert_eq!(first, last.body["keys"]);
        }
        assert_eq!(client.count(number).await, 1, "{key}");
    }
    server.signal(Signal::SIGTERM);
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_has_one_effect_and_one_answer_on_postgresql() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    tell(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_has_one_effect_and_one_answer_on_mariadb() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    tell(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_key_has_one_effect_and_one_answer_on_sqlite() {
    tell(&SqliteFile).await;
}
