//! Requests at a steady rate while targets and brokers are killed: each that reached the program has one reply.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::api::{Api, counted};
use super::peers::{Client, Ledger, Work, Worker};
use super::world::{Kind, PRIMARY, STANDBY, START, WITHIN, World};

/// Between two requests: 200 a second.
const PACE: Duration = Duration::from_millis(5);

const SETTINGS: &str = "[services.compute.timeouts]\nack_timeout = \"1s\"\nheartbeat_interval = \"500ms\"\n\
                        [services.compute.retry]\ncount = 0\n\
                        [services.compute.operations.add]\nsafety = \"idempotent_write\"\n";

/// How many requests, and how often a target is killed.
fn length() -> (usize, Duration) {
    match std::env::var_os("MAINSTAY_LONG") {
        Some(_) => (10_000, Duration::from_secs(5)),
        None => (1_500, Duration::from_secs(2)),
    }
}

/// Sends requests at their pace until there were enough and `go_on` is over. Gives their ids.
async fn load(client: &Client, count: usize, go_on: &AtomicBool) -> HashSet<String> {
    let mut sent = HashSet::new();
    let mut pace = interval(PACE);
    // What a restart of the broker holds up does not come all at once afterwards.
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while sent.len() < count || go_on.load(Ordering::Acquire) {
        pace.tick().await;
        let body = json!({"a": sent.len(), "b": 1});
        sent.insert(client.send("add", &body).await);
    }
    sent
}

/// Workers that are killed in turn.
enum Crew {
    Peers([Option<Worker>; 2]),
    Sdk(Box<[PythonProgram; 2]>),
}

impl Crew {
    async fn start(world: &World, is_sdk: bool) -> Self {
        if is_sdk {
            let (primary, standby) = tokio::join!(world.worker(PRIMARY), world.worker(STANDBY));
            return Crew::Sdk(Box::new([primary, standby]));
        }
        let work = Work::default();
        Crew::Peers([
            Some(Worker::start(&world.broker, PRIMARY, work).await),
            Some(Worker::start(&world.broker, STANDBY, work).await),
        ])
    }

    /// Kills one, and starts it again.
    async fn kill(&mut self, world: &World, turn: usize) {
        let turn = turn % 2;
        match self {
            Crew::Peers(workers) => {
                workers[turn] = None;
                // As long as the SDK takes to be there again.
                sleep(Duration::from_secs(1)).await;
                let name = [PRIMARY, STANDBY][turn];
                workers[turn] = Some(Worker::start(&world.broker, name, Work::default()).await);
            }
            Crew::Sdk(workers) => {
                workers[turn].kill9().await.unwrap();
                workers[turn].start_again().unwrap();
                workers[turn].named("started", START).await.unwrap();
            }
        }
    }
}

/// Kills targets in turn, and the broker so many times, until the load has had its length.
async fn disturb(world: &World, crew: &mut Crew, restarts: usize, go_on: &AtomicBool) -> usize {
    let (count, every) = length();
    let rounds = count * usize::try_from(PACE.as_millis()).unwrap() / 1000;
    let rounds = rounds / usize::try_from(every.as_secs()).unwrap();
    let mut kills = 0;
    let mut pace = interval(every);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace.tick().await;
    for round in 0..rounds.max(restarts + 2) {
        pace.tick().await;
        if round < restarts {
            world.broker.restart().await;
        } else {
            crew.kill(world, kills).await;
            kills += 1;
        }
    }
    go_on.store(false, Ordering::Release);
    kills
}

/// What became of all requests.
struct Outcome {
    sent: HashSet<String>,
    kills: usize,
    service: Value,
    client: Client,
}

async fn play(kind: Kind, restarts: usize, is_sdk: bool) -> Outcome {
    let world = World::new(kind).await;
    let mut crew = Crew::start(&world, is_sdk).await;
    let server = world.serve(&world.configuration(SETTINGS)).await;
    let client = Client::start(&world.broker).await;
    let api = Api::new(&server);
    let go_on = AtomicBool::new(true);
    let (sent, kills) = tokio::join!(
        load(&client, length().0, &go_on),
        disturb(&world, &mut crew, restarts, &go_on)
    );
    // Everything before it has arrived by then, or never will.
    let last = client.send_kept("add", &json!({"a": 0, "b": 0})).await;
    client.reply(&last).await;
    let service = api.settled(WITHIN).await;
    let mut sent = sent;
    sent.insert(last);
    Outcome {
        sent,
        kills,
        service,
        client,
    }
}

