//! Files of one service alone, in YAML or JSON, as the first proxy for such services read them.

use std::time::Duration;

use mainstay_config::{Configuration, Input, LoadOptions, Loaded, check, explain};
use mainstay_message::settings::Spread;

use super::given::{lines, loaded, options};

/// Nothing but the keys that such a file has.
pub(crate) const YAML: &str = "\
capability_name: Compute
strategy: active_standby
strategy_group_order: [primary, standby]
retry:
  count: 1
  delay: 0.5
  backoff: 2.0
timeouts:
  ack_timeout: 5
  result_timeout: 60.0
  heartbeat_interval: 30
  missed_intervals: 3
targets:
  - name: primary-a
    group: primary
    destination: org.fac.sys.sub.primary
    operation_map:
      run_compute_job: Compute.run_compute_job
  - name: standby-b
    group: standby
    destination: org.fac.sys.sub.standby
    operation_map:
      run_compute_job: Compute.run_compute_job
    weight: 2
";

pub(crate) const JSON: &str = r#"{
"capability_name": "Compute",
"strategy": "active_standby",
"strategy_group_order": ["primary", "standby"],
"retry": {"count": 1, "delay": 0.5, "backoff": 2.0},
"timeouts": {"ack_timeout": 5, "result_timeout": 60.0, "heartbeat_interval": 30, "missed_intervals": 3.0},
"targets": [
{"name": "primary-a", "group": "primary", "destination": "org.fac.sys.sub.primary",
"operation_map": {"run_compute_job": "Compute.run_compute_job"}},
{"name": "standby-b", "group": "standby", "destination": "org.fac.sys.sub.standby",
"operation_map": {"run_compute_job": "Compute.run_compute_job"}, "weight": 2}
]}"#;

/// What such a file lacks.
const REST: &str = r#"
[services.compute]
identity = "org.fac.sys.sub.compute"
[services.compute.brokers.main]
protocol = "mqtt5"
host = "127.0.0.1"
[services.compute.operations.run_compute_job]
safety = "idempotent_write"
"#;

fn assert_is_whole(loaded: &Loaded) {
    assert_eq!(lines(&loaded.warnings), "");
    let service = &loaded.configuration.services()["compute"];
    let settings = &service.settings;
    assert_eq!(*settings.capability_name, *"Compute");
    assert_eq!(settings.identity.as_str(), "org.fac.sys.sub.compute");
    assert_eq!(settings.spread, Spread::ActiveStandby);
    assert_eq!(settings.group_order.join(" "), "primary standby");
    let times = &settings.timeouts;
    assert_eq!(times.ack_timeout, Duration::from_secs(5));
    assert_eq!(times.result_timeout, Duration::from_secs(60));
    assert_eq!(times.heartbeat_interval, Duration::from_secs(30));
    assert_eq!(times.missed_intervals, 3);
    let retry = &settings.policy.retry;
    assert_eq!((retry.attempts_max, retry.factor), (2, 2.0));
    assert_eq!(retry.delay, Duration::from_millis(500));
    let targets = settings.targets.iter();
    let targets: Vec<_> = targets
        .map(|target| (&*target.name, &*target.group, target.weight))
        .collect();
    assert_eq!(
        targets,
        [("primary-a", "primary", 1.0), ("standby-b", "standby", 2.0)]
    );
}

#[test]
fn the_file_of_one_service_is_taken_as_it_is_beside_another_file() {
    for (name, text) in [
        ("proxy.yaml", YAML),
        ("proxy.yml", YAML),
        ("proxy.json", JSON),
    ] {
        assert_is_whole(&loaded(options(&[(name, text), ("more.toml", REST)])));
        assert_is_whole(&loaded(options(&[("more.toml", REST), (name, text)])));
    }
}

#[test]
fn what_it_lacks_may_come_from_variables() {
    let mut options = options(&[("proxy.yaml", YAML)]);
    let variables = [
        ("IDENTITY", "org.fac.sys.sub.compute"),
        ("BROKERS__MAIN__PROTOCOL", "mqtt5"),
        ("BROKERS__MAIN__HOST", "127.0.0.1"),
        ("OPERATIONS__RUN_COMPUTE_JOB__SAFETY", "idempotent_write"),
    ];
    let name = |key: &str| format!("MAINSTAY_SERVICES__COMPUTE__{key}");
    let variables = variables.map(|(key, value)| (name(key), value.to_owned()));
    options.environment = variables.into();
    assert_is_whole(&loaded(options));
}

#[test]
fn what_it_lacks_may_stand_in_it() {
    let text = format!(
        "{YAML}identity: org.fac.sys.sub.compute\nbrokers:\n  main: {{protocol: mqtt5, host: 127.0.0.1, keep_alive: 10}}\noperations:\n  run_compute_job: {{safety: idempotent_write, ack_timeout: 7.5}}\nserver:\n  listen: 127.0.0.1:7718\n"
    );
    let loaded = loaded(options(&[("proxy.yaml", &text)]));
    assert_is_whole(&loaded);
    assert_eq!(loaded.configuration.server.listen.port(), 7718);
    let service = &loaded.configuration.services()["compute"];
    let operation = service.settings.operation("run_compute_job");
    assert_eq!(operation.ack_timeout, Some(Duration::from_millis(7500)));
    assert_eq!(service.brokers["main"].keep_alive, Duration::from_secs(10));
}

