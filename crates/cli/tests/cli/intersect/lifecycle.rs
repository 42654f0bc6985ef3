//! The life of the fronted service, as a plain subscriber sees it.

use mainstay_testkit::python::{PythonCommand, PythonEnvironment, PythonProgram};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::world::{FRONT, Kind, PRIMARY, START, World, is_long, told};

/// The SDK's own model takes this JSON.
async fn is_core_status(status: &Value) {
    let environment = PythonEnvironment::find().await.unwrap();
    let script = "import sys\n\
        from intersect_sdk.capability.universal_capability.status import IntersectCoreStatus as Status\n\
        print(repr(Status.model_validate_json(sys.argv[1], strict=True)))";
    let python = PythonCommand::program(&environment, "python");
    let python = python
        .arguments(["-c", script])
        .argument(status.to_string());
    let python = python.start().unwrap();
    let code = python.ended(START).await.unwrap();
    assert_eq!(code, 0, "{:?}", python.lines().unwrap());
}

/// Lifecycle messages of that service so far, at least so many.
async fn messages(wire: &PythonProgram, service: &str, count: usize) -> Vec<Value> {
    let topic = format!("{}/lifecycle", service.replace('.', "/"));
    told(wire, count, |it| it["topic"] == *topic).await
}

fn body(message: &Value) -> Value {
    serde_json::from_str(message["payload"].as_str().unwrap()).unwrap()
}

/// What a worker says of itself, under the fronted names.
fn fronted(body: &Value) -> Value {
    let mut body = body.clone();
    body["schema"]["info"]["title"] = json!(FRONT);
    for part in ["/schema/capabilities", "/status"] {
        let Some(Value::Object(capabilities)) = body.pointer_mut(part) else {
            panic!("no {part}: {body}");
        };
        let own = capabilities.remove("Worker").unwrap();
        capabilities.insert("Compute".to_owned(), own);
    }
    body
}

async fn is_told(kind: Kind) {
    let world = World::new(kind).await;
    let wire = world.programs.subscriber(&["org/fac/sys/sub/*/lifecycle"]);
    let wire = wire.start().unwrap();
    wire.named("started", START).await.unwrap();
    let configuration = world.configuration("").replace("\"Compute.", "\"Worker.");
    let server = world.serve(&configuration).await;
    let worker = world.programs.worker(PRIMARY);
    let worker = worker
        .arguments(["--capability", "Worker"])
        .start()
        .unwrap();
    worker.named("started", START).await.unwrap();

    let startup = &messages(&wire, FRONT, 1).await[0];
    assert_eq!(startup["headers"]["lifecycle_type"], "LCT_STARTUP");
    assert_eq!(startup["headers"]["source"], FRONT);
    assert_eq!(startup["content_type"], "application/json");
    let own = body(&messages(&wire, PRIMARY, 1).await[0]);
    assert_eq!(body(startup), fronted(&own));

    let client = world.client().await;
    let ask = json!({"operation": "intersect_sdk.system_capability", "payload": null});
    client.say(&ask.to_string()).unwrap();
    let status = &told(&client, 1, |it| it["event"] == "reply").await[0];
    assert_eq!(
        (&status["has_error"], &status["source"]),
        (&json!(false), &json!(FRONT))
    );
    is_core_status(&status["payload"]).await;

    if is_long() {
        let polling = &polling(&wire).await;
        assert_eq!(polling["headers"]["lifecycle_type"], "LCT_POLLING");
        assert_eq!(body(polling)["schema"], body(startup)["schema"]);
    }
    server.signal(Signal::SIGTERM);
    let (code, complaints) = server.wait();
    assert_eq!(code, Some(0), "{complaints}");
    let all = messages(&wire, FRONT, if is_long() { 3 } else { 2 }).await;
    let last = all.last().unwrap();
    assert_eq!(last["headers"]["lifecycle_type"], "LCT_SHUTDOWN");
    assert_eq!(last["headers"]["source"], FRONT);
    assert_eq!(last["payload"], "null");
}

/// The first POLLING, which comes five minutes after the start.
async fn polling(wire: &PythonProgram) -> Value {
    let topic = format!("{}/lifecycle", FRONT.replace('.', "/"));
    let is_polling =
        |it: &Value| it["topic"] == *topic && it["headers"]["lifecycle_type"] == "LCT_POLLING";
    wire.event(START * 3, "POLLING", is_polling).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_on_mqtt_sees_the_life_of_the_fronted_service() {
    is_told(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_on_amqp_sees_the_life_of_the_fronted_service() {
    is_told(Kind::Amqp).await;
}