/// What errors say, and how often; numbers in them aside.
fn told(ledger: &Ledger) -> BTreeMap<String, usize> {
    let mut told = BTreeMap::new();
    for error in ledger.all().filter(|it| it.has_error) {
        let text = error.text.replace(|it: char| it.is_ascii_digit(), "");
        *told.entry(text.replace('\n', " ")).or_default() += 1;
    }
    told
}

impl Outcome {
    fn count(&self, name: &str) -> usize {
        usize::try_from(counted(&self.service, name)).unwrap()
    }

    /// Every request that reached the program has one reply; gives how many replies its caller lacks.
    async fn check(&self, title: &str, is_broker_killed: bool) {
        let (requests, replies) = (self.count("requests"), self.count("replies"));
        if !is_broker_killed {
            self.client
                .until("every reply", WITHIN, |ledger| {
                    (ledger.replies.len() >= replies).then_some(())
                })
                .await;
        }
        let ledger = self.client.ledger.lock().unwrap();
        let (same, others) = ledger.twice();
        let errors = ledger.all().filter(|it| it.has_error).count();
        println!(
            "{title}: {} kills\n  sent                              {:6}\n  lost in the broker                {:6}\n  \
             reached the program               {requests:6}\n  replies published and confirmed   {replies:6}\n  \
             given again by the broker         {:6}\n  replies that came                 {:6}\n  \
             dropped by the broker             {:6}\n  of them errors                    {errors:6}\n  \
             the same message twice            {same:6}\n  second replies                    {others:6}\n  \
             late replies of targets           {:6}\n  targets set aside                 {:6}",
            self.kills,
            self.sent.len(),
            self.sent.len() - requests.min(self.sent.len()),
            self.count("requests_repeated"),
            ledger.replies.len(),
            replies - ledger.replies.len().min(replies),
            self.count("replies_late"),
            self.count("targets_set_aside"),
        );
        for (text, count) in told(&ledger) {
            println!("  {count:6} times: {text}");
        }
        assert_eq!(replies, requests, "replies of requests that came");
        assert_eq!(others, 0, "second replies");
        assert!(
            ledger.replies.keys().all(|id| self.sent.contains(id)),
            "replies to what nobody asked"
        );
        // Clear ones: that nobody could do it, or that nobody answered.
        let clear = [
            "Function 'Compute.add' is currently not available",
            "Service domain logic threw explicit exception:\nunavailable:",
        ];
        for reply in ledger.all().filter(|it| it.has_error) {
            let is_clear = clear.iter().any(|text| reply.text.starts_with(text));
            assert!(is_clear, "{reply:?}");
        }
        if !is_broker_killed {
            assert_eq!(requests, self.sent.len(), "requests that came");
            assert_eq!(same, 0, "replies twice");
            assert_eq!(ledger.replies.len(), replies, "replies that came");
            assert!(self.count("targets_set_aside") > 0, "no target was missed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_reply_while_targets_on_mqtt_are_killed() {
    let outcome = play(Kind::Mqtt, 0, false).await;
    outcome.check("MQTT", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_reply_while_targets_on_amqp_are_killed() {
    let outcome = play(Kind::Amqp, 0, false).await;
    outcome.check("AMQP", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_reply_while_workers_of_the_sdk_on_mqtt_are_killed() {
    let outcome = play(Kind::Mqtt, 0, true).await;
    outcome.check("MQTT, the SDK", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_reply_while_workers_of_the_sdk_on_amqp_are_killed() {
    let outcome = play(Kind::Amqp, 0, true).await;
    outcome.check("AMQP, the SDK", false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_that_came_has_one_reply_while_the_mqtt_broker_is_killed() {
    let outcome = play(Kind::Mqtt, 1, false).await;
    outcome.check("MQTT, its broker killed", true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_that_came_has_one_reply_while_the_amqp_broker_is_killed() {
    let outcome = play(Kind::Amqp, 2, false).await;
    outcome.check("AMQP, its broker killed", true).await;
}
