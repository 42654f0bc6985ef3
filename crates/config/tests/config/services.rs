//! Message services: from a file to settings, with what is in effect and where it came from.

use std::time::Duration;

use mainstay_config::{
    BrokerProtocol, Configuration, Explained, Format, Origin, Tree, check, explain,
};
use mainstay_engine::policy::{CircuitMode, RetryOrder, Strategy};
use mainstay_engine::{Category, Preset, Safety};
use mainstay_message::settings::{MessageLimits, OperationKind, Spread, Timeouts};

use super::given::{COMPUTE, lines, loaded, options, toml};

/// Every table, with every key that has no default beside those of its own.
const WHOLE: &str = r#"
[services.compute]
identity = "org.fac.sys.sub.compute"
caller = "org.fac.sys.sub.compute-proxy"
capability_name = "Compute"
strategy = "active_standby"
strategy_group_order = ["primary", "standby"]
status_operation = "Compute.status"
job_failed_event = false
fronts = ["main"]
errors = [{ prefix = "queue is full", category = "transient" }]
[services.compute.brokers.main]
protocol = "mqtt5"
host = "127.0.0.1"
port = 1884
user = "mainstay"
password = "env:BROKER_PASSWORD"
client_id = "compute"
[services.compute.brokers.other]
protocol = "amqp0.9.1"
host = "rabbit"
user = "mainstay"
prefetch = 16
[services.compute.timeouts]
ack_timeout = "5s"
result_timeout = "60s"
heartbeat_interval = "30s"
missed_intervals = 4
failback_after = "1min"
[services.compute.retry]
count = 2
delay = "250ms"
backoff = 1.5
[services.compute.limits]
requests_max = 5
body_max = "1MiB"
[services.compute.operations.run_compute_job]
safety = "write"
kind = "job"
job_key = "/job_id"
last_result = '/status == "done"'
acknowledged = "/accepted"
result_timeout = "2min"
[services.compute.targets.primary-a]
group = "primary"
destination = "org.fac.sys.sub.primary"
operation_map = { run_compute_job = "Compute.run_compute_job" }
max_in_flight = 1
[services.compute.targets.away]
group = "standby"
destination = "org.fac.sys.sub.compute"
operation_map = { run_compute_job = "Work.go" }
broker = "other"
weight = 0.5
[[services.compute.discover]]
pattern = "org.fac.sys.-.worker-*"
group = "standby"
max_in_flight = 3
[services.compute.object_stores.minio]
url = "http://127.0.0.1:9000/"
user = "me"
password = "env:BROKER_PASSWORD"
[services.compute.policy.retry]
delay_max = "3s"
"#;

#[test]
fn a_service_comes_out_as_it_is_written() {
    let loaded = loaded(toml(WHOLE));
    assert_eq!(lines(&loaded.warnings), "");
    let service = &loaded.configuration.services()["compute"];
    let settings = &service.settings;
    assert_eq!(settings.identity.as_str(), "org.fac.sys.sub.compute");
    assert_eq!(settings.caller.as_str(), "org.fac.sys.sub.compute-proxy");
    assert_eq!(settings.spread, Spread::ActiveStandby);
    assert_eq!(*settings.status_operation, *"Compute.status");
    assert_eq!(settings.job_failed_event, None);
    let names = |all: &[std::sync::Arc<str>]| all.join(" ");
    assert_eq!(names(&settings.group_order), "primary standby");
    assert_eq!(names(&settings.brokers), "main other");
    assert_eq!(names(&settings.fronts), "main");
    let times = &settings.timeouts;
    assert_eq!(times.failback_after, Duration::from_secs(60));
    assert_eq!(
        (times.missed_intervals, settings.limits.requests_max),
        (4, 5)
    );
    assert_eq!(settings.limits.body_max, 1 << 20);
    assert_eq!(settings.rules[0].category, Category::Transient);
    assert_eq!(*settings.object_stores[0].url, *"http://127.0.0.1:9000");
    assert_eq!(*settings.object_stores[0].password, *"carrot-very-secret");
    let operation = settings.operation("run_compute_job");
    assert_eq!(
        (operation.safety, operation.kind),
        (Safety::Write, OperationKind::Job)
    );
    assert!(operation.safety_declared);
    assert_eq!(operation.job_key.unwrap().as_str(), "/job_id");
    assert_eq!(operation.result_timeout, Some(Duration::from_secs(120)));
    let targets: Vec<&str> = settings
        .targets
        .iter()
        .map(|target| &*target.name)
        .collect();
    assert_eq!(targets, ["primary-a", "away"]);
    assert_eq!(
        *settings.targets[1].operation_map["run_compute_job"],
        *"Work.go"
    );
    assert_eq!(settings.discover[0].max_in_flight, Some(3));
}

