//! A private broker, workers and clients of the SDK, and the program between them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_testkit::intersect::{BrokerLogin, IntersectPrograms};
use mainstay_testkit::mosquitto::{self, Mosquitto, MosquittoOptions};
use mainstay_testkit::python::{PythonEnvironment, PythonProgram};
use mainstay_testkit::rabbitmq::{RabbitmqOptions, RabbitmqServer};
use serde_json::{Value, json};

use crate::program::{Place, Server};

/// The imports alone take half a minute on a machine that builds beside its tests.
pub(super) const START: Duration = Duration::from_secs(180);
/// For what should come at once.
pub(super) const WITHIN: Duration = Duration::from_secs(60);
/// The fronted name, which callers know.
pub(super) const FRONT: &str = "org.fac.sys.sub.compute";
pub(super) const PRIMARY: &str = "org.fac.sys.sub.primary";
pub(super) const STANDBY: &str = "org.fac.sys.sub.standby";

/// What is spoken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Mqtt,
    Amqp,
}

/// A private broker.
pub(super) enum Broker {
    Mqtt(Mosquitto),
    Amqp(RabbitmqServer),
}

impl Broker {
    pub(super) async fn start(kind: Kind) -> Self {
        match kind {
            Kind::Mqtt => {
                let broker = Mosquitto::start(MosquittoOptions::new()).await;
                Broker::Mqtt(broker.unwrap())
            }
            Kind::Amqp => {
                let broker = RabbitmqServer::start(RabbitmqOptions::new()).await.unwrap();
                broker.declare_exchange().await.unwrap();
                Broker::Amqp(broker)
            }
        }
    }

    pub(super) fn port(&self) -> u16 {
        match self {
            Broker::Mqtt(broker) => broker.port(),
            Broker::Amqp(broker) => broker.port(),
        }
    }

    fn login(&self) -> BrokerLogin {
        match self {
            Broker::Mqtt(_) => BrokerLogin::mqtt(self.port(), mosquitto::USER, mosquitto::PASSWORD),
            Broker::Amqp(_) => BrokerLogin::amqp(self.port(), "guest", "guest"),
        }
    }

    /// Kills it and starts it again on the same port and folder.
    #[allow(dead_code)] // Stories of outages need it.
    pub(super) async fn restart(&self) {
        match self {
            Broker::Mqtt(broker) => {
                broker.save().await.unwrap();
                broker.kill9().await.unwrap();
                broker.start_again().await.unwrap();
            }
            Broker::Amqp(broker) => {
                broker.kill9().await.unwrap();
                broker.start_again().await.unwrap();
            }
        }
    }

    /// Ends it as an administrator does.
    pub(super) async fn stop(&self) {
        match self {
            Broker::Mqtt(broker) => broker.stop().await.unwrap(),
            Broker::Amqp(broker) => broker.stop().await.unwrap(),
        }
    }

    /// Starts it again after its end.
    pub(super) async fn start_again(&self) {
        match self {
            Broker::Mqtt(broker) => broker.start_again().await.unwrap(),
            Broker::Amqp(broker) => broker.start_again().await.unwrap(),
        }
    }

    /// It stands still: nothing is answered.
    pub(super) fn freeze(&self) {
        match self {
            Broker::Mqtt(broker) => broker.sigstop().unwrap(),
            Broker::Amqp(broker) => broker.sigstop().unwrap(),
        }
    }

    /// It goes on.
    pub(super) fn thaw(&self) {
        match self {
            Broker::Mqtt(broker) => broker.sigcont().unwrap(),
            Broker::Amqp(broker) => broker.sigcont().unwrap(),
        }
    }

    /// Its table in a configuration.
    pub(super) fn table(&self) -> String {
        let (protocol, user, password) = match self {
            Broker::Mqtt(_) => ("mqtt5", mosquitto::USER, mosquitto::PASSWORD),
            Broker::Amqp(_) => ("amqp091", "guest", "guest"),
        };
        format!(
            "[services.compute.brokers.main]\nprotocol = \"{protocol}\"\nhost = \"127.0.0.1\"\nport = {}\n\
             user = \"{user}\"\npassword = \"{password}\"\n",
            self.port()
        )
    }
}

/// A broker with what stands around it.
pub(super) struct World {
    pub(super) broker: Broker,
    pub(super) programs: IntersectPrograms,
    pub(super) place: Place,
    faults: PathBuf,
}

impl World {
    pub(super) async fn new(kind: Kind) -> Self {
        let broker = Broker::start(kind).await;
        let environment = PythonEnvironment::find().await.unwrap();
        let place = Place::new();
        let faults = place.path().join("faults");
        std::fs::create_dir(&faults).unwrap();
        let programs = IntersectPrograms::new(environment, broker.login()).faults(&faults);
        World {
            broker,
            programs,
            place,
            faults,
        }
    }

