//! Services and clients of the Python SDK of INTERSECT, from `examples/intersect` and `tests/python`, on one broker.

use std::path::Path;

use crate::python::{PythonCommand, PythonEnvironment};

/// A broker that programs of the SDK log in to.
#[derive(Debug, Clone)]
pub struct BrokerLogin {
    kind: &'static str,
    port: u16,
    user: String,
    password: String,
}

impl BrokerLogin {
    /// An MQTT broker on a loopback port.
    pub fn mqtt(port: u16, user: &str, password: &str) -> Self {
        Self::new("mqtt", port, user, password)
    }

    /// An AMQP broker on a loopback port.
    pub fn amqp(port: u16, user: &str, password: &str) -> Self {
        Self::new("amqp", port, user, password)
    }

    fn new(kind: &'static str, port: u16, user: &str, password: &str) -> Self {
        Self {
            kind,
            port,
            user: user.to_owned(),
            password: password.to_owned(),
        }
    }
}

/// The programs of the SDK with one broker, and with a store or a folder of faults where they are given.
#[derive(Debug, Clone)]
pub struct IntersectPrograms {
    environment: PythonEnvironment,
    broker: BrokerLogin,
    store_port: Option<u16>,
    faults: Option<std::path::PathBuf>,
}

impl IntersectPrograms {
    /// The programs without store and faults.
    pub fn new(environment: PythonEnvironment, broker: BrokerLogin) -> Self {
        Self {
            environment,
            broker,
            store_port: None,
            faults: None,
        }
    }

    /// Gives them a store on a loopback port, see [`S3Server`](crate::s3::S3Server).
    #[must_use]
    pub fn store(mut self, port: u16) -> Self {
        self.store_port = Some(port);
        self
    }

    /// Gives workers a folder with their faults: a file named after a worker holds `hang`, `error`, `stall 100` or
    /// `none`.
    #[must_use]
    pub fn faults(mut self, folder: &Path) -> Self {
        self.faults = Some(folder.to_owned());
        self
    }

    /// A worker with this name, `org.fac.sys.sub.svc`. It tells `started` when the broker has confirmed what it
    /// listens to, then `call`, `answered`, `failed`, `result`, `fault`. On AMQP it writes from one thread: the
    /// SDK as it is loses its connection while a job streams and calls are answered.
    pub fn worker(&self, name: &str) -> PythonCommand {
        let command = self.command("examples/intersect/worker.py");
        let command = command.arguments(["--name", name, "--one-writer"]);
        match &self.faults {
            Some(folder) => command.variable("MAINSTAY_FAULT_DIR", folder),
            None => command,
        }
    }

    /// A client that calls this service: each line that it is told by
    /// [`PythonProgram::say`](crate::python::PythonProgram::say) is a request, `{"operation": "Compute.add",
    /// "payload": …}`. It tells `started`, then `reply` and `event`, and `ended` with `"why": "signal"` if the SDK
    /// ended it. It listens to these events, `service:Capability:event`.
    pub fn client(&self, to: &str, events: &[&str]) -> PythonCommand {
        let command = self.command("examples/intersect/client.py");
        let command = command.arguments(["--to", to, "--follow", "--seconds", "3600"]);
        let words = events.iter().flat_map(|event| ["--events", event]);
        command.arguments(words)
    }

    /// A service with this name that calls another one: it sends the requests of a file, a JSON list of what a client is
    /// told as lines, the first of them ten seconds after its start. It tells `started`, `reply`, `ended`. Results that
    /// come as requests for its operation `Compute.job_result` it tells as `result`.
    pub fn caller_service(&self, name: &str, to: &str, requests: &Path) -> PythonCommand {
        self.command("examples/intersect/caller_service.py")
            .arguments(["--name", name, "--to", to, "--requests"])
            .argument(requests)
    }

    /// Hears what is published on these topics (`*` for one part, `#` for the rest), as it stands on the wire. It tells
    /// `started` when the broker has confirmed what it listens to, then `message` with `topic`, `headers`,
    /// `content_type` and `payload`.
    pub fn subscriber(&self, topics: &[&str]) -> PythonCommand {
        let words = topics.iter().flat_map(|topic| ["--topic", topic]);
        let command = PythonCommand::script(&self.environment, "tests/python/subscribe.py");
        self.logged_in(command).arguments(words)
    }

    /// Records all that a service answers to many requests, good and bad, and ends; its whole output but for lines of
    /// errors is one JSON document. It is equal for a service and for a proxy in front of it.
    pub fn comparison(&self, to: &str) -> PythonCommand {
        self.command("tests/python/compare.py")
            .arguments(["--to", to])
    }

    fn command(&self, script: &str) -> PythonCommand {
        let command = self.logged_in(PythonCommand::script(&self.environment, script));
        match self.store_port {
            Some(port) => command.arguments(["--store-port", &port.to_string()]),
            None => command,
        }
    }

    fn logged_in(&self, command: PythonCommand) -> PythonCommand {
        let broker = &self.broker;
        command
            .arguments(["--broker", broker.kind, "--host", "127.0.0.1"])
            .arguments(["--port", &broker.port.to_string()])
            .variable("BROKER_USER", &broker.user)
            .variable("BROKER_PASSWORD", &broker.password)
    }
}