#[test]
fn keys_of_a_service_and_of_a_target_become_a_policy() {
    let loaded = loaded(toml(WHOLE));
    let settings = &loaded.configuration.services()["compute"].settings;
    let retry = &settings.policy.retry;
    assert_eq!((retry.attempts_max, retry.factor), (3, 1.5));
    assert_eq!(retry.delay, Duration::from_millis(250));
    assert_eq!(retry.delay_max, Some(Duration::from_secs(3)));
    assert_eq!(retry.order, RetryOrder::SameFirst);
    assert_eq!(settings.policy.circuit.mode, CircuitMode::Off);
    assert_eq!(settings.policy.route.strategy, Strategy::PrimaryWithStandby);
    let concurrency = |policy: &mainstay_engine::Policy| policy.limits.concurrency;
    assert_eq!(concurrency(&settings.policy), None);
    assert_eq!(concurrency(&settings.targets[0].policy), Some(1));
    assert_eq!(concurrency(&settings.targets[1].policy), None);
    assert_eq!(concurrency(&settings.discover[0].policy), Some(3));
    assert_eq!(settings.targets[0].policy.retry.attempts_max, 3);
}

#[test]
fn brokers_come_out_with_the_ports_of_their_protocols() {
    let loaded = loaded(toml(WHOLE));
    let brokers = &loaded.configuration.services()["compute"].brokers;
    let main = &brokers["main"];
    assert_eq!((main.protocol, main.port), (BrokerProtocol::Mqtt5, 1884));
    assert_eq!(main.client_id.as_deref(), Some("compute"));
    let password = main.password.as_ref().unwrap();
    assert_eq!(password.read().unwrap(), "carrot-very-secret");
    let other = &brokers["other"];
    assert_eq!(
        (other.protocol, other.port),
        (BrokerProtocol::Amqp091, 5672)
    );
    assert_eq!((other.prefetch, other.vhost.as_str()), (16, "/"));
    assert_eq!(other.exchange, "intersect-messages");
    assert_eq!(
        (main.keep_alive.as_secs(), other.keep_alive.as_secs()),
        (30, 10)
    );
    assert_eq!(
        (main.user.as_deref(), main.in_flight_max),
        (Some("mainstay"), 1024)
    );
}

#[test]
fn what_is_not_written_has_defaults_and_follows_from_the_rest() {
    let loaded = loaded(toml(COMPUTE));
    assert_eq!(lines(&loaded.warnings), "");
    let service = &loaded.configuration.services()["compute"];
    let settings = &service.settings;
    assert_eq!(settings.caller.as_str(), "org.fac.sys.sub.compute-proxy");
    assert_eq!(settings.timeouts, Timeouts::default());
    assert_eq!(settings.limits, MessageLimits::default());
    assert_eq!(
        *settings.status_operation,
        *"intersect_sdk.system_capability"
    );
    assert_eq!(settings.job_failed_event.as_deref(), Some("job_failed"));
    assert_eq!(settings.fronts, settings.brokers);
    let retry = &settings.policy.retry;
    assert_eq!((retry.attempts_max, retry.factor), (2, 2.0));
    assert_eq!(retry.delay, Duration::from_millis(500));
    assert_eq!(*settings.policy.name, *Preset::Service.as_str());
    assert_eq!(service.brokers["main"].port, 1883);
    // Groups are those of the targets, in their order.
    let text = COMPUTE.replace("strategy_group_order = [\"primary\", \"standby\"]", "");
    let settings = self::loaded(toml(&text));
    let settings = &settings.configuration.services()["compute"].settings;
    assert_eq!(settings.group_order.join(" "), "primary standby");
}

