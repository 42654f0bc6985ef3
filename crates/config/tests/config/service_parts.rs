//! What is wrong with brokers, targets, lists and policies of services, and with services beside each
//! other.

use mainstay_config::check;

use super::given::{COMPUTE, lines, options, toml};
use super::service_checks::table;

#[test]
fn brokers_are_known_and_say_what_their_protocol_knows() {
    table(&[
        (
            "group = \"primary\"",
            "group = \"primary\"\nbroker = \"mian\"",
            &["13 error: .targets.a.broker: there is no broker \"mian\""],
        ),
        (
            "capability_name",
            "fronts = [\"main\", \"second\"]\ncapability_name",
            &["4 error: .fronts: there is no broker \"second\""],
        ),
        (
            "capability_name",
            "fronts = []\ncapability_name",
            &["4 error: .fronts: is empty"],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"mqtt3.1.1\"",
            &["7 error: .brokers.main.protocol: mqtt3.1.1 is not spoken"],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"amqp\"\nport = 0",
            &[
                "7 error: .brokers.main.protocol: \"amqp\" is not known",
                "8 error: .brokers.main.port: 0 is not a port",
            ],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"mqtt5\"\nport = 70000\nvhost = \"/\"\nprefetch = 1\nkeep_alive = \"1ms\"",
            &[
                "8 error: .brokers.main.port: 70000 is not a port",
                "9 error: .brokers.main.vhost: says nothing to mqtt5",
                "10 error: .brokers.main.prefetch: 1 is out of bounds",
                "11 error: .brokers.main.keep_alive: 1ms is out of bounds",
            ],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"amqp091\"\nuser = \"me\"\nclient_id = \"x\"\nsession_expiry = \"1min\"",
            &[
                "9 error: .brokers.main.client_id: says nothing to amqp091",
                "10 error: .brokers.main.session_expiry: says nothing to amqp091",
            ],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"amqp091\"",
            &["6 error: .brokers.main: no user, and amqp091 has no login without one"],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"mqtt5\"\nuser = \"me\"\npassword = \"secret\"",
            &["9 warning: .brokers.main.password: a password is written out"],
        ),
        (
            "protocol = \"mqtt5\"",
            "protocol = \"mqtt5\"\nuser = \"\"\npassword = \"env:NOWHERE\"",
            &[
                "8 error: .brokers.main.user: is empty",
                "9 error: .brokers.main.password: does not resolve: the variable NOWHERE is not set",
            ],
        ),
        (
            "host = \"127.0.0.1\"",
            "host = \"127.0.0.1\"\n[services.compute.brokers.again]\nprotocol = \"mqtt5\"\nhost = \"127.0.0.1\"",
            &[
                "6 error: .brokers.main: another broker of this service is the same",
                "6 error: .brokers.main: another broker of this service is the same",
            ],
        ),
    ]);
}

#[test]
fn weights_and_open_work_have_bounds() {
    table(&[
        (
            "group = \"primary\"",
            "group = \"primary\"\nweight = 0\nmax_in_flight = 0",
            &[
                "13 error: .targets.a.weight: ",
                "14 error: .targets.a.max_in_flight: 0 would admit nothing",
            ],
        ),
        (
            "group = \"primary\"",
            "group = \"primary\"\nweight = -1\nmax_in_flight = 1000001",
            &[
                "13 error: .targets.a.weight: ",
                "14 error: .targets.a.max_in_flight: 1000001 is out of bounds",
            ],
        ),
        (
            "",
            "[services.compute.limits]\nrequests_max = 0\njobs_max = 99999999\nbody_max = 5\nheaders_max = \"1GiB\"",
            &[
                "20 error: .limits.requests_max: 0 would admit nothing",
                "21 error: .limits.jobs_max: 99999999 is out of bounds",
                "22 error: .limits.body_max: 5 has no unit",
                "23 error: .limits.headers_max: 1073741824 is out of bounds",
            ],
        ),
    ]);
}

#[test]
fn lists_of_tables_are_checked_item_by_item() {
    table(&[
        (
            "",
            "[[services.compute.discover]]\npattern = \"org.fac.sys.-.w*\"\ngroup = \"standy\"\nbroker = \"x\"\nweight = 0\nmax_in_flight = 0\ncolour = 1",
            &[
                "21 error: .discover[0].group: the group \"standy\" is not in strategy_group_order",
                "22 error: .discover[0].broker: there is no broker \"x\"",
                "23 error: .discover[0].weight: ",
                "24 error: .discover[0].max_in_flight: 0 would admit nothing",
                "25 error: .discover[0].colour: unknown key",
            ],
        ),
        (
            "",
            "[[services.compute.discover]]\npattern = \"org.fac.*\"\n[[services.compute.errors]]\nprefix = \"\"\ncategory = \"transent\"\n[[services.compute.errors]]",
            &[
                "19 error: .discover[0]: no group",
                "20 error: .discover[0].pattern: \"org.fac.*\" fits no name: it has 3 parts",
                "22 error: .errors[0].prefix: is empty",
                "23 error: .errors[0].category: \"transent\" is not known",
                "24 error: .errors[1]: no category",
                "24 error: .errors[1]: no prefix",
            ],
        ),
        (
            "capability_name",
            "discover = 3\nerrors = [4]\ncapability_name",
            &[
                "4 error: .discover: expected a list of tables",
                "5 error: .errors[0]: expected a table, got a whole number",
            ],
        ),
        (
            "",
            "[services.compute.object_stores.a]\nurl = \"minio:9000\"\nuser = \"u\"\npassword = \"p\"\n[services.compute.object_stores.b]",
            &[
                "20 error: .object_stores.a.url: is no base address of a store",
                "22 warning: .object_stores.a.password: a password is written out",
                "23 error: .object_stores.b: no password",
                "23 error: .object_stores.b: no url",
                "23 error: .object_stores.b: no user",
            ],
        ),
    ]);
}

