//! What is wrong with services, as tables of a change and the problems that it makes.

use mainstay_config::check;

use super::given::{COMPUTE, lines, toml};

/// What a service that is right becomes wrong by: the old text, the new one, and the problems. An empty
/// old text: the new one is added at the end, behind line 18.
pub(super) type Row = (&'static str, &'static str, &'static [&'static str]);

pub(super) fn table(rows: &[Row]) {
    for (old, new, expected) in rows {
        let text = match old.is_empty() {
            true => format!("{COMPUTE}{new}"),
            false => COMPUTE.replacen(old, new, 1),
        };
        assert_ne!(text, COMPUTE, "{old}");
        let problems = check(toml(&text));
        let got: Vec<String> = problems
            .iter()
            .map(|problem| {
                let line = problem
                    .line
                    .map_or_else(|| "-".into(), |line| line.to_string());
                let path = problem.path.replacen("services.compute", "", 1);
                let (severity, message) = (problem.severity, &problem.message);
                format!("{line} {severity}: {path}: {message}")
            })
            .collect();
        let all = lines(&problems);
        assert_eq!(got.len(), expected.len(), "{text}\n{all}");
        for (got, expected) in got.iter().zip(*expected) {
            assert!(
                got.starts_with(expected),
                "{text}\nexpected {expected}\ngot {got}"
            );
        }
        for problem in &problems {
            assert!(problem.hint.is_some(), "no way out: {problem}");
        }
    }
}

#[test]
fn a_service_has_names_brokers_and_targets() {
    table(&[
        (
            "identity = \"org.fac.sys.sub.compute\"\n",
            "",
            &["2 error: : no identity"],
        ),
        (
            "capability_name = \"Compute\"\n",
            "",
            &["2 error: : no capability_name"],
        ),
        (
            "protocol = \"mqtt5\"\n",
            "",
            &["6 error: .brokers.main: no protocol"],
        ),
        (
            "host = \"127.0.0.1\"\n",
            "",
            &["6 error: .brokers.main: no host"],
        ),
        (
            "group = \"primary\"\n",
            "",
            &["11 error: .targets.a: no group"],
        ),
        (
            "destination = \"org.fac.sys.sub.compute-a\"\n",
            "",
            &["11 error: .targets.a: no destination"],
        ),
        (
            "operation_map = { run = \"Compute.run\" }\n",
            "",
            &["11 error: .targets.a: no operation_map"],
        ),
        (
            "identity = \"org.fac.sys.sub.compute\"",
            "identity = \"\"\ncolour = 3",
            &[
                "3 error: .identity: \"\" has 1 parts instead of five",
                "4 error: .colour: unknown key",
            ],
        ),
    ]);
    let problems = check(toml(
        "[services.x]\nidentity = \"org.fac.sys.sub.x-y\"\ncapability_name = \"X\"",
    ));
    let told = lines(&problems);
    assert!(told.contains("no broker to reach it through"), "{told}");
    assert!(
        told.contains("no targets, so there is nothing to call"),
        "{told}"
    );
    let problems = check(toml(&format!(
        "[sources.compute]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.compute.endpoints.a]{COMPUTE}"
    )));
    assert!(lines(&problems).contains("a source is called compute too"));
    let listed = COMPUTE
        .split("[services.compute.targets.a]")
        .next()
        .unwrap();
    let told = lines(&check(toml(&format!(
        "{listed}[[services.compute.targets]]\nname = \"a\""
    ))));
    let expected = "services.compute.targets: expected a table, got a list (a table for each by its name: [services.compute.targets.NAME])";
    assert!(told.contains(expected), "{told}");
    assert!(!told.contains("no targets"), "{told}");
    let key = "[server.keys.k]\nrole = \"read\"\nsources = [\"compute\"]";
    let hash = "0123456789abcdef".repeat(4);
    let told = lines(&check(toml(&format!("{key}\nsha256 = {hash:?}{COMPUTE}"))));
    assert_eq!(told, "");
    let problems = check(toml("services = 3"));
    assert!(lines(&problems).contains("services: expected a table"));
}