    /// What the worker does from now on: `hang`, `error`, `stall 100`, `none`.
    pub(super) fn inject(&self, worker: &str, fault: &str) {
        std::fs::write(self.faults.join(worker), fault).unwrap();
    }

    /// A worker that listens.
    pub(super) async fn worker(&self, name: &str) -> PythonProgram {
        let worker = self.programs.worker(name).start().unwrap();
        worker.named("started", START).await.unwrap();
        worker
    }

    /// A client that calls the fronted service and hears its results.
    pub(super) async fn client(&self) -> PythonProgram {
        let events = ["job_result", "job_failed"].map(|event| format!("{FRONT}:Compute:{event}"));
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        let client = self.programs.client(FRONT, &events).start().unwrap();
        client.named("started", START).await.unwrap();
        client
    }

    /// A configuration with two targets; `more` stands behind the service's own keys.
    pub(super) fn configuration(&self, more: &str) -> String {
        self.configuration_of(more, "")
    }

    /// The same with `of_target` in the table of each target.
    pub(super) fn configuration_of(&self, more: &str, of_target: &str) -> String {
        let mut text = format!(
            "[services.compute]\nidentity = \"{FRONT}\"\ncapability_name = \"Compute\"\n\
             strategy_group_order = [\"primary\", \"standby\"]\n{more}\n{}",
            self.broker.table()
        );
        for (name, group) in [("primary", "primary"), ("standby", "standby")] {
            let map = OPERATIONS
                .map(|it| format!("{it} = \"Compute.{it}\""))
                .join(", ");
            let _ = write!(
                text,
                "[services.compute.targets.{name}]\ngroup = \"{group}\"\n\
                 destination = \"org.fac.sys.sub.{name}\"\noperation_map = {{ {map} }}\n{of_target}\n"
            );
        }
        text
    }

    /// The program with this configuration, once it has connected.
    pub(super) async fn serve(&self, configuration: &str) -> Server {
        self.place.write("mainstay.toml", configuration);
        let server = self.place.serve(&["--config", "mainstay.toml"]);
        self.until(&server, "connected", |service| {
            service["brokers"][0]["state"] == "up"
        })
        .await;
        server
    }

    /// How the service stands.
    pub(super) fn service(&self, server: &Server) -> Value {
        let run = self
            .place
            .run(&["services", "--json", "--url", &server.url]);
        assert_eq!(run.code, 0, "{run:?}");
        let document: Value = serde_json::from_str(&run.out).unwrap();
        document["services"][0].clone()
    }

    /// One of its counts.
    pub(super) fn count(&self, server: &Server, name: &str) -> u64 {
        let service = self.service(server);
        service["counts"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("no count {name}: {service}"))
    }

    /// Waits until the service stands so.
    pub(super) async fn until(&self, server: &Server, what: &str, fits: impl Fn(&Value) -> bool) {
        let end = tokio::time::Instant::now() + START;
        loop {
            let service = self.service(server);
            if fits(&service) {
                return;
            }
            assert!(tokio::time::Instant::now() < end, "not {what}: {service:#}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A target of the service as it stands.
pub(super) fn target<'a>(service: &'a Value, name: &str) -> &'a Value {
    let mut targets = service["targets"].as_array().unwrap().iter();
    targets.find(|it| it["name"] == name).unwrap()
}

/// Waits until a program has told so many lines that fit, at any time since its start, and gives them.
pub(super) async fn told(
    program: &PythonProgram,
    count: usize,
    fits: impl Fn(&Value) -> bool,
) -> Vec<Value> {
    let end = tokio::time::Instant::now() + START;
    loop {
        let mut all = program.events().unwrap();
        all.retain(|it| fits(it));
        if all.len() >= count {
            return all;
        }
        let now = tokio::time::Instant::now();
        assert!(now < end, "{} of {count} lines: {all:#?}", all.len());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A worker's call of this operation.
pub(super) fn is_call(line: &Value, operation: &str) -> bool {
    line["event"] == "call" && line["operation"] == operation
}

/// Whether the long forms of the stories are asked for.
pub(super) fn is_long() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some()
}

/// What the proxy passes on.
const OPERATIONS: [&str; 15] = [
    "add",
    "greet",
    "reverse_bytes",
    "length",
    "report",
    "refuse",
    "crash",
    "sleep",
    "guarded",
    "increment",
    "ready",
    "status",
    "announce",
    "run_compute_job",
    "run_long_job",
];

/// Asks by a client and gives the reply.
pub(super) async fn ask(client: &PythonProgram, operation: &str, payload: Value) -> Value {
    send(client, operation, payload);
    client.named("reply", WITHIN).await.unwrap()
}

/// Asks by a client.
pub(super) fn send(client: &PythonProgram, operation: &str, payload: Value) {
    let request = json!({"operation": format!("Compute.{operation}"), "payload": payload});
    client.say(&request.to_string()).unwrap();
}

/// The root of the repository.
pub(super) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}