#[test]
fn a_pattern_fits_some_name() {
    for (pattern, fits) in [
        ("org.fac.sys.-.worker-*", true),
        ("*.*.*.*.*", true),
        ("org.fac.sys.*.w*r", true),
        ("org.fac.sys.-.*-", true),
        ("org.fac.sys.-.worker", true),
        ("org.fac.sys.-.Worker-*", false),
        ("org.fac.sys.-.9*", false),
        ("org.fac.sys.-.w--*", false),
        ("org.fac.-.-.w*", false),
        ("org.fac.sys.-.wo", false),
        ("org.fac.sys.-.w?r", false),
        ("org.fac.sys.-.", false),
        ("*", false),
    ] {
        let text = format!(
            "{COMPUTE}[[services.compute.discover]]\npattern = {pattern:?}\ngroup = \"standby\""
        );
        let told = lines(&check(toml(&text)));
        assert_eq!(!told.contains("fits no name"), fits, "{pattern}: {told}");
    }
}

#[test]
fn what_has_a_key_of_its_own_is_not_set_in_a_policy() {
    table(&[
        (
            "",
            "[services.compute.policy.route]\nstrategy = \"p2c\"\n[services.compute.targets.a.policy.retry]\nattempt_timeout = \"1s\"",
            &[
                "20 error: .policy.route.strategy: the strategy of a service is its key strategy",
                "22 error: .targets.a.policy.retry.attempt_timeout: the limit of an attempt is",
            ],
        ),
        (
            "",
            "[services.compute.retry]\ncount = 3\n[services.compute.policy.retry]\nattempts_max = 2\ndelay = \"1s\"",
            &[
                "22 error: .policy.retry.attempts_max: already given by services.compute.retry.count",
            ],
        ),
        (
            "group = \"primary\"",
            "group = \"primary\"\nmax_in_flight = 3\npolicy.limits.concurrency = 4",
            &[
                "14 error: .targets.a.policy.limits.concurrency: already given by services.compute.targets.a.max_in_flight",
            ],
        ),
        (
            "\n[services.compute]\n",
            "\npolicy.preset = \"conservative\"\n[services.compute]\n",
            &["3 warning: : starts from the preset conservative of [policy]"],
        ),
    ]);
    // Named by the service itself, or for all of them, it is meant.
    for text in [
        COMPUTE.replace(
            "[services.compute]\n",
            "[services.compute]\npreset = \"conservative\"\n",
        ),
        format!("{COMPUTE}[message]\npreset = \"conservative\"\n[policy]\npreset = \"balanced\""),
        format!("{COMPUTE}[message]\npreset = \"service\"\n[policy]\npreset = \"balanced\""),
    ] {
        assert_eq!(lines(&check(toml(&text))), "", "{text}");
    }
    let told = lines(&check(toml(&format!("{COMPUTE}[message]\nconnection = 3"))));
    assert!(told.contains("message.connection: unknown key"), "{told}");
}

