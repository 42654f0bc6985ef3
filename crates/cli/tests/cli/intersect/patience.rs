//! Long work is no failure: a target that works answers no health check, and keeps what it has.

use serde_json::{Value, json};

use super::world::{Kind, PRIMARY, STANDBY, World, ask, is_call, is_long, send, target, told};

/// How long the work takes, and what it is measured with.
struct Scale {
    work_s: f64,
    heartbeat: &'static str,
    /// Of both phases of the long operations.
    timeout: &'static str,
    /// Health checks that are surely missed meanwhile.
    missed: u64,
}

fn scale() -> Scale {
    match is_long() {
        true => Scale {
            work_s: 75.0,
            heartbeat: "30s",
            timeout: "120s",
            missed: 2,
        },
        false => Scale {
            work_s: 8.0,
            heartbeat: "1s",
            timeout: "40s",
            missed: 4,
        },
    }
}

/// One request or job a target at once, and a status operation that meets faults.
fn configuration(world: &World, scale: &Scale) -> String {
    let Scale {
        heartbeat, timeout, ..
    } = scale;
    let more = format!(
        "status_operation = \"Compute.ready\"\n\
         [services.compute.timeouts]\nack_timeout = \"5s\"\nheartbeat_interval = \"{heartbeat}\"\nmissed_intervals = 3\n\
         [services.compute.operations.sleep]\nsafety = \"idempotent_write\"\nack_timeout = \"{timeout}\"\n\
         result_timeout = \"{timeout}\"\n\
         [services.compute.operations.run_long_job]\nsafety = \"idempotent_write\"\nkind = \"job\"\n\
         job_key = \"/job_id\"\nlast_result = '/status == \"done\"'\nresult_timeout = \"{timeout}\"\n"
    );
    world.configuration_of(&more, "max_in_flight = 1\n")
}

fn is_reply(line: &Value, operation: &str) -> bool {
    line["event"] == "reply" && line["operation"] == format!("Compute.{operation}")
}

/// The first target has missed checks, and is neither dead nor passed over for it.
fn is_busy(service: &Value, missed: u64) -> bool {
    let primary = target(service, "primary");
    assert_eq!(primary["aside"], false, "{service:#}");
    assert_ne!(primary["state"], "dead", "{service:#}");
    primary["missed"].as_u64().unwrap() >= missed
}

async fn a_long_operation(kind: Kind) {
    let scale = scale();
    let world = World::new(kind).await;
    let (primary, standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
    let server = world.serve(&configuration(&world, &scale)).await;
    let client = world.client().await;
    send(&client, "sleep", json!(scale.work_s));
    told(&primary, 1, |it| is_call(it, "sleep")).await;
    let sum = ask(&client, "add", json!({"a": 1, "b": 2})).await;
    assert_eq!(sum["payload"], 3.0, "{sum}");
    told(&standby, 1, |it| is_call(it, "add")).await;
    world
        .until(&server, "missed checks", |it| is_busy(it, scale.missed))
        .await;
    let slept = &told(&client, 1, |it| is_reply(it, "sleep")).await[0];
    assert_eq!(
        (&slept["has_error"], &slept["payload"]),
        (&json!(false), &json!(scale.work_s))
    );
    // It gets work again at once.
    send(&client, "add", json!({"a": 3, "b": 4}));
    told(&primary, 1, |it| is_call(it, "add")).await;
    told(&client, 2, |it| is_reply(it, "add")).await;
    assert_eq!(told(&client, 3, |it| it["event"] == "reply").await.len(), 3);
    assert_eq!(told(&standby, 0, |it| is_call(it, "sleep")).await.len(), 0);
    assert_eq!(told(&primary, 1, |it| is_call(it, "sleep")).await.len(), 1);
    assert_eq!(world.count(&server, "targets_set_aside"), 0);
}

async fn a_long_job(kind: Kind) {
    let scale = scale();
    let world = World::new(kind).await;
    let (primary, standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
    let server = world.serve(&configuration(&world, &scale)).await;
    let client = world.client().await;
    send(
        &client,
        "run_long_job",
        json!({"job_id": "long", "seconds": scale.work_s}),
    );
    let accepted = &told(&client, 1, |it| is_reply(it, "run_long_job")).await[0];
    assert_eq!(accepted["payload"]["accepted"], true);
    // The status operation does not come back: on MQTT the worker's one thread stands still.
    world.inject("primary", "hang");
    told(&primary, 1, |it| it["fault"] == "hang").await;
    send(&client, "add", json!({"a": 1, "b": 2}));
    told(&client, 1, |it| is_reply(it, "add")).await;
    told(&standby, 1, |it| is_call(it, "add")).await;
    world
        .until(&server, "missed checks", |it| is_busy(it, scale.missed))
        .await;
    told(&primary, 1, |it| it["event"] == "result").await;
    world.inject("primary", "none");
    let result = &told(&client, 1, |it| it["event"] == "event").await[0];
    assert_eq!(result["name"], "job_result");
    assert_eq!(result["payload"]["worker"], "primary");
    world
        .until(&server, "the job's end", |it| {
            it["counts"]["jobs_finished"] == 1
        })
        .await;
    let counts = ["jobs_redriven", "jobs_failed", "targets_set_aside"];
    assert_eq!(counts.map(|name| world.count(&server, name)), [0, 0, 0]);
    assert_eq!(
        told(&standby, 0, |it| is_call(it, "run_long_job"))
            .await
            .len(),
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_operation_on_mqtt_is_left_to_its_target_while_others_go_elsewhere() {
    a_long_operation(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_operation_on_amqp_is_left_to_its_target_while_others_go_elsewhere() {
    a_long_operation(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_on_mqtt_is_left_to_its_target_while_others_go_elsewhere() {
    a_long_job(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_job_on_amqp_is_left_to_its_target_while_others_go_elsewhere() {
    a_long_job(Kind::Amqp).await;
}
