//! What the configuration says of pragmas of SQLite is what the driver does.

use mainstay_config::{FixedSecrets, Input, LoadOptions, check};
use mainstay_sqlite::SqliteSettings;
use serde_json::json;

use super::rig::Rig;

/// What is wrong with a pragma of an endpoint, as the configuration sees it.
fn of_configuration(name: &str, value: &str) -> Option<String> {
    let text = format!(
        "[sources.o]\ndriver = \"sqlite\"\npath = \"a.db\"\noptions = {{ \"pragma.{name}\" = {value:?} }}\n[sources.o.endpoints.a]\n"
    );
    let options = LoadOptions {
        files: vec![Input::Text {
            name: "a.toml".to_owned(),
            text,
        }],
        secrets: std::sync::Arc::new(FixedSecrets::default()),
        ..LoadOptions::default()
    };
    let problems = check(options);
    let mut errors = problems.into_iter().filter(|problem| problem.is_error());
    let told = |problem: mainstay_config::Problem| {
        let hint = problem.hint.unwrap_or_default();
        format!("{}; {hint}", problem.message)
    };
    errors.next().map(told)
}

fn of_driver(name: &str, value: &str) -> Option<String> {
    let settings = SqliteSettings::new("a.db").pragma(name, value);
    settings.check().err().map(|error| error.to_string())
}

#[tokio::test]
async fn a_pragma_is_refused_by_the_configuration_and_the_driver_alike() {
    let rig = Rig::start().await;
    let all = json!({"sql": "SELECT name FROM pragma_pragma_list ORDER BY name"});
    let all = rig.client.verb("query", all).await.good();
    let mut names: Vec<String> = all["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[0].as_str().unwrap().to_owned())
        .collect();
    rig.end().await;
    assert!(names.len() > 50, "{names:?}");
    // Those that only some builds of SQLite have, and what is none.
    let more = [
        "data_store_directory",
        "temp_store_directory",
        "a_b",
        "a-b",
        "a;b",
        "",
    ];
    names.extend(more.map(str::to_owned));
    let mut refused = 0;
    for name in &names {
        let (early, late) = (of_configuration(name, "1"), of_driver(name, "1"));
        assert_eq!(
            early.is_some(),
            late.is_some(),
            "{name}: {early:?} {late:?}"
        );
        if let (Some(early), Some(late)) = (early, late) {
            refused += 1;
            // The same reason and the same way out, but for quotes.
            let (why, instead) = early.split_once("; ").unwrap();
            let late = late.replace('`', "");
            let is_same = late.contains(why) && late.contains(instead);
            assert!(is_same || !is_name(name), "{name}: {early} | {late}");
        }
    }
    assert!(refused > 8, "{refused}");
    for value in [
        "0",
        "1073741824",
        "1073741825",
        "-1",
        "much",
        "18446744073709551616",
    ] {
        let (early, late) = (
            of_configuration("mmap_size", value),
            of_driver("mmap_size", value),
        );
        assert_eq!(
            early.is_some(),
            late.is_some(),
            "{value}: {early:?} {late:?}"
        );
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}
