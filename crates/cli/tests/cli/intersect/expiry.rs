//! What was given up does not run later, and where it does nobody hears of it.

use std::path::PathBuf;

use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};

use crate::program::Server;

use super::world::{Kind, PRIMARY, STANDBY, World, is_call, send, target, told};

const SETTINGS: &str = r#"
[services.compute.timeouts]
ack_timeout = "4s"
heartbeat_interval = "500ms"
[services.compute.retry]
count = 0
[services.compute.operations.increment]
safety = "idempotent_write"
"#;
/// Requests that go to a target that does not answer.
const GIVEN_UP: usize = 5;

/// Two workers that write down what they run, the program, and a client.
struct Story {
    world: World,
    executions: PathBuf,
    primary: PythonProgram,
    standby: PythonProgram,
    server: Server,
    client: PythonProgram,
}

impl Story {
    async fn begin(kind: Kind) -> Self {
        let world = World::new(kind).await;
        let executions = world.place.path().join("executions");
        let worker = |name: &str| {
            let command = world.programs.worker(name);
            let command = command.variable("MAINSTAY_COUNTER_FILE", &executions);
            command.start().unwrap()
        };
        let (primary, standby) = (worker(PRIMARY), worker(STANDBY));
        for worker in [&primary, &standby] {
            told(worker, 1, |it| it["event"] == "started").await;
        }
        let server = world.serve(&world.configuration(SETTINGS)).await;
        world
            .until(&server, "both alive", |it| {
                ["primary", "standby"]
                    .iter()
                    .all(|name| target(it, name)["state"] == "alive")
            })
            .await;
        let client = world.client().await;
        Story {
            world,
            executions,
            primary,
            standby,
            server,
            client,
        }
    }

    /// Requests that go to the first target and are answered by the second.
    async fn give_up(&self) {
        for number in 0..GIVEN_UP {
            send(
                &self.client,
                "increment",
                json!(format!("given-up-{number}")),
            );
        }
        let replies = told(&self.client, GIVEN_UP, |it| it["event"] == "reply").await;
        assert!(
            replies.iter().all(|it| it["has_error"] == false),
            "{replies:#?}"
        );
        let calls = told(&self.standby, GIVEN_UP, |it| is_call(it, "increment")).await;
        assert_eq!(calls.len(), GIVEN_UP);
    }

    /// Waits until the first target has run something that came after all that was given up.
    async fn come_back(&self) {
        self.world
            .until(&self.server, "taken back", |it| {
                target(it, "primary")["aside"] == false
            })
            .await;
        send(&self.client, "increment", json!("last"));
        told(&self.primary, 1, |it| {
            is_call(it, "increment") && it["key"] == "last"
        })
        .await;
        let replies = told(&self.client, GIVEN_UP + 1, |it| it["event"] == "reply").await;
        assert_eq!(replies.len(), GIVEN_UP + 1);
    }

    /// How many of those that were given up a worker has run.
    fn runs(&self, worker: &str) -> usize {
        let text = std::fs::read_to_string(&self.executions).unwrap();
        let runs = text.lines().filter(|line| {
            let mut words = line.split(' ');
            words.next().unwrap().starts_with("given-up") && words.next() == Some(worker)
        });
        runs.count()
    }
}

async fn a_killed_target_finds_nothing(kind: Kind) {
    let story = Story::begin(kind).await;
    story.primary.kill9().await.unwrap();
    story.give_up().await;
    story.primary.start_again().unwrap();
    story.come_back().await;
    assert_eq!(
        (story.runs("primary"), story.runs("standby")),
        (0, GIVEN_UP)
    );
}

async fn a_stopped_target_is_not_heard(kind: Kind) {
    let story = Story::begin(kind).await;
    story.primary.sigstop().unwrap();
    story.give_up().await;
    story.primary.sigcont().unwrap();
    story.come_back().await;
    let late = story.runs("primary");
    println!("{kind:?}: of {GIVEN_UP} requests that were given up {late} ran later");
    // What the broker had handed over before. RabbitMQ hands over one, mosquitto all that the socket takes.
    let handed_over = match kind {
        Kind::Mqtt => GIVEN_UP,
        Kind::Amqp => 1,
    };
    assert!(late <= handed_over, "{late}");
    story
        .world
        .until(&story.server, "late replies dropped", |it| {
            it["counts"]["replies_late"].as_u64() >= Some(late as u64)
        })
        .await;
    let replies = told(&story.client, 0, |it: &Value| it["event"] == "reply").await;
    assert_eq!(replies.len(), GIVEN_UP + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_target_that_comes_back_on_mqtt_finds_nothing_that_was_given_up() {
    a_killed_target_finds_nothing(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_target_that_comes_back_on_amqp_finds_nothing_that_was_given_up() {
    a_killed_target_finds_nothing(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_target_that_goes_on_on_mqtt_is_not_heard_of_what_was_given_up() {
    a_stopped_target_is_not_heard(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_target_that_goes_on_on_amqp_is_not_heard_of_what_was_given_up() {
    a_stopped_target_is_not_heard(Kind::Amqp).await;
}