#[test]
fn what_it_lacks_is_told_with_the_ways_to_give_it() {
    let problems = check(options(&[("proxy.yaml", YAML)]));
    let told = lines(&problems);
    let expected = "\
proxy.yaml:1:1: error: services.compute: no broker to reach it through ([services.compute.brokers.main] with protocol and host, in a further --config, or as MAINSTAY_SERVICES__COMPUTE__BROKERS__MAIN__PROTOCOL and …__HOST)
proxy.yaml:1:1: error: services.compute: no identity, the name to take over (identity = \"org.fac.sys.sub.name\" in [services.compute], in a further --config, or as MAINSTAY_SERVICES__COMPUTE__IDENTITY)
proxy.yaml:18:7: warning: services.compute.operations.run_compute_job: has no safety, so it is driven again after a failure (safety = \"idempotent_write\" if that does no harm, \"write\" if it does, \"read\" if it changes nothing)";
    assert_eq!(told, expected);
}

#[test]
fn what_is_wrong_in_it_is_told_with_its_line() {
    let rows = [
        (
            "  ack_timeout: 5\n",
            "  ack_timeout: -5\n",
            9,
            "timeouts.ack_timeout: -5 is negative",
        ),
        (
            "  ack_timeout: 5\n",
            "  ack_timeout: -0.5\n",
            9,
            "timeouts.ack_timeout: -0.5 is negative",
        ),
        (
            "  ack_timeout: 5\n",
            "  ack_timeout: .inf\n",
            9,
            "timeouts.ack_timeout: inf has no unit",
        ),
        (
            "  ack_timeout: 5\n",
            "  ack_timeout: soon\n",
            9,
            "timeouts.ack_timeout: \"soon\" is not a duration",
        ),
        (
            "  ack_timeout: 5\n",
            "  ack_timeout: 61\n",
            9,
            "timeouts.ack_timeout: ack_timeout (61s) is above",
        ),
        (
            "  missed_intervals: 3\n",
            "  missed_intervals: 2.5\n",
            12,
            "timeouts.missed_intervals: expected a whole number",
        ),
        (
            "  delay: 0.5\n",
            "  delay: 1e9\n",
            6,
            "retry.delay: \"1000000000s\" is longer than a year",
        ),
        (
            "  delay: 0.5\n",
            "  delay: 7200\n",
            6,
            "retry.delay: 2h is out of bounds",
        ),
        (
            "  count: 1\n",
            "  count: -1\n",
            5,
            "retry.count: expected a whole number",
        ),
        ("  backoff: 2.0\n", "  backoff: 0.5\n", 7, "retry.factor: "),
        (
            "name: standby-b",
            "name: primary-a",
            19,
            "targets.primary-a: the target primary-a stands twice, first in line 14",
        ),
        (
            "  - name: standby-b\n    group",
            "  - group",
            19,
            "targets[1]: no name",
        ),
        (
            "name: standby-b",
            "name: true",
            19,
            "targets[1].name: expected text, got true",
        ),
        (
            "    weight: 2\n",
            "    weight: 0\n",
            24,
            "targets.standby-b.weight: ",
        ),
        (
            "    weight: 2\n",
            "    wieght: 2\n",
            24,
            "targets.standby-b.wieght: unknown key",
        ),
        (
            "strategy: active_standby",
            "strategy: weigthed",
            2,
            "strategy: \"weigthed\" is not known",
        ),
        (
            "strategy: active_standby",
            "stratgy: weighted",
            2,
            "stratgy: unknown key",
        ),
    ];
    for (old, new, line, message) in rows {
        assert!(YAML.contains(old), "{old}");
        let text = YAML.replace(old, new);
        let mut problems = check(options(&[("proxy.yaml", &text), ("more.toml", REST)]));
        problems.retain(|problem| problem.is_error());
        let told = lines(&problems);
        let place = format!("proxy.yaml:{line}:");
        let own = message.strip_prefix("retry.factor: ");
        let path = match own {
            Some(_) => "error: services.compute.retry.backoff: ".to_owned(),
            None => format!("error: services.compute.{message}"),
        };
        let is_told = told
            .lines()
            .any(|told| told.starts_with(&place) && told.contains(&path));
        assert!(is_told, "{new}\n{told}");
    }
}

#[test]
fn a_file_without_a_capability_is_called_after_itself() {
    let text = YAML.replace("capability_name: Compute\n", "");
    let problems = check(options(&[("my proxy.yaml", &text)]));
    let told = lines(&problems);
    assert!(
        told.contains("services.my_proxy: no capability_name"),
        "{told}"
    );
}

#[test]
fn files_of_other_forms_are_left_as_they_are() {
    // In TOML these are keys that nobody knows.
    let problems = check(options(&[("proxy.toml", "capability_name = \"Compute\"")]));
    assert!(lines(&problems).contains("capability_name: unknown key"));
    let loaded = loaded(options(&[("a.yaml", "server: {listen: 127.0.0.1:1}")]));
    assert!(loaded.configuration.services().is_empty());
}

/// A folder with the file of a service and one that names it.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(own: &str, named: &str, text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("sub")).expect("a folder");
        std::fs::write(folder.path().join("mainstay.toml"), own).expect("a file");
        std::fs::write(folder.path().join(named), text).expect("a file");
        Folder(folder)
    }

    fn options(&self) -> LoadOptions {
        LoadOptions {
            files: vec![Input::File(self.0.path().join("mainstay.toml"))],
            ..options(&[])
        }
    }

    fn told(&self) -> String {
        let told = lines(&check(self.options()));
        told.replace(&self.0.path().display().to_string(), "…")
    }
}