#[test]
fn two_services_take_no_name_twice_on_one_broker() {
    let second = |from: &str, to: &str| {
        let text = COMPUTE.replace("services.compute", "services.second");
        format!("{COMPUTE}{}", text.replace(from, to))
    };
    let told = lines(&check(toml(&second("x", "x"))));
    let expected = "mainstay.toml:21:1: error: services.second.identity: org.fac.sys.sub.compute is also the identity of services.compute on the same broker (each service takes names of its own)";
    assert!(told.contains(expected), "{told}");
    let told = lines(&check(toml(&second("sub.compute\"", "sub.compute-two\""))));
    assert_eq!(told, "");
    let told = lines(&check(toml(&second("127.0.0.1", "127.0.0.2"))));
    assert_eq!(told, "");
    let as_caller = second(
        "identity = \"org.fac.sys.sub.compute\"",
        "identity = \"org.fac.sys.sub.two\"\ncaller = \"org.fac.sys.sub.compute\"",
    );
    let told = lines(&check(toml(&as_caller)));
    let expected =
        "services.second.caller: org.fac.sys.sub.compute is also the identity of services.compute";
    assert!(told.contains(expected), "{told}");
    let with_id = second("sub.compute\"", "sub.compute-two\"").replace(
        "host = \"127.0.0.1\"",
        "host = \"127.0.0.1\"\nclient_id = \"one\"",
    );
    let told = lines(&check(toml(&with_id)));
    let expected =
        "services.second.brokers.main.client_id: one is also the client_id of services.compute";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_service_that_only_a_variable_names_is_a_slip() {
    let mut options = toml(COMPUTE);
    options.environment = vec![(
        "MAINSTAY_SERVICES__COMPUT__IDENTITY".to_owned(),
        "org.fac.sys.sub.x-y".to_owned(),
    )];
    let told = lines(&check(options));
    let expected = "MAINSTAY_SERVICES__COMPUT__IDENTITY: error: services.comput: there is no service comput (did you mean compute?)";
    assert_eq!(told, expected);
}

const MISTAKES_TOML: &str = r#"
[services.compute]
identity = "org.fac.sys.compute"
capability_name = "Compute"
strategy_group_order = ["primary", "spare"]
[services.compute.timeouts]
ack_timeout = "90s"
[services.compute.brokers.main]
protocol = "mqtt5"
host = "127.0.0.1"
port = 70000
[services.compute.operations.run]
safety = "read"
last_result = "status"
[services.compute.operations.walk]
safety = "read"
[services.compute.targets.a]
group = "primary"
destination = "org.fac.sys.-.one"
operation_map = { run = "Compute.run" }
weight = -1
[services.compute.targets.b]
group = "primary"
destination = "org.fac.sys.-.one"
operation_map = { run = "run" }
broker = "other"
"#;

const MISTAKES_YAML: &str = "
services:
  compute:
    identity: org.fac.sys.compute
    capability_name: Compute
    strategy_group_order: [primary, spare]
    timeouts:
      ack_timeout: 90s
    brokers:
      main: {protocol: mqtt5, host: 127.0.0.1, port: 70000}
    operations:
      run: {safety: read, last_result: status}
      walk: {safety: read}
    targets:
      a:
        group: primary
        destination: org.fac.sys.-.one
        operation_map: {run: Compute.run}
        weight: -1
      b:
        group: primary
        destination: org.fac.sys.-.one
        operation_map: {run: run}
        broker: other
";

const MISTAKES_JSON: &str = r#"{"services": {"compute": {
"identity": "org.fac.sys.compute",
"capability_name": "Compute",
"strategy_group_order": ["primary", "spare"],
"timeouts": {"ack_timeout": "90s"},
"brokers": {"main": {"protocol": "mqtt5", "host": "127.0.0.1", "port": 70000}},
"operations": {"run": {"safety": "read", "last_result": "status"}, "walk": {"safety": "read"}},
"targets": {
"a": {"group": "primary", "destination": "org.fac.sys.-.one",
"operation_map": {"run": "Compute.run"}, "weight": -1},
"b": {"group": "primary", "destination": "org.fac.sys.-.one",
"operation_map": {"run": "run"}, "broker": "other"}}}}}"#;

#[test]
fn the_same_mistakes_are_told_alike_and_at_once_in_each_format() {
    let expected = [
        "identity: \"org.fac.sys.compute\" has 4 parts instead of five",
        "strategy_group_order: no target is in the group \"spare\"",
        "timeouts.ack_timeout: ack_timeout (90s) is above result_timeout (1min)",
        "brokers.main.port: 70000 is not a port",
        "operations.run.last_result: ",
        "operations.run.last_result: has no effect: the reply is the result",
        "operations.walk: no target maps this operation",
        "targets.a.weight: ",
        "targets.b.broker: there is no broker \"other\"",
        "targets.b.operation_map.run: \"run\" is no operation of a service",
    ];
    for (name, text) in [
        ("a.toml", MISTAKES_TOML),
        ("a.yaml", MISTAKES_YAML),
        ("a.json", MISTAKES_JSON),
    ] {
        let problems = check(options(&[(name, text)]));
        let all = lines(&problems);
        let mut got: Vec<String> = problems
            .iter()
            .map(|problem| format!("{}: {}", problem.path, problem.message))
            .collect();
        got.sort();
        let mut wanted: Vec<String> = expected
            .iter()
            .map(|line| format!("services.compute.{line}"))
            .collect();
        wanted.sort();
        assert_eq!(got.len(), wanted.len(), "{all}");
        for (got, wanted) in got.iter().zip(&wanted) {
            assert!(
                got.starts_with(wanted),
                "expected {wanted}\ngot {got}\n{all}"
            );
        }
        for problem in &problems {
            // The key, or its value, stands in that line.
            let number = problem.line.expect("a line") as usize;
            let line = text.lines().nth(number - 1).expect("the line");
            let key = problem.path.rsplit('.').next().expect("a key");
            assert!(line.contains(key), "{problem}: {line}");
        }
    }
}
