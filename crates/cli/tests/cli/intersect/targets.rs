//! Targets that come and go while requests run: by routes, by the file, and by announcing themselves; and the end of the
//! program.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_testkit::python::PythonProgram;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::interval;

use super::api::{Api, counted};
use super::peers::{Client, Work, Worker};
use super::world::{Kind, PRIMARY, STANDBY, START, WITHIN, World};
use crate::program::Server;

const EXTRA: &str = "org.fac.sys.sub.extra";
const SETTINGS: &str = "strategy = \"weighted\"\n[services.compute.timeouts]\nheartbeat_interval = \"1s\"\n\
                        [services.compute.operations.add]\nsafety = \"idempotent_write\"\n";

/// Requests without a pause until told to stop. Gives their ids.
async fn load(client: &Client, go_on: &AtomicBool) -> HashSet<String> {
    let mut sent = HashSet::new();
    let mut pace = interval(Duration::from_millis(5));
    while go_on.load(Ordering::Acquire) {
        pace.tick().await;
        sent.insert(client.send_kept("add", &json!({"a": 1, "b": 2})).await);
    }
    sent
}

/// How many replies a worker has given.
fn served(client: &Client, worker: &str) -> usize {
    let ledger = client.ledger.lock().unwrap();
    ledger.all().filter(|it| it.text.contains(worker)).count()
}

/// Waits until a worker has given some more replies.
async fn serves(client: &Client, worker: &str) {
    const MORE: usize = 20;
    let before = served(client, worker);
    let more = |ledger: &super::peers::Ledger| {
        let now = ledger.all().filter(|it| it.text.contains(worker)).count();
        (now >= before + MORE).then_some(())
    };
    client.until(worker, WITHIN, more).await;
}

fn target<'a>(service: &'a Value, name: &str) -> &'a Value {
    let targets = service["targets"].as_array().unwrap();
    targets
        .iter()
        .find(|it| it["name"] == name)
        .unwrap_or(&Value::Null)
}

async fn done(api: &Api, method: &str, path: &str, body: Value) -> Value {
    let path = format!("/v1/services/compute/targets{path}");
    let (status, answer) = api.call(method, &path, &body).await;
    assert!(status < 300, "{method} {path}: {status} {answer}");
    answer
}

/// Each change, and that work follows it.
async fn change(api: &Api, client: &Client) {
    serves(client, PRIMARY).await;
    serves(client, STANDBY).await;
    let map = json!({"add": "Compute.add"});
    let extra =
        json!({"name": "extra", "group": "primary", "destination": EXTRA, "operation_map": map});
    done(api, "POST", "", extra).await;
    serves(client, EXTRA).await;
    done(api, "POST", "/primary/drain", Value::Null).await;
    let is_idle = |service: &Value| target(service, "primary")["requests_open"] == 0;
    api.until("a drained target is idle", WITHIN, is_idle).await;
    // What had been answered before may still be on its way; then nothing comes.
    serves(client, EXTRA).await;
    let before = served(client, PRIMARY);
    serves(client, STANDBY).await;
    serves(client, EXTRA).await;
    assert_eq!(served(client, PRIMARY), before, "work of a drained target");
    done(api, "POST", "/primary/undrain", Value::Null).await;
    serves(client, PRIMARY).await;
    let heavier = done(api, "PATCH", "/primary", json!({"weight": 3})).await;
    assert_eq!(heavier["weight"], 3.0, "{heavier}");
    let removed = done(api, "DELETE", "/standby", Value::Null).await;
    assert!(removed["note"].is_string(), "{removed}");
    serves(client, PRIMARY).await;
    serves(client, EXTRA).await;
}

