//! What no well-meaning caller sends: dropped or answered, counted, and nobody is the worse for it.

use std::time::Duration;

use futures_util::StreamExt;
use mainstay_message::envelope::{JSON, RequestHead, event_headers, fresh_id, name};
use mainstay_message::{
    Headers, Identity, Persistence, Publication, Queue, Subscription, SubscriptionState,
};
use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};

use super::api::{Api, counted};
use super::peers::{Client, Line, Work, Worker, answer};
use super::world::{FRONT, Kind, PRIMARY, WITHIN, World, ask};
use crate::program::Server;

const MIB: usize = 1 << 20;
/// The fronted service's own name towards targets.
const CALLER: &str = "org.fac.sys.sub.compute-proxy";
const STRANGER: &str = "org.fac.sys.sub.stranger";

const SETTINGS: &str = "[services.compute.timeouts]\nack_timeout = \"10s\"\n\
                        [services.compute.retry]\ncount = 0\n\
                        [services.compute.limits]\nbody_max = \"12MiB\"\n";

/// The program with one worker of the SDK, a client of the SDK that must live on, and a peer that misbehaves.
struct Scene {
    world: World,
    _worker: PythonProgram,
    server: Server,
    api: Api,
    bystander: PythonProgram,
    peer: Client,
}

impl Scene {
    async fn new(kind: Kind) -> Self {
        let world = World::new(kind).await;
        let worker = world.worker(PRIMARY).await;
        let server = world.serve(&world.configuration(SETTINGS)).await;
        let bystander = world.client().await;
        let peer = Client::start(&world.broker).await;
        let api = Api::new(&server);
        Scene {
            world,
            _worker: worker,
            server,
            api,
            bystander,
            peer,
        }
    }

    fn add(&self) -> Publication {
        let mut request = self.peer.request("add", &json!({"a": 1, "b": 2}));
        request.persistence = Persistence::Persistent;
        request
    }

    /// Sends what is dropped, and waits until it is counted.
    async fn is_counted(&self, what: &str, message: Publication, count: &str) {
        let before = self.api.count(count).await;
        self.peer.publish(message).await;
        let is_higher = |service: &Value| counted(service, count) > before;
        self.api.until(what, WITHIN, is_higher).await;
    }

    /// Sends what is answered; gives the answer.
    async fn answered(&self, what: &str, message: Publication) -> (bool, String) {
        println!("{what}");
        let id = self.peer.publish(message).await;
        let reply = self.peer.reply(&id).await;
        (reply.has_error, reply.text)
    }

    async fn is_refused(&self, what: &str, message: Publication, text: &str) {
        let (has_error, got) = self.answered(what, message).await;
        assert!(has_error && got.starts_with(text), "{what}: {got}");
    }

    /// A client of the SDK is served and has heard nothing else.
    async fn is_well(&self) {
        let reply = ask(&self.bystander, "add", json!({"a": 20, "b": 22})).await;
        assert_eq!(reply["payload"], json!(42.0), "{reply}");
        assert!(self.bystander.is_running());
    }
}

fn with(mut message: Publication, header: &str, value: &str) -> Publication {
    message.headers.set(header, value);
    message
}

fn without(mut message: Publication, header: &str) -> Publication {
    message.headers.remove(header);
    message
}

/// What nobody in INTERSECT would answer.
async fn drops_what_cannot_be_read(scene: &Scene) {
    let malformed = [
        ("no message id", without(scene.add(), name::MESSAGE_ID)),
        ("no source", without(scene.add(), name::SOURCE)),
        ("no version", without(scene.add(), name::SDK_VERSION)),
        (
            "an id that is none",
            with(scene.add(), name::REQUEST_ID, "7"),
        ),
        (
            "a source that is no name",
            with(scene.add(), name::SOURCE, "No Name/#"),
        ),
        (
            "a time that is none",
            with(scene.add(), name::CREATED_AT, "yesterday"),
        ),
        (
            "a version that is none",
            with(scene.add(), name::SDK_VERSION, "0.9"),
        ),
        (
            "another store",
            with(scene.add(), name::DATA_HANDLER, "message"),
        ),
        (
            "a flag that is none",
            with(scene.add(), name::HAS_ERROR, "perhaps"),
        ),
    ];
    for (what, message) in malformed {
        scene.is_counted(what, message, "requests_malformed").await;
    }
    let mut bare = scene.add();
    bare.content_type = None;
    scene
        .is_counted("no content type", bare, "requests_malformed")
        .await;
    let mut bare = scene.add();
    bare.headers = Headers::new();
    scene
        .is_counted("no headers", bare, "requests_malformed")
        .await;
    let other = with(scene.add(), name::DESTINATION, "org.fac.sys.sub.other");
    scene
        .is_counted("for another", other, "requests_misdirected")
        .await;
}

