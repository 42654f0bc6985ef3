//! Services of the SDK as callers: of plain operations, and of jobs whose results come as requests.

use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};

use super::world::{FRONT, Kind, PRIMARY, STANDBY, START, World, told};

const CALLER: &str = "org.fac.sys.sub.caller";
const PROXY: &str = "org.fac.sys.sub.compute-proxy";
const RESULTS: usize = 20;

const JOBS: &str = r#"
[services.compute.operations.run_compute_job]
safety = "idempotent_write"
kind = "job"
job_key = "/job_id"
last_result = '/status == "done"'
"#;

fn worker(world: &World, name: &str) -> PythonProgram {
    let worker = world.programs.worker(name);
    worker.arguments(["--report-to", PROXY]).start().unwrap()
}

/// What a caller hears of an operation: the error and the payload.
fn reply(replies: &[Value], operation: &str) -> (bool, Value) {
    let of = |it: &&Value| it["operation"] == format!("Compute.{operation}");
    let found: Vec<&Value> = replies.iter().filter(of).collect();
    assert_eq!(found.len(), 1, "{operation}: {found:?}");
    assert_eq!(found[0]["source"], FRONT);
    (found[0]["has_error"] == true, found[0]["payload"].clone())
}

async fn a_service_calls(kind: Kind) {
    let world = World::new(kind).await;
    let (primary, standby) = (worker(&world, PRIMARY), worker(&world, STANDBY));
    let server = world.serve(&world.configuration(JOBS)).await;
    let asked = json!([
        {"operation": "Compute.add", "payload": {"a": 1, "b": 2}},
        {"operation": "Compute.refuse", "payload": "because"},
        {"operation": "Compute.nothing", "payload": null},
        {"operation": "Compute.run_compute_job", "payload": {"job_id": "one", "total": RESULTS, "rate": 50}},
    ]);
    world.place.write("requests.json", &asked.to_string());
    let wire = world
        .programs
        .subscriber(&["org/fac/sys/sub/caller/request"]);
    let wire = wire.start().unwrap();
    for program in [&wire, &primary, &standby] {
        program.named("started", START).await.unwrap();
    }
    let requests = world.place.path().join("requests.json");
    let caller = world.programs.caller_service(CALLER, FRONT, &requests);
    let caller = caller
        .arguments(["--stay", "--seconds", "3600"])
        .start()
        .unwrap();

    let replies = told(&caller, 4, |it| it["event"] == "reply").await;
    assert_eq!(reply(&replies, "add"), (false, json!(3.0)));
    let (refused, text) = reply(&replies, "refuse");
    assert!(
        refused && text.as_str().unwrap().ends_with("because"),
        "{text}"
    );
    let (unknown, text) = reply(&replies, "nothing");
    assert!(
        unknown && text == "Tried to call non-existent operation Compute.nothing",
        "{text}"
    );
    let accepted = json!({"job_id": "one", "accepted": true});
    assert_eq!(reply(&replies, "run_compute_job"), (false, accepted));

    let results = told(&caller, RESULTS, |it| it["event"] == "result").await;
    let indices: Vec<_> = results
        .iter()
        .map(|it| it["index"].as_u64().unwrap())
        .collect();
    assert_eq!(indices, (0..RESULTS as u64).collect::<Vec<_>>());
    let reported = told(&primary, RESULTS, |it| it["event"] == "reported").await;
    for (index, reported) in reported.iter().enumerate() {
        assert_eq!(reported["source"], PROXY);
        assert_eq!(
            (&reported["has_error"], &reported["payload"]),
            (&json!(false), &json!(index))
        );
    }
    let sent = told(&wire, RESULTS, |it| it["event"] == "message").await;
    assert_eq!(sent.len(), RESULTS);
    for message in &sent {
        assert_eq!(message["headers"]["source"], FRONT);
        assert_eq!(message["headers"]["destination"], CALLER);
    }
    world
        .until(&server, "the job's end", |it| {
            it["counts"]["jobs_finished"] == 1
        })
        .await;
    let counts = ["requests", "replies", "requests_relayed", "results_late"];
    let counts = counts.map(|name| world.count(&server, name));
    assert_eq!(counts, [4, 4, RESULTS as u64, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_mqtt_calls_and_gets_results_as_requests_of_the_fronted_name() {
    a_service_calls(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_on_amqp_calls_and_gets_results_as_requests_of_the_fronted_name() {
    a_service_calls(Kind::Amqp).await;
}
