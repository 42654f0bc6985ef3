use std::time::Duration;

use mainstay_testkit::intersect::{BrokerLogin, IntersectPrograms};
use mainstay_testkit::mosquitto::{Mosquitto, MosquittoOptions, PASSWORD, USER};
use mainstay_testkit::python::{PythonEnvironment, PythonProgram};
use mainstay_testkit::rabbitmq::{RabbitmqOptions, RabbitmqServer};
use mainstay_testkit::s3::S3Server;
use serde_json::{Value, json};

/// The imports alone take half a minute on a machine that builds beside its tests.
const START: Duration = Duration::from_secs(180);
const WITHIN: Duration = Duration::from_secs(60);
const WORKER: &str = "org.fac.sys.sub.worker";

async fn on_mosquitto() -> (Mosquitto, IntersectPrograms) {
    let broker = Mosquitto::start(MosquittoOptions::new()).await.unwrap();
    let login = BrokerLogin::mqtt(broker.port(), USER, PASSWORD);
    (broker, programs(login).await)
}

async fn on_rabbitmq() -> (RabbitmqServer, IntersectPrograms) {
    let broker = RabbitmqServer::start(RabbitmqOptions::new()).await.unwrap();
    let login = BrokerLogin::amqp(broker.port(), "guest", "guest");
    (broker, programs(login).await)
}

async fn programs(login: BrokerLogin) -> IntersectPrograms {
    IntersectPrograms::new(PythonEnvironment::find().await.unwrap(), login)
}

async fn worker(programs: &IntersectPrograms) -> PythonProgram {
    let worker = programs.worker(WORKER).start().unwrap();
    worker.named("started", START).await.unwrap();
    worker
}

async fn client(programs: &IntersectPrograms, events: &[&str]) -> PythonProgram {
    let client = programs.client(WORKER, events).start().unwrap();
    client.named("started", START).await.unwrap();
    client
}

