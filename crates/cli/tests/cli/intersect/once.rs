//! An operation marked `write` runs once at most, whatever happens to the targets.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_testkit::python::PythonProgram;
use serde_json::{Value, json};

use crate::program::Server;

use super::world::{Kind, PRIMARY, STANDBY, START, World, is_long, send, target, told};

const SETTINGS: &str = r#"
status_operation = "Compute.ready"
[services.compute.timeouts]
ack_timeout = "600ms"
heartbeat_interval = "200ms"
[services.compute.retry]
count = 1
delay = "10ms"
[services.compute.operations.increment]
safety = "write"
"#;

/// What happens to the target that gets a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Fault {
    Hang,
    Error,
    /// Killed at a random moment after the request left.
    Kill,
    /// Stopped, and let go on at a random moment, before or after it is given up.
    Slow,
}

/// Numbers that look random, the same for the same seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    fn milliseconds(&mut self, limit: u64) -> Duration {
        Duration::from_millis(self.below(limit))
    }
}

/// Two workers that write down what they run, the program, and a client.
struct Story {
    world: World,
    executions: PathBuf,
    workers: [(&'static str, PythonProgram); 2],
    server: Server,
    client: PythonProgram,
    chance: Chance,
    /// Key -> the reply's text.
    answers: HashMap<String, Value>,
}

impl Story {
    async fn begin(kind: Kind) -> Self {
        let world = World::new(kind).await;
        let executions = world.place.path().join("executions");
        let workers = [("primary", PRIMARY), ("standby", STANDBY)].map(|(name, identity)| {
            let command = world.programs.worker(identity);
            let command = command.variable("MAINSTAY_COUNTER_FILE", &executions);
            (name, command.start().unwrap())
        });
        for (_, worker) in &workers {
            worker.named("started", START).await.unwrap();
        }
        let server = world.serve(&world.configuration(SETTINGS)).await;
        let client = world.client().await;
        let seed = 0x9e37_79b9_7f4a_7c15;
        Story {
            world,
            executions,
            workers,
            server,
            client,
            chance: Chance(seed),
            answers: HashMap::new(),
        }
    }

    /// The target that gets the next request.
    async fn preferred(&self) -> usize {
        let preferred = |service: &Value| {
            let usable = |name| {
                let target = target(service, name);
                target["aside"] == false && target["state"] == "alive"
            };
            self.workers.iter().position(|(name, _)| usable(name))
        };
        self.world
            .until(&self.server, "a usable target", |it| {
                preferred(it).is_some()
            })
            .await;
        preferred(&self.world.service(&self.server)).unwrap_or(0)
    }

    /// One request whose target meets this.
    async fn meet(&mut self, number: usize, fault: Fault) {
        let key = format!("{fault:?}-{number}");
        let victim = self.preferred().await;
        match fault {
            Fault::Hang => self.world.inject(self.workers[victim].0, "hang"),
            Fault::Error => self.world.inject(self.workers[victim].0, "error"),
            Fault::Slow => self.workers[victim].1.sigstop().unwrap(),
            Fault::Kill => {}
        }
        send(&self.client, "increment", json!(key));
        if fault == Fault::Kill {
            tokio::time::sleep(self.chance.milliseconds(30)).await;
            self.workers[victim].1.kill9().await.unwrap();
        }
        if fault == Fault::Slow {
            tokio::time::sleep(self.chance.milliseconds(1000)).await;
            self.workers[victim].1.sigcont().unwrap();
        }
        let reply = self.client.named("reply", START).await.unwrap();
        self.answers.insert(key, reply);
        let (name, worker) = &self.workers[victim];
        match fault {
            Fault::Hang | Fault::Error => self.world.inject(name, "none"),
            Fault::Kill => worker.start_again().unwrap(),
            Fault::Slow => {}
        }
    }

    /// Waits until both targets have done all that they may still do.
    async fn settle(&self) {
        self.world
            .until(&self.server, "both alive", |it| {
                self.workers.iter().all(|(name, _)| {
                    let target = target(it, name);
                    target["aside"] == false && target["missed"] == 0
                })
            })
            .await;
    }

    /// How often each key ran.
    fn runs(&self) -> HashMap<String, usize> {
        let text = std::fs::read_to_string(&self.executions).unwrap();
        let mut runs = HashMap::new();
        for line in text.lines() {
            let key = line.split(' ').next().unwrap();
            *runs.entry(key.to_owned()).or_default() += 1;
        }
        runs
    }
}

/// Faults in turn: a kill costs a start of Python, so there are fewer of them.
fn fault(number: usize) -> Fault {
    match number % 6 {
        0 | 3 => Fault::Hang,
        1 | 4 => Fault::Error,
        2 => Fault::Slow,
        _ => Fault::Kill,
    }
}

async fn runs_once_at_most(kind: Kind) {
    let faults = if is_long() { 1000 } else { 60 };
    let mut story = Story::begin(kind).await;
    for number in 0..faults {
        story.meet(number, fault(number)).await;
    }
    story.settle().await;
    let runs = story.runs();
    let mut unknown = 0;
    for (key, reply) in &story.answers {
        let ran = runs.get(key).copied().unwrap_or(0);
        let text = reply["payload"].to_string();
        let allowed = match reply["has_error"] == true {
            false => 1..=1,
            true if text.contains("outcome_unknown") => 0..=1,
            true => 0..=0,
        };
        unknown += usize::from(text.contains("outcome_unknown"));
        assert!(allowed.contains(&ran), "{key} ran {ran} times: {reply}");
    }
    let good = story.answers.values().filter(|it| it["has_error"] == false);
    let good = good.count();
    println!(
        "{kind:?}: {faults} faults, {good} good replies, {unknown} unknown outcomes, {} ran",
        runs.len()
    );
    assert_eq!(story.answers.len(), faults);
    assert!(good > 0 && unknown > 0);
    let replies = told(&story.client, faults, |it| it["event"] == "reply").await;
    assert_eq!(replies.len(), faults);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_mqtt_never_runs_twice_over_faults() {
    runs_once_at_most(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_on_amqp_never_runs_twice_over_faults() {
    runs_once_at_most(Kind::Amqp).await;
}