#[test]
fn names_follow_the_rules_and_are_told_apart() {
    table(&[
        (
            "sub.compute\"",
            "Sub.compute\"",
            &["3 error: .identity: \"Sub\" in \"org.fac.sys.Sub.compute\" is no subsystem"],
        ),
        (
            "capability_name = \"Compute\"",
            "capability_name = \"Com.pute\"",
            &["4 error: .capability_name: \"Com.pute\" is no name of a capability"],
        ),
        (
            "capability_name",
            "caller = \"org.fac.sys.sub\"\ncapability_name",
            &["4 error: .caller: \"org.fac.sys.sub\" has 4 parts"],
        ),
        (
            "capability_name",
            "caller = \"org.fac.sys.sub.compute\"\ncapability_name",
            &["4 error: .caller: is the identity itself"],
        ),
        (
            "capability_name",
            "caller = \"org.fac.sys.sub.compute-b\"\ncapability_name",
            &["4 error: .caller: the caller org.fac.sys.sub.compute-b is the target b"],
        ),
        (
            "org.fac.sys.sub.compute-a",
            "org.fac.sys.sub.compute-proxy",
            &["2 error: : the caller org.fac.sys.sub.compute-proxy is the target a"],
        ),
        (
            "org.fac.sys.sub.compute\"",
            "org.fac.sys.sub.compute-\"",
            &["3 error: .identity: no caller, and the identity with -proxy behind it"],
        ),
        (
            "org.fac.sys.sub.compute-a",
            "org.fac.sys.sub.compute_a",
            &["13 error: .targets.a.destination: \"compute_a\" in"],
        ),
        (
            "org.fac.sys.sub.compute-b",
            "org.fac.sys.sub.compute-a",
            &["17 error: .targets.b.destination: the target a has this destination"],
        ),
        (
            "org.fac.sys.sub.compute-a",
            "org.fac.sys.sub.compute",
            &["13 error: .targets.a.destination: is the identity itself"],
        ),
        (
            "[services.compute.targets.b]",
            "[services.compute.targets.\"b/c\"]",
            &["15 error: .targets.b/c: \"b/c\" is no name"],
        ),
    ]);
}

#[test]
fn groups_are_those_of_targets() {
    table(&[
        (
            "[\"primary\", \"standby\"]",
            "[\"primary\", \"standby\", \"spare\"]",
            &["5 error: .strategy_group_order: no target is in the group \"spare\""],
        ),
        (
            "group = \"standby\"",
            "group = \"stanby\"",
            &["16 error: .targets.b.group: the group \"stanby\" is not in strategy_group_order"],
        ),
        (
            "[\"primary\", \"standby\"]",
            "[]",
            &["5 error: .strategy_group_order: is empty"],
        ),
        (
            "[\"primary\", \"standby\"]",
            "[\"primary\", \"primary\"]",
            &["5 error: .strategy_group_order: \"primary\" stands twice"],
        ),
    ]);
}

#[test]
fn times_are_not_negative_and_acknowledgements_come_before_results() {
    let times = "[services.compute.timeouts]\n";
    assert_eq!(times.lines().count(), 1);
    table(&[
        (
            "",
            "[services.compute.timeouts]\nack_timeout = \"-1s\"\nresult_timeout = -2\nheartbeat_interval = -0.5",
            &[
                "20 error: .timeouts.ack_timeout: -1s is negative",
                "21 error: .timeouts.result_timeout: -2 is negative",
                "22 error: .timeouts.heartbeat_interval: -0.5 is negative",
            ],
        ),
        (
            "",
            "[services.compute.timeouts]\nack_timeout = 5",
            &["20 error: .timeouts.ack_timeout: 5 has no unit"],
        ),
        (
            "",
            "[services.compute.timeouts]\nack_timeout = \"2min\"",
            &["20 error: .timeouts.ack_timeout: ack_timeout (2min) is above result_timeout (1min)"],
        ),
        (
            "",
            "[services.compute.timeouts]\nresult_timeout = \"1s\"",
            &["20 error: .timeouts.result_timeout: ack_timeout (5s) is above result_timeout (1s)"],
        ),
        (
            "safety = \"read\"",
            "safety = \"read\"\nack_timeout = \"75s\"",
            &[
                "11 error: .operations.run.ack_timeout: ack_timeout (75s) is above result_timeout (1min)",
            ],
        ),
        (
            "",
            "[services.compute.timeouts]\nack_timeout = \"0s\"\nmissed_intervals = 0\nack = \"1s\"",
            &[
                "20 error: .timeouts.ack_timeout: 0ns is out of bounds",
                "21 error: .timeouts.missed_intervals: 0 is out of bounds",
                "22 error: .timeouts.ack: unknown key",
            ],
        ),
        (
            "",
            "[services.compute.retry]\ncount = -1\ndelay = \"-1s\"\nbackoff = 0.5",
            &[
                "20 error: .retry.count: expected a whole number from 0",
                "21 error: .retry.delay: -1s is negative",
                "22 error: .retry.backoff: 0.5 is out of bounds",
            ],
        ),
    ]);
}

