//! Arguments in a store of objects, over tries and targets.

use std::process::Command;

use mainstay_testkit::python::{PythonEnvironment, PythonProgram};
use mainstay_testkit::s3::S3Server;
use serde_json::{Value, json};

use super::world::{Kind, PRIMARY, STANDBY, World, is_call, target, told};

const LENGTH: usize = 1 << 20;

fn settings(store: &S3Server) -> String {
    format!(
        "[services.compute.timeouts]\nack_timeout = \"3s\"\nheartbeat_interval = \"500ms\"\n\
         [services.compute.retry]\ncount = 1\ndelay = \"50ms\"\n\
         [services.compute.object_stores.main]\nurl = \"http://127.0.0.1:{}\"\n\
         user = \"mainstay\"\npassword = \"mainstay\"\n",
        store.port()
    )
}

/// A text of that length that does not repeat itself.
fn text(mut seed: u64) -> String {
    let letters = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        char::from(b'a' + u8::try_from((seed >> 33) % 26).unwrap())
    });
    letters.take(LENGTH).collect()
}

/// Objects of the store as its log tells: who put, read and removed which.
struct Ledger(Vec<(String, String)>);

impl Ledger {
    fn read(store: &S3Server) -> Self {
        let requests = store.requests().unwrap().into_iter().filter_map(|request| {
            let (verb, path) = request.split_once(' ')?;
            let path = path.split('?').next()?.trim_end_matches('/');
            let is_object = path.matches('/').count() == 2;
            is_object.then(|| (verb.to_owned(), path.to_owned()))
        });
        Ledger(requests.collect())
    }

    fn objects(&self, verb: &str) -> Vec<&str> {
        let fitting = self.0.iter().filter(|(it, _)| it == verb);
        fitting.map(|(_, path)| path.as_str()).collect()
    }
}

/// What a bucket holds now.
fn content(store: &S3Server, bucket: &str) -> Vec<String> {
    let url = format!("http://127.0.0.1:{}{bucket}?list-type=2", store.port());
    let output = Command::new("curl").args(["-sS", &url]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ListBucketResult"), "{text}");
    let keys = text.split("<Key>").skip(1);
    keys.map(|it| it.split('<').next().unwrap().to_owned())
        .collect()
}

/// Asks with an argument in the store; the worker's answer holds all of it.
async fn ask(client: &PythonProgram, number: usize) {
    let text = text(number as u64);
    let request = json!({"operation": "Compute.greet", "payload": text, "data_handler": "MINIO"});
    // The pipe to a program holds less than this.
    let (line, client) = (request.to_string(), &client);
    tokio::task::block_in_place(|| client.say(&line).unwrap());
    let replies = told(client, number, |it| it["event"] == "reply").await;
    let reply = &replies[number - 1];
    assert_eq!(reply["has_error"], false, "{:.300}", reply["payload"]);
    assert!(reply["payload"] == format!("hello {text}"), "another text");
}

async fn comes_whole_each_time(kind: Kind) {
    let mut world = World::new(kind).await;
    let environment = PythonEnvironment::find().await.unwrap();
    let store = S3Server::start(&environment).await.unwrap();
    world.programs = world.programs.clone().store(store.port());
    let (primary, standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
    let server = world.serve(&world.configuration(&settings(&store))).await;
    let client = world.client().await;
    let is_back = |it: &Value| target(it, "primary")["aside"] == false;
    let greets = |worker: &PythonProgram| {
        let calls = worker.events().unwrap();
        calls.iter().filter(|it| is_call(it, "greet")).count()
    };

    ask(&client, 1).await;
    assert_eq!((greets(&primary), greets(&standby)), (1, 0));
    world.inject("primary", "error");
    ask(&client, 2).await;
    assert_eq!((greets(&primary), greets(&standby)), (3, 1));
    world.inject("primary", "none");
    world.until(&server, "taken back", is_back).await;
    world.inject("primary", "hang");
    ask(&client, 3).await;
    assert_eq!(greets(&standby), 2);
    world.inject("primary", "none");
    world.until(&server, "taken back", is_back).await;
    // Killed with the argument in its hands.
    let before = greets(&primary);
    world.inject("primary", "hang");
    let (_, ()) = tokio::join!(ask(&client, 4), async {
        told(&primary, before + 1, |it| is_call(it, "greet")).await;
        primary.kill9().await.unwrap();
    });
    assert_eq!(greets(&standby), 3);

    let ledger = Ledger::read(&store);
    let put = ledger.objects("PUT");
    let bucket = |path: &str| path[..path[1..].find('/').unwrap() + 1].to_owned();
    let of_proxy = put
        .iter()
        .map(|path| bucket(path))
        .find(|it| it.starts_with("/comput-"));
    let of_proxy = of_proxy.unwrap_or_else(|| panic!("no copies: {put:?}"));
    let (copies, originals): (Vec<_>, Vec<_>) = put
        .iter()
        .copied()
        .partition(|path| bucket(path) == of_proxy);
    assert_eq!(originals.len(), 4, "{originals:?}");
    for original in &originals {
        let reads = ledger
            .objects("GET")
            .iter()
            .filter(|it| **it == *original)
            .count();
        assert_eq!(reads, 1, "{original}");
        assert_eq!(content(&store, &bucket(original)), Vec::<String>::new());
    }
    println!(
        "{kind:?}: 4 arguments of {LENGTH} bytes, {} copies",
        copies.len()
    );
    assert!(copies.len() >= 8, "{copies:?}");
    let end = tokio::time::Instant::now() + super::world::WITHIN;
    while !content(&store, &of_proxy).is_empty() {
        assert!(
            tokio::time::Instant::now() < end,
            "{:?}",
            content(&store, &of_proxy)
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_in_a_store_comes_whole_over_tries_and_targets_on_mqtt() {
    comes_whole_each_time(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argument_in_a_store_comes_whole_over_tries_and_targets_on_amqp() {
    comes_whole_each_time(Kind::Amqp).await;
}