fn with_file(file: &str) -> String {
    REST.replace(
        "[services.compute]\n",
        &format!("[services.compute]\nfile = {file:?}\n"),
    )
}

#[test]
fn a_service_may_name_the_file_of_its_keys() {
    let own = with_file("sub/proxy.yaml")
        + "[services.compute.timeouts]\nresult_timeout = \"90s\"\n[services.compute.targets.standby-b]\nweight = 7\n";
    let folder = Folder::new(&own, "sub/proxy.yaml", YAML);
    let mut options = folder.options();
    options.environment = vec![(
        "MAINSTAY_SERVICES__COMPUTE__TARGETS__PRIMARY-A__WEIGHT".to_owned(),
        "3".to_owned(),
    )];
    let loaded = loaded(options);
    assert_eq!(lines(&loaded.warnings), "");
    let service = &loaded.configuration.services()["compute"];
    let settings = &service.settings;
    assert_eq!(settings.timeouts.result_timeout, Duration::from_secs(90));
    assert_eq!(settings.timeouts.ack_timeout, Duration::from_secs(5));
    let weights = settings.targets.iter().map(|target| target.weight);
    assert_eq!(weights.collect::<Vec<_>>(), [3.0, 7.0]);
    let file = folder.0.path().join("sub/proxy.yaml");
    assert_eq!(service.file.as_deref(), Some(&*file));

    let lines = explain(&loaded.configuration, "compute").unwrap();
    let of = |path: &str| lines.iter().find(|line| line.path == path).unwrap();
    let ack = of("timeouts.ack_timeout");
    let (layer, line) = (ack.layer.as_str(), ack.line);
    assert_eq!((layer, line), ("file of [services.compute]", Some(9)));
    assert_eq!(ack.origin, file.display().to_string());
    let result = of("timeouts.result_timeout");
    assert_eq!(result.layer, "[services.compute.timeouts]");
    let count = of("policy.retry.attempts_max");
    assert_eq!((count.value.as_str(), count.line), ("2", Some(5)));
}

#[test]
fn a_file_that_cannot_be_used_is_told_where_it_is_named() {
    let rows = [
        (
            "none.yaml",
            YAML,
            "…/mainstay.toml:3:1: error: services.compute.file: …/none.yaml cannot be read",
        ),
        (
            "proxy.yaml",
            "targets: [",
            "…/proxy.yaml:2:1: error: not YAML",
        ),
        (
            "proxy.toml",
            YAML,
            "…/mainstay.toml:3:1: error: services.compute.file: is neither YAML nor JSON",
        ),
        (
            "proxy.yaml",
            "file: other.yaml",
            "…/proxy.yaml:1:1: error: services.compute.file: a file below a file",
        ),
        (
            "proxy.yaml",
            "colour: red",
            "…/proxy.yaml:1:1: error: services.compute.colour: unknown key",
        ),
        (
            "proxy.yaml",
            "targets: [3]",
            "…/proxy.yaml:1:11: error: services.compute.targets[0]: expected a target",
        ),
        (
            "proxy.yaml",
            "targets: 3",
            "…/proxy.yaml:1:1: error: services.compute.targets: expected a table",
        ),
    ];
    for (file, text, message) in rows {
        let folder = Folder::new(&with_file(file), "proxy.yaml", text);
        let told = folder.told();
        assert!(told.contains(message), "{file} {text}\n{told}");
    }
}

#[test]
fn a_file_that_only_a_variable_names_is_told() {
    let mut options = options(&[("more.toml", REST)]);
    options.environment = vec![(
        "MAINSTAY_SERVICES__COMPUTE__FILE".to_owned(),
        "proxy.yaml".to_owned(),
    )];
    let told = lines(&Configuration::load(options).unwrap_err());
    assert!(
        told.contains("MAINSTAY_SERVICES__COMPUTE__FILE: error: services.compute.file: "),
        "{told}"
    );
}