async fn targets_come_and_go(kind: Kind) {
    let world = World::new(kind).await;
    let mut workers = Vec::new();
    for name in [PRIMARY, STANDBY, EXTRA] {
        workers.push(Worker::start(&world.broker, name, Work::default()).await);
    }
    let configuration = world.configuration(SETTINGS);
    let server = world.serve(&configuration).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    let go_on = AtomicBool::new(true);
    let changes = async {
        change(&api, &client).await;
        go_on.store(false, Ordering::Release);
    };
    let (sent, ()) = tokio::join!(load(&client, &go_on), changes);
    let all = |ledger: &super::peers::Ledger| (ledger.replies.len() == sent.len()).then_some(());
    client.until("a reply to every request", WITHIN, all).await;
    {
        let ledger = client.ledger.lock().unwrap();
        assert_eq!(ledger.twice(), (0, 0));
        let error = ledger.all().find(|it| it.has_error);
        assert!(error.is_none(), "{error:?}");
    }
    let service = api.settled(WITHIN).await;
    assert_eq!(counted(&service, "requests"), counted(&service, "replies"));
    println!("{kind:?}: {} requests, none lost, none twice", sent.len());
    server.signal(Signal::SIGTERM);
    let (code, complaints) = server.wait();
    assert_eq!(code, Some(0), "{complaints}");
    let server = world.serve(&configuration).await;
    reloads(&world, &server, &client).await;
}