/// Thousands of headers; AMQP itself takes no more than a frame of them.
async fn drops_floods_of_headers(scene: &Scene, kind: Kind) {
    let flood = |count: usize, length: usize| {
        let mut message = scene.add();
        for number in 0..count {
            message
                .headers
                .push(format!("x-{number}"), "x".repeat(length));
        }
        message
    };
    scene
        .is_counted("many headers", flood(5000, 1), "requests_malformed")
        .await;
    if kind == Kind::Mqtt {
        scene
            .is_counted("large headers", flood(90, 2000), "requests_malformed")
            .await;
        scene
            .is_counted("both", flood(9000, 60), "requests_malformed")
            .await;
        return;
    }
    // Room for these, and none for what the program adds to them.
    let (_, text) = scene.answered("a full frame", flood(64, 1990)).await;
    println!("{text}");
}

/// What services answer with an error.
async fn refuses_as_the_service_does(scene: &Scene) {
    let mut message = scene.add();
    message.body = "{\"a\": 1, \"b\"".into();
    scene
        .is_refused("broken JSON", message, "Bad arguments")
        .await;
    let mut message = scene.add();
    message.body = "".into();
    scene.is_refused("no body", message, "Bad arguments").await;
    let mut message = scene.add();
    message.content_type = Some("application/x-unheard-of".into());
    scene
        .is_refused(
            "another content type",
            message,
            "For operation Compute.add, request content type",
        )
        .await;
    let version = with(scene.add(), name::SDK_VERSION, "0.8.6");
    scene
        .is_refused("another version", version, "SDK version incompatibility")
        .await;
    let nothing = with(scene.add(), name::OPERATION_ID, "Compute.nothing");
    scene
        .is_refused(
            "no such operation",
            nothing,
            "Tried to call non-existent operation Compute.nothing",
        )
        .await;
    let nowhere = with(scene.add(), name::OPERATION_ID, "");
    scene
        .is_refused(
            "no operation",
            nowhere,
            "Tried to call non-existent operation",
        )
        .await;
}

async fn large(scene: &Scene) {
    let text = |length: usize| scene.peer.request("length", &json!("x".repeat(length)));
    let (has_error, length) = scene.answered("10 MiB", text(10 * MIB)).await;
    assert!(!has_error && length == (10 * MIB).to_string(), "{length}");
    let before = scene.api.count("requests_too_large").await;
    let refusal = "Function 'Compute.length' is currently not available for use. The request has";
    scene.is_refused("13 MiB", text(13 * MIB), refusal).await;
    assert_eq!(scene.api.count("requests_too_large").await, before + 1);
}

async fn repeats(scene: &Scene) {
    let first = scene.add();
    let mut second = first.clone();
    second.headers.set(name::REQUEST_ID, fresh_id());
    let id = scene.peer.publish(first.clone()).await;
    scene.peer.reply(&id).await;
    scene
        .is_counted("the same message", first, "requests_repeated")
        .await;
    scene
        .is_counted("its id again", second, "requests_repeated")
        .await;
}