#[test]
fn operations_are_mapped_declared_and_readable() {
    table(&[
        (
            "",
            "[services.compute.operations.rum]\nsafety = \"read\"",
            &["19 error: .operations.rum: no target maps this operation"],
        ),
        (
            "[services.compute.operations.run]\nsafety = \"read\"\n",
            "",
            &["12 warning: .operations.run: has no safety"],
        ),
        (
            "safety = \"read\"\n",
            "",
            &["9 warning: .operations.run: has no safety"],
        ),
        (
            "safety = \"read\"",
            "safety = \"reed\"",
            &["10 error: .operations.run.safety: \"reed\" is not known"],
        ),
        (
            "safety = \"read\"",
            "safety = \"read\"\nkind = \"job\"",
            &[
                "9 warning: .operations.run: has no job_key",
                "9 warning: .operations.run: has no last_result",
            ],
        ),
        (
            "safety = \"read\"",
            "safety = \"read\"\njob_key = \"/id\"",
            &["11 warning: .operations.run.job_key: has no effect"],
        ),
        (
            "safety = \"read\"",
            "safety = \"read\"\nkind = \"job\"\njob_key = \"id\"\nlast_result = '/status = 1'\nacknowledged = '/a =='",
            &[
                "12 error: .operations.run.job_key: a JSON pointer begins with '/' at character 1",
                "13 error: .operations.run.last_result: ",
                "14 error: .operations.run.acknowledged: ",
            ],
        ),
        (
            "{ run = \"Compute.run\" }",
            "{ run = \"Compute.run\", stop = \"Compute.stop\" }",
            &[
                "14 warning: .operations.stop: has no safety",
                "18 warning: .targets.b.operation_map: stop is not mapped",
            ],
        ),
        (
            "{ run = \"Compute.run\" }",
            "{ run = \"run\" }",
            &["14 error: .targets.a.operation_map.run: \"run\" is no operation of a service"],
        ),
        (
            "{ run = \"Compute.run\" }",
            "{ run = \"Compute.run.fast\" }",
            &["14 error: .targets.a.operation_map.run: \"Compute.run.fast\" is no operation"],
        ),
        (
            "{ run = \"Compute.run\" }",
            "{ run = \"Compute.run\", \"Compute.x\" = \"Compute.x\" }",
            &["14 error: .targets.a.operation_map.Compute.x: \"Compute.x\" is no function"],
        ),
        (
            "capability_name",
            "status_operation = \"status\"\njob_failed_event = \"a/b\"\ncapability_name",
            &[
                "4 error: .status_operation: \"status\" is no operation of a service",
                "5 error: .job_failed_event: \"a/b\" is no name",
            ],
        ),
    ]);
}

#[test]
fn an_expression_that_does_not_parse_is_told_with_its_place() {
    let text = COMPUTE.replace(
        "safety = \"read\"",
        "safety = \"read\"\nkind = \"job\"\njob_key = \"/id\"\nlast_result = '/status = 1'",
    );
    let problems = check(toml(&text));
    let problem = &problems[0];
    assert_eq!(
        (problem.line, problem.column),
        (Some(13), Some(15)),
        "{problem}"
    );
    assert!(problem.message.ends_with("at character 9"), "{problem}");
    assert!(
        problem
            .hint
            .as_deref()
            .unwrap()
            .starts_with("write for example")
    );
}
