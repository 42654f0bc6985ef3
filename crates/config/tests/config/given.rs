//! What the tests hand in.

use std::sync::Arc;

use mainstay_config::{Configuration, FixedSecrets, Input, LoadOptions, Loaded, Problem};

/// Options with these texts by name and no environment.
pub(crate) fn options(files: &[(&str, &str)]) -> LoadOptions {
    LoadOptions {
        files: files
            .iter()
            .map(|(name, text)| Input::Text {
                name: (*name).to_owned(),
                text: (*text).to_owned(),
            })
            .collect(),
        secrets: Arc::new(
            FixedSecrets::default()
                .with_variable("ORDERS_PASSWORD", "hunter2-very-secret")
                .with_variable("BROKER_PASSWORD", "carrot-very-secret")
                .with_file("/run/secrets/orders", "from-a-file\n"),
        ),
        ..LoadOptions::default()
    }
}

/// One TOML text.
pub(crate) fn toml(text: &str) -> LoadOptions {
    options(&[("mainstay.toml", text)])
}

/// What a text gives; a text with errors fails the test with them.
pub(crate) fn loaded(options: LoadOptions) -> Loaded {
    Configuration::load(options).unwrap_or_else(|problems| panic!("{}", lines(&problems)))
}

/// Problems as a person reads them.
pub(crate) fn lines(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(Problem::to_string).collect();
    lines.join("\n")
}

/// A source that is right, to put one thing into.
pub(crate) const ORDERS: &str = r#"
[sources.orders]
driver = "postgres"
database = "orders"
user = "app"
[sources.orders.endpoints.a]
host = "db1.internal"
role = "primary"
[sources.orders.endpoints.b]
host = "db2.internal"
"#;

/// A message service that is right, to put one thing into; its keys begin in line 2.
pub(crate) const COMPUTE: &str = r#"
[services.compute]
identity = "org.fac.sys.sub.compute"
capability_name = "Compute"
strategy_group_order = ["primary", "standby"]
[services.compute.brokers.main]
protocol = "mqtt5"
host = "127.0.0.1"
[services.compute.operations.run]
safety = "read"
[services.compute.targets.a]
group = "primary"
destination = "org.fac.sys.sub.compute-a"
operation_map = { run = "Compute.run" }
[services.compute.targets.b]
group = "standby"
destination = "org.fac.sys.sub.compute-b"
operation_map = { run = "Compute.run" }
"#;