/// What was added by a route is there after a restart; what stands in the file follows it.
async fn reloads(world: &World, server: &Server, client: &Client) {
    let api = Api::new(server);
    let service = api.service().await;
    assert_eq!(
        target(&service, "extra")["destination"],
        EXTRA,
        "{service:#}"
    );
    assert_eq!(
        target(&service, "standby")["destination"],
        STANDBY,
        "{service:#}"
    );
    assert_eq!(target(&service, "primary")["weight"], 3.0, "{service:#}");
    let another = world
        .configuration(SETTINGS)
        .replace("targets.standby]", "targets.fourth]")
        .replace("org.fac.sys.sub.standby", "org.fac.sys.sub.fourth");
    world.place.write("mainstay.toml", &another);
    let _fourth = Worker::start(&world.broker, "org.fac.sys.sub.fourth", Work::default()).await;
    let (status, answer) = api.call("POST", "/v1/admin/reload", &json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let service = api.service().await;
    assert!(target(&service, "standby").is_null(), "{service:#}");
    let heard = async {
        let before = served(client, "sub.fourth");
        while served(client, "sub.fourth") == before {
            let id = client.send_kept("add", &json!({"a": 1, "b": 2})).await;
            let reply = client.reply(&id).await;
            assert!(!reply.has_error, "{reply:?}");
        }
    };
    tokio::time::timeout(WITHIN, heard).await.unwrap();
}

const JOB_SETTINGS: &str = "[services.compute.operations.run_compute_job]\nsafety = \"idempotent_write\"\nkind = \"job\"\n\
                            job_key = \"/job_id\"\nlast_result = '/status == \"done\"'\n";

async fn an_end_answers_and_jobs_go_on(kind: Kind) {
    const REQUESTS: usize = 50;
    const JOBS: usize = 20;
    let world = World::new(kind).await;
    let work = Work {
        results: 3,
        step: Duration::from_millis(1500),
    };
    let _worker = Worker::start(&world.broker, PRIMARY, work).await;
    let configuration = world.configuration(JOB_SETTINGS);
    let server = world.serve(&configuration).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    for number in 0..JOBS {
        let body = json!({"job_id": format!("job-{number}")});
        client.send_kept("run_compute_job", &body).await;
    }
    let is_open = |service: &Value| service["jobs_open"] == JOBS;
    api.until("open jobs", WITHIN, is_open).await;
    for _ in 0..REQUESTS {
        client.send_kept("sleep", &json!(1.5)).await;
    }
    let is_open = |service: &Value| service["requests_open"] == REQUESTS;
    api.until("open requests", WITHIN, is_open).await;
    server.signal(Signal::SIGTERM);
    let (code, complaints) = server.wait();
    assert_eq!(code, Some(0), "{complaints}");
    let all =
        |ledger: &super::peers::Ledger| (ledger.replies.len() == JOBS + REQUESTS).then_some(());
    client.until("a reply to every request", WITHIN, all).await;
    let ended = client.ledger.lock().unwrap().ends.len();
    let server = world.serve(&configuration).await;
    let all = |ledger: &super::peers::Ledger| (ledger.ends.len() == JOBS).then_some(());
    client.until("the end of every job", WITHIN, all).await;
    let service = Api::new(&server).settled(WITHIN).await;
    let ledger = client.ledger.lock().unwrap();
    println!(
        "{kind:?}: {REQUESTS} requests answered while it ended, {ended} of {JOBS} jobs had ended, the rest went on; {} \
         replies again",
        counted(&service, "replies_again")
    );
    assert_eq!(ledger.twice(), (0, 0));
    assert!(ledger.all().all(|it| !it.has_error), "{ledger:?}");
    let failed = ledger.ends.values().any(|it| it.contains(&"job_failed"));
    assert!(!failed, "{ledger:?}");
}

/// The program with no target but those that announce themselves.
fn discovering(world: &World) -> String {
    format!(
        "[services.compute]\nidentity = \"{}\"\ncapability_name = \"Compute\"\nstrategy_group_order = [\"found\"]\n\
         {}[services.compute.operations.add]\nsafety = \"idempotent_write\"\n\
         [[services.compute.discover]]\npattern = \"org.fac.sys.sub.worker-*\"\ngroup = \"found\"\n",
        super::world::FRONT,
        world.broker.table()
    )
}

async fn workers_that_announce_themselves_are_taken_in(kind: Kind) {
    let world = World::new(kind).await;
    let server = world.serve(&discovering(&world)).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    let name = "org.fac.sys.sub.worker-1";
    let worker = world.worker(name).await;
    let _other: PythonProgram = world.worker("org.fac.sys.sub.helper").await;
    let is_there = |service: &Value| target(service, name)["discovered"] == true;
    let service = api
        .until("a target that announced itself", WITHIN, is_there)
        .await;
    assert_eq!(
        service["targets"].as_array().unwrap().len(),
        1,
        "{service:#}"
    );
    let id = client.send_kept("add", &json!({"a": 1, "b": 2})).await;
    assert_eq!(client.reply(&id).await.text, "3.0");
    // Nobody else could do it.
    world.inject("worker-1", "error");
    let id = client.send_kept("add", &json!({"a": 1, "b": 2})).await;
    assert!(client.reply(&id).await.has_error);
    world.inject("worker-1", "none");
    worker.terminate(WITHIN).await.unwrap();
    let is_drained = |service: &Value| target(service, name)["draining"] == true;
    api.until("a target that said goodbye is drained", WITHIN, is_drained)
        .await;
    worker.start_again().unwrap();
    worker.named("started", START).await.unwrap();
    let is_back = |service: &Value| target(service, name)["draining"] == false;
    api.until("one that announces itself again is back", WITHIN, is_back)
        .await;
    let id = client.send_kept("add", &json!({"a": 2, "b": 2})).await;
    assert_eq!(client.reply(&id).await.text, "4.0");
    assert_eq!(world.count(&server, "requests"), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_on_mqtt_come_and_go_and_no_request_is_lost() {
    targets_come_and_go(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn targets_on_amqp_come_and_go_and_no_request_is_lost() {
    targets_come_and_go(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_on_mqtt_answers_requests_and_the_next_start_goes_on_with_jobs() {
    an_end_answers_and_jobs_go_on(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_on_amqp_answers_requests_and_the_next_start_goes_on_with_jobs() {
    an_end_answers_and_jobs_go_on(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_the_sdk_on_mqtt_that_announce_themselves_are_taken_in() {
    workers_that_announce_themselves_are_taken_in(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_of_the_sdk_on_amqp_that_announce_themselves_are_taken_in() {
    workers_that_announce_themselves_are_taken_in(Kind::Amqp).await;
}
