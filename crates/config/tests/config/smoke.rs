use mainstay_config::{Configuration, Driver, check, explain, init_text};
use mainstay_engine::Role;

use super::given::{ORDERS, lines, loaded, options, toml};

#[test]
fn without_a_file_there_is_an_embedded_source_with_one_writer_and_two_readers() {
    let loaded = loaded(options(&[]));
    assert_eq!(loaded.warnings, []);
    let demo = &loaded.configuration.sources["demo"];
    assert_eq!(demo.driver, Driver::Sqlite);
    let roles: Vec<_> = demo
        .endpoints
        .iter()
        .map(|(id, e)| (id.as_str(), e.role))
        .collect();
    assert_eq!(
        roles,
        [
            ("reader_1", Some(Role::Replica)),
            ("reader_2", Some(Role::Replica)),
            ("writer", Some(Role::Primary)),
        ]
    );
    // What nobody wrote has no line.
    let lines = explain(&loaded.configuration, "demo.writer").unwrap();
    assert!(
        lines
            .iter()
            .all(|line| line.origin == "default" && line.line.is_none())
    );
    for endpoint in demo.endpoints.values() {
        assert_eq!(
            endpoint.path().unwrap().to_str(),
            Some("./mainstay-data/demo.db")
        );
    }
    let moved = Configuration::embedded("/tmp/elsewhere");
    assert_eq!(
        moved.sources["demo"].endpoints["writer"]
            .path()
            .unwrap()
            .to_str(),
        Some("/tmp/elsewhere/demo.db")
    );
}

#[test]
fn the_example_of_the_design_is_read() {
    let text = r#"
[server]
listen = "127.0.0.1:7717"
data_dir = "./mainstay-data"
[policy.audit]
sink = "file"
[sources.orders]
driver = "postgres"
preset = "balanced"
database = "orders"
user = "app"
password = "env:ORDERS_PASSWORD"
[sources.orders.endpoints.a]
host = "db1.internal"
role = "primary"
[sources.orders.endpoints.b]
host = "db2.internal"
weight = 2
[sources.orders.policy.circuit]
failures = 5
"#;
    let loaded = loaded(toml(text));
    assert_eq!(lines(&loaded.warnings), "");
    let orders = &loaded.configuration.sources["orders"];
    let b = &orders.endpoints["b"];
    assert_eq!(b.weight, 2.0);
    assert_eq!(b.role, None);
    let server = b.server().unwrap();
    assert_eq!((server.host.as_str(), server.port), ("db2.internal", 5432));
    let password = server.password.clone().unwrap();
    assert_eq!(password.read().unwrap(), "hunter2-very-secret");
    let lines = explain(&loaded.configuration, "orders.b").unwrap();
    let of = |path: &str| lines.iter().find(|line| line.path == path).unwrap();
    assert_eq!(of("password").value, "(secret from env:ORDERS_PASSWORD)");
    assert_eq!(of("policy.audit.sink").layer, "[policy]");
    assert_eq!(of("policy.audit.sink").line, Some(6));
    assert_eq!(of("policy.retry.attempts_max").layer, "preset balanced");
    assert_eq!(
        of("policy.circuit.failures").layer,
        "[sources.orders.policy]"
    );
}

#[test]
fn the_file_to_start_from_is_valid() {
    assert_eq!(lines(&check(toml(&init_text()))), "");
    assert_eq!(lines(&check(toml(ORDERS))), "");
}