#[test]
fn callers_are_on_all_brokers_but_those_where_a_target_has_the_identity() {
    let text = WHOLE.replace("fronts = [\"main\"]", "");
    let loaded = loaded(toml(&text));
    let settings = &loaded.configuration.services()["compute"].settings;
    assert_eq!(settings.fronts.join(" "), "main");
}

#[test]
fn strategies_have_the_engine_s_names_in_the_policy() {
    for (word, strategy) in [
        ("active_standby", Strategy::PrimaryWithStandby),
        ("round_robin", Strategy::RoundRobin),
        ("weighted", Strategy::WeightedRoundRobin),
    ] {
        let text = WHOLE.replace("\"active_standby\"", &format!("{word:?}"));
        // What is said for databases does not count.
        let text = format!("[policy.route]\nstrategy = \"p2c\"\n{text}");
        let loaded = loaded(toml(&text));
        let settings = &loaded.configuration.services()["compute"].settings;
        assert_eq!(settings.spread.as_str(), word);
        assert_eq!(settings.policy.route.strategy, strategy);
    }
}

#[test]
fn policies_of_services_come_in_layers() {
    let text = format!(
        "[policy.retry]\nattempts_max = 9\ndelay = \"1s\"\nfactor = 3.0\n[data.policy.retry]\ndelay_max = \"9s\"\n[message.policy.retry]\ndelay = \"2s\"\n[message.policy.audit]\nsink = \"file\"\n{COMPUTE}\n[services.compute.retry]\ncount = 0\n[services.compute.targets.a.policy.retry]\ndelay = \"3s\"\n"
    );
    let loaded = loaded(toml(&text));
    let settings = &loaded.configuration.services()["compute"].settings;
    let retry = &settings.policy.retry;
    assert_eq!((retry.attempts_max, retry.factor), (1, 3.0));
    assert_eq!(
        (retry.delay, retry.delay_max),
        (Duration::from_secs(2), None)
    );
    assert_eq!(
        settings.targets[0].policy.retry.delay,
        Duration::from_secs(3)
    );
    assert_eq!(
        settings.targets[1].policy.retry.delay,
        Duration::from_secs(2)
    );
    let lines = explain(&loaded.configuration, "compute.a").unwrap();
    let layers = [
        ("policy.retry.attempts_max", "[services.compute]"),
        ("policy.retry.delay", "[services.compute.targets.a.policy]"),
        ("policy.retry.factor", "[policy]"),
        ("policy.audit.sink", "[message.policy]"),
        ("policy.route.strategy", "default"),
        ("policy.retry.delay_max", "default"),
    ];
    for (path, layer) in layers {
        let line = lines.iter().find(|line| line.path == path).unwrap();
        assert_eq!(line.layer, layer, "{path}");
    }
}