/// Events, lifecycle messages, replies and requests of those who have no business there.
async fn ignores_strangers(scene: &Scene) {
    let (primary, stranger) = (Identity::parse(PRIMARY), Identity::parse(STRANGER));
    let (primary, stranger) = (primary.unwrap(), stranger.unwrap());
    let topic = primary.event("Compute", "job_result").unwrap();
    let mut event = Publication::new(topic, r#"{"job_id": "forged", "status": "done"}"#);
    event.content_type = Some(JSON.into());
    event.headers = event_headers(&stranger, "Compute", "job_result", "0.9.6");
    scene
        .is_counted("a forged event", event.clone(), "messages_malformed")
        .await;
    let bad = without(event, name::CAPABILITY_NAME);
    scene
        .is_counted("half an event", bad, "messages_malformed")
        .await;
    let mut lifecycle = Publication::new(primary.lifecycle(), "{");
    scene
        .is_counted("no lifecycle", lifecycle.clone(), "messages_malformed")
        .await;
    for kind in [
        "LCT_STARTUP",
        "LCT_POLLING",
        "LCT_SHUTDOWN",
        "LCT_FUNCTIONS_BLOCKED",
    ] {
        lifecycle.headers = event_headers(&primary, "Compute", "x", "0.9.6");
        lifecycle.headers.push(name::LIFECYCLE_TYPE, kind);
        scene.peer.publish(lifecycle.clone()).await;
    }
    let mut own = with(scene.add(), name::DESTINATION, CALLER);
    own.topic = Identity::parse(CALLER).unwrap().requests();
    scene
        .is_counted("a request to the proxy", own, "requests_misdirected")
        .await;
    let mut reply = scene.add();
    reply.topic = Identity::parse(CALLER).unwrap().responses();
    scene
        .is_counted("a reply to nothing", reply.clone(), "replies_late")
        .await;
    let reply = without(reply, name::SOURCE);
    scene
        .is_counted("half a reply", reply, "messages_malformed")
        .await;
    let mut reply = scene.add();
    reply.topic = Identity::parse(FRONT).unwrap().responses();
    scene
        .is_counted("a reply to the service", reply, "replies_late")
        .await;
}

/// One who listens to the worker's requests and answers first, with the right request id.
async fn ignores_forgers(scene: &Scene) {
    let line = Line::open(&scene.world.broker, Duration::ZERO);
    let topic = Identity::parse(PRIMARY).unwrap().requests();
    let mut overheard = line.broker.subscribe(Subscription {
        filter: (&topic).into(),
        queue: Queue::Transient,
        backlog_max: 100,
    });
    let is_active = |state: &SubscriptionState| *state == SubscriptionState::Active;
    overheard.state.wait_for(is_active).await.unwrap();
    let before = scene.api.count("replies_foreign").await;
    let id = scene
        .peer
        .publish(scene.peer.request("sleep", &json!(0.5)))
        .await;
    let head = loop {
        let delivery = overheard.deliveries.next().await.unwrap();
        let head = RequestHead::read(&delivery.headers).unwrap();
        if head.operation_id == "Compute.sleep" {
            break head;
        }
    };
    let forged = with(answer(&head, false, "\"forged\""), name::SOURCE, STRANGER);
    line.broker.publish(forged).await.unwrap();
    let is_counted = |service: &Value| counted(service, "replies_foreign") > before;
    scene.api.until("a forged reply", WITHIN, is_counted).await;
    let reply = scene.peer.reply(&id).await;
    assert!(!reply.text.contains("forged"), "{reply:?}");
}

async fn bad_input(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.is_well().await;
    drops_what_cannot_be_read(&scene).await;
    drops_floods_of_headers(&scene, kind).await;
    scene.is_well().await;
    refuses_as_the_service_does(&scene).await;
    large(&scene).await;
    repeats(&scene).await;
    ignores_strangers(&scene).await;
    ignores_forgers(&scene).await;
    scene.is_well().await;
    let service = scene.api.settled(WITHIN).await;
    assert_eq!(counted(&service, "replies"), counted(&service, "requests"));
    let events = scene.bystander.events().unwrap();
    let strange = events
        .iter()
        .find(|it| it["event"] == "event" || it["event"] == "ended");
    assert!(strange.is_none(), "{strange:?}");
    let ledger = scene.peer.ledger.lock().unwrap();
    assert_eq!(ledger.twice(), (0, 0));
    println!("{kind:?}: {}", service["counts"]);
    println!("{} kB at most", memory(&scene.server, "VmHWM"));
}

/// A line of what the system says of a process, in kB.
fn memory(server: &Server, line: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = text.lines().find(|it| it.starts_with(line)).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    words[1].parse().unwrap()
}

/// How many requests come at once.
const FLOOD: usize = 20_000;
/// Far more than the program needs for what it takes at once, and far less than it would need for all.
const MEMORY_MAX: u64 = 300_000;

async fn a_flood(kind: Kind) {
    let world = World::new(kind).await;
    let _worker = Worker::start(&world.broker, PRIMARY, Work::default()).await;
    let settings = format!("{SETTINGS}requests_max = 100\n");
    let server = world.serve(&world.configuration(&settings)).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    let mut after = Vec::new();
    for round in 1..=2_usize {
        let body = json!({"a": 1, "b": 2, "note": "x".repeat(2000)});
        let sends = (0..FLOOD).map(|_| client.send("add", &body));
        let sent = futures_util::stream::iter(sends).buffer_unordered(1000);
        assert_eq!(sent.count().await, FLOOD);
        // Another caller is served meanwhile, or told to come again.
        let other = Client::start(&world.broker).await;
        loop {
            let id = other.send_kept("add", &json!({"a": 1, "b": 2})).await;
            if !other.reply(&id).await.has_error {
                break;
            }
        }
        let service = api.settled(WITHIN).await;
        let (requests, replies) = (counted(&service, "requests"), counted(&service, "replies"));
        println!(
            "{kind:?}, round {round}: of {FLOOD} requests at once so many came until now: {requests}, answered: {replies}, \
             of them refused: {}, unanswered: {}, {} kB, {} kB at most",
            counted(&service, "requests_shed"),
            counted(&service, "requests_unanswered"),
            memory(&server, "VmRSS"),
            memory(&server, "VmHWM"),
        );
        assert_eq!(replies + counted(&service, "requests_unanswered"), requests);
        assert!(counted(&service, "requests_shed") > 0);
        after.push(memory(&server, "VmRSS"));
    }
    assert!(memory(&server, "VmHWM") < MEMORY_MAX);
    // Half of what the second flood had in it.
    assert!(after[1] < after[0] + 20_000, "it grows: {after:?} kB");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_on_mqtt_is_dropped_or_refused_and_counted() {
    bad_input(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_input_on_amqp_is_dropped_or_refused_and_counted() {
    bad_input(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_on_mqtt_is_refused_and_forgotten() {
    a_flood(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_requests_on_amqp_is_refused_and_forgotten() {
    a_flood(Kind::Amqp).await;
}