async fn ask(client: &PythonProgram, operation: &str, payload: Value) -> Value {
    let operation = format!("Compute.{operation}");
    let request = json!({"operation": operation, "payload": payload});
    client.say(&request.to_string()).unwrap();
    client
        .event(WITHIN, &operation, |it| {
            it["event"] == "reply" && it["operation"] == operation.as_str()
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn on_mqtt_a_client_is_answered_by_a_worker_that_comes_back_after_a_kill() {
    let (_broker, programs) = on_mosquitto().await;
    calls_and_a_kill(&programs).await;
}

#[tokio::test]
async fn on_amqp_a_client_is_answered_by_a_worker_that_comes_back_after_a_kill() {
    let (_broker, programs) = on_rabbitmq().await;
    calls_and_a_kill(&programs).await;
}

async fn calls_and_a_kill(programs: &IntersectPrograms) {
    let folder = tempfile::tempdir().unwrap();
    let counted = folder.path().join("counted");
    let worker = programs
        .worker(WORKER)
        .variable("MAINSTAY_COUNTER_FILE", &counted)
        .start()
        .unwrap();
    worker.named("started", START).await.unwrap();
    let client = client(programs, &["org.fac.sys.sub.worker:Compute:job_result"]).await;

    let reply = ask(&client, "add", json!({"a": 1, "b": 2})).await;
    assert_eq!(
        (&reply["source"], &reply["payload"]),
        (&json!(WORKER), &json!(3.0)),
        "{reply}"
    );
    let reply = ask(&client, "refuse", json!("because")).await;
    assert_eq!(
        reply["payload"],
        "Service domain logic threw explicit exception:\nbecause"
    );

    let reply = ask(
        &client,
        "run_compute_job",
        json!({"job_id": "one", "total": 4, "rate": 50}),
    )
    .await;
    assert_eq!(reply["payload"], json!({"job_id": "one", "accepted": true}));
    for index in 0..4 {
        let event = client.named("event", WITHIN).await.unwrap();
        assert_eq!(event["payload"]["index"], index, "{event}");
    }

    assert_eq!(ask(&client, "increment", json!("a")).await["payload"], 1);
    // On AMQP a call is acknowledged after its reply, before the next one comes. What is not acknowledged runs again.
    assert_eq!(ask(&client, "ready", Value::Null).await["payload"], true);
    worker.kill9().await.unwrap();
    worker.start_again().unwrap();
    worker.named("started", START).await.unwrap();
    assert_eq!(ask(&client, "increment", json!("b")).await["payload"], 1);
    let counted = std::fs::read_to_string(counted).unwrap();
    assert_eq!(counted, "a worker 1\nb worker 1\n");
}

#[tokio::test]
async fn on_mqtt_a_worker_fails_and_hangs_as_its_file_says() {
    let (_broker, programs) = on_mosquitto().await;
    faults(programs).await;
}

#[tokio::test]
async fn on_amqp_a_worker_fails_and_hangs_as_its_file_says() {
    let (_broker, programs) = on_rabbitmq().await;
    faults(programs).await;
}

async fn faults(programs: IntersectPrograms) {
    let faults = tempfile::tempdir().unwrap();
    let inject = |fault: &str| std::fs::write(faults.path().join("worker"), fault).unwrap();
    let programs = programs.faults(faults.path());
    let worker = worker(&programs).await;
    let client = client(&programs, &["org.fac.sys.sub.worker:Compute:job_result"]).await;

    inject("error");
    let reply = ask(&client, "ready", Value::Null).await;
    assert_eq!(reply["payload"], "Service domain logic threw exception.");

    inject("hang");
    client.say(r#"{"operation": "Compute.ready"}"#).unwrap();
    let fault = worker
        .event(WITHIN, "hang", |it| it["fault"] == "hang")
        .await
        .unwrap();
    assert_eq!(fault["operation"], "ready");
    inject("none");
    assert_eq!(
        client.named("reply", WITHIN).await.unwrap()["payload"],
        true
    );

    inject("stall 2");
    let job = json!({"job_id": "one", "total": 4, "rate": 50});
    assert_eq!(
        ask(&client, "run_compute_job", job).await["has_error"],
        false
    );
    worker
        .event(WITHIN, "stall", |it| it["fault"] == "stall")
        .await
        .unwrap();
    let results = |program: &PythonProgram| {
        let told = program.events().unwrap();
        told.iter().filter(|it| it["event"] == "result").count()
    };
    assert_eq!(results(&worker), 2);
    inject("none");
    client
        .event(WITHIN, "the last result", |it| {
            it["payload"]["status"] == "done"
        })
        .await
        .unwrap();
    assert_eq!(results(&worker), 4);
}

#[tokio::test]
async fn what_a_service_answers_is_the_same_on_both_brokers_and_each_time() {
    let environment = PythonEnvironment::find().await.unwrap();
    let store = S3Server::start(&environment).await.unwrap();
    let (_mosquitto, on_mqtt) = on_mosquitto().await;
    let (_rabbitmq, on_amqp) = on_rabbitmq().await;
    let on_mqtt = recorded(&on_mqtt.store(store.port()), 2).await;
    let on_amqp = recorded(&on_amqp.store(store.port()), 1).await;
    assert_eq!(on_mqtt[0], on_mqtt[1]);
    assert_eq!(on_mqtt[0], on_amqp[0]);

    let cases = on_mqtt[0]["cases"].as_array().unwrap();
    let replies = |name: &str| {
        let case = cases.iter().find(|case| case["case"] == name);
        let case = case.unwrap_or_else(|| panic!("no case {name}"));
        case["replies"].as_array().unwrap()
    };
    assert_eq!(replies("plain")[0]["body"]["text"], "3.5");
    assert_eq!(replies("not available")[0]["content_type"], "text/plain");
    assert_eq!(replies("argument in the store")[0]["body"]["text"], "5000");
    assert!(replies("without source").is_empty());
    assert!(cases.len() > 80, "{}", cases.len());
}

/// What a worker answers so many times, without the name of the broker's kind.
async fn recorded(programs: &IntersectPrograms, times: usize) -> Vec<Value> {
    let worker = programs.worker(WORKER).arguments(["--forbid", "guarded"]);
    let worker = worker.start().unwrap();
    worker.named("started", START).await.unwrap();
    let mut records = Vec::new();
    for _ in 0..times {
        let comparison = programs.comparison(WORKER).argument("--guarded");
        let comparison = comparison.start().unwrap();
        let code = comparison.ended(START).await.unwrap();
        let output = comparison.lines().unwrap().join("\n");
        assert_eq!(code, 0, "{output}");
        let mut record: Value = serde_json::from_str(&output).unwrap();
        record.as_object_mut().unwrap().remove("broker");
        records.push(record);
    }
    records
}