/// The lines of an explanation that somebody wrote, or all of them.
fn shown(lines: &[Explained], all: bool) -> String {
    let lines = lines.iter().filter(|line| all || line.layer != "default");
    let lines = lines.filter(|line| !line.path.starts_with("policy.") || line.layer != "default");
    let lines = lines.map(|line| {
        let number = line
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        format!(
            "{} = {} | {} | {}{number}",
            line.path, line.value, line.layer, line.origin
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn explain_shows_each_value_of_a_service_and_of_a_target_with_its_layer() {
    let loaded = loaded(toml(COMPUTE));
    let lines = explain(&loaded.configuration, "compute").unwrap();
    let expected = "\
preset = service | default | default
identity = org.fac.sys.sub.compute | [services.compute] | mainstay.toml:3
caller = org.fac.sys.sub.compute-proxy | default | default
capability_name = Compute | [services.compute] | mainstay.toml:4
strategy = active_standby | default | default
strategy_group_order = [primary, standby] | [services.compute] | mainstay.toml:5
fronts = [main] | default | default
status_operation = intersect_sdk.system_capability | default | default
job_failed_event = job_failed | default | default
file = (not set) | default | default
timeouts.ack_timeout = 5s | default | default
timeouts.result_timeout = 1min | default | default
timeouts.heartbeat_interval = 30s | default | default
timeouts.missed_intervals = 3 | default | default
timeouts.failback_after = 0s | default | default
limits.requests_max = 10000 | default | default
limits.jobs_max = 100000 | default | default
limits.body_max = 67108864B | default | default
limits.headers_max = 131072B | default | default
brokers.main.protocol = mqtt5 | [services.compute.brokers.main] | mainstay.toml:7
brokers.main.host = 127.0.0.1 | [services.compute.brokers.main] | mainstay.toml:8
brokers.main.port = 1883 | default | default
brokers.main.user = (not set) | default | default
brokers.main.password = (not set) | default | default
brokers.main.client_id = (made from caller) | default | default
brokers.main.session_expiry = 1h | default | default
brokers.main.keep_alive = 30s | default | default
brokers.main.connect_timeout = 5s | default | default
brokers.main.reconnect_max = 5s | default | default
brokers.main.prefetch = 256 | default | default
brokers.main.in_flight_max = 1024 | default | default
operations.run.safety = read | [services.compute.operations.run] | mainstay.toml:10
operations.run.kind = plain | default | default
operations.run.ack_timeout = 5s | default | default
operations.run.result_timeout = 1min | default | default
operations.run.job_key = (not set) | default | default
operations.run.last_result = (not set) | default | default
operations.run.acknowledged = (not set) | default | default";
    assert_eq!(shown(&lines, true), expected);
    let lines = explain(&loaded.configuration, "compute.b").unwrap();
    let expected = "\
preset = service | default | default
group = standby | [services.compute.targets.b] | mainstay.toml:16
destination = org.fac.sys.sub.compute-b | [services.compute.targets.b] | mainstay.toml:17
broker = main | default | default
weight = 1 | default | default
max_in_flight = (not set) | default | default
operation_map.run = Compute.run | [services.compute.targets.b.operation_map] | mainstay.toml:18";
    assert_eq!(shown(&lines, true), expected);
}

#[test]
fn explain_shows_where_a_secret_is_kept_and_never_what_it_is() {
    let loaded = loaded(toml(WHOLE));
    let lines = explain(&loaded.configuration, "compute").unwrap();
    let text = shown(&lines, true);
    assert!(!text.contains("carrot"), "{text}");
    for path in ["brokers.main.password", "object_stores.minio.password"] {
        let line = lines.iter().find(|line| line.path == path).unwrap();
        assert_eq!(line.value, "(secret from env:BROKER_PASSWORD)");
    }
    assert!(!format!("{:?}", loaded.configuration).contains("carrot"));
}

#[test]
fn an_unknown_target_of_explain_is_told_with_what_there_is() {
    let loaded = loaded(toml(COMPUTE));
    let error = explain(&loaded.configuration, "compute.c").unwrap_err();
    assert_eq!(error.known, "compute, compute.a, compute.b");
}

#[test]
fn variables_and_changes_at_run_time_reach_the_keys_of_services() {
    let mut options = toml(COMPUTE);
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    options.environment = vec![
        variable(
            "MAINSTAY_SERVICES__COMPUTE__IDENTITY",
            "org.fac.sys.-.other",
        ),
        variable("MAINSTAY_SERVICES__COMPUTE__BROKERS__MAIN__PORT", "1999"),
        variable("MAINSTAY_SERVICES__COMPUTE__TARGETS__A__WEIGHT", "3"),
        variable("MAINSTAY_SERVICES__COMPUTE__FRONTS", "[\"main\"]"),
        variable("MAINSTAY_SERVICES__COMPUTE__JOB_FAILED_EVENT", "false"),
        variable(
            "MAINSTAY_SERVICES__COMPUTE__DISCOVER",
            "[{ pattern = \"org.fac.sys.-.w*\", group = \"standby\" }]",
        ),
    ];
    let runtime = "[services.compute.timeouts]\nack_timeout = \"7s\"";
    let origin = Origin::Runtime("runtime.toml".into());
    options.runtime = Some(Tree::parse(origin, Format::Toml, runtime).unwrap());
    let loaded = loaded(options);
    let service = &loaded.configuration.services()["compute"];
    assert_eq!(service.settings.identity.as_str(), "org.fac.sys.-.other");
    assert_eq!(service.settings.job_failed_event, None);
    assert_eq!(*service.settings.discover[0].pattern, *"org.fac.sys.-.w*");
    assert_eq!(service.brokers["main"].port, 1999);
    assert_eq!(service.settings.targets[0].weight, 3.0);
    let lines = explain(&loaded.configuration, "compute").unwrap();
    let of = |path: &str| lines.iter().find(|line| line.path == path).unwrap();
    let ack = of("timeouts.ack_timeout");
    assert_eq!((ack.value.as_str(), ack.layer.as_str()), ("7s", "runtime"));
    let identity = of("identity");
    assert_eq!(identity.origin, "MAINSTAY_SERVICES__COMPUTE__IDENTITY");
}

#[test]
fn the_configuration_of_the_demo_is_valid() {
    let text = include_str!("../../../../examples/intersect/mainstay.toml");
    assert_eq!(lines(&check(toml(text))), "");
}

#[test]
fn what_only_connecting_shows_is_told_at_the_broker() {
    let configuration = loaded(toml(COMPUTE)).configuration;
    let told = |broker: &str| {
        let message = "refuses the login".to_owned();
        configuration.broker_problem("compute", broker, message, "check user and password")
    };
    assert_eq!(
        told("main").unwrap().to_string(),
        "mainstay.toml:6:27: error: services.compute.brokers.main: refuses the login (check user and password)"
    );
    assert_eq!(told("other"), None);
}

#[test]
fn configurations_differ_where_their_services_do() {
    let one = loaded(toml(COMPUTE)).configuration;
    let moved = format!("# further down\n{COMPUTE}");
    assert_eq!(one, loaded(toml(&moved)).configuration);
    let changed = COMPUTE.replace("127.0.0.1", "127.0.0.2");
    assert_ne!(one, loaded(toml(&changed)).configuration);
    assert!(Configuration::embedded("x").services().is_empty());
}

#[test]
fn yaml_and_json_have_the_same_tables() {
    let yaml = r#"
services:
  compute:
    identity: org.fac.sys.sub.compute
    capability_name: Compute
    strategy_group_order: [primary]
    brokers: {main: {protocol: mqtt5.0, host: 127.0.0.1}}
    timeouts: {ack_timeout: 5}
    operations: {run: {safety: read}}
    targets:
      a: {group: primary, destination: org.fac.sys.sub.one, operation_map: {run: Compute.run}}
"#;
    let json = r#"{"services": {"compute": {
"identity": "org.fac.sys.sub.compute",
"capability_name": "Compute",
"strategy_group_order": ["primary"],
"brokers": {"main": {"protocol": "mqtt5.0", "host": "127.0.0.1"}},
"timeouts": {
"ack_timeout": 5},
"operations": {"run": {"safety": "read"}},
"targets": {"a": {"group": "primary", "destination": "org.fac.sys.sub.one", "operation_map": {"run": "Compute.run"}}}
}}}"#;
    for (name, text, line) in [("a.yaml", yaml, 8), ("a.json", json, 7)] {
        // In the table of a service a time has its unit, however the file is written.
        let problems = check(options(&[(name, text)]));
        assert_eq!(problems.len(), 1, "{}", lines(&problems));
        assert_eq!(problems[0].message, "5 has no unit");
        assert_eq!(problems[0].path, "services.compute.timeouts.ack_timeout");
        assert_eq!(problems[0].line, Some(line));
    }
}
