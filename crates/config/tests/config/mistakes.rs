use mainstay_config::check;

use super::given::{lines, options};

const TOML: &str = include_str!("mistakes.toml");
const YAML: &str = include_str!("mistakes.yaml");
const JSON: &str = include_str!("mistakes.json");

/// The path of each mistake and what its message begins with, in the order of the files.
const MISTAKES: &[(&str, &str)] = &[
    (
        "server.listen",
        "0.0.0.0:7717 can be reached from other machines",
    ),
    ("server.body_max", "8388608 has no unit"),
    ("server.drain_timeout", "\"5m\" is not a duration"),
    ("server.colour", "unknown key"),
    ("policy.retry.atempts_max", "unknown key"),
    (
        "policy.circuit.failures",
        "expected a whole number, got \"five\"",
    ),
    ("policy.pool.min_idle", "is above pool.idle_max (10)"),
    ("sources.orders.preset", "\"balancd\" is not known"),
    (
        "sources.orders.password",
        "does not resolve: the variable NOWHERE is not set",
    ),
    ("sources.orders.endpoints.a.port", "70000 is not a port"),
    (
        "sources.orders.endpoints.b.url",
        "unknown scheme \"oracle\"",
    ),
    ("shard_sets", "shard_sets is not available in this version"),
];

#[test]
fn a_file_with_twelve_mistakes_gives_twelve_problems_with_their_lines_in_each_format() {
    for (name, text) in [
        ("mistakes.toml", TOML),
        ("mistakes.yaml", YAML),
        ("mistakes.json", JSON),
    ] {
        let problems = check(options(&[(name, text)]));
        let all = lines(&problems);
        assert_eq!(problems.len(), MISTAKES.len(), "{all}");
        for (problem, (path, message)) in problems.iter().zip(MISTAKES) {
            assert_eq!(problem.path, *path, "{all}");
            assert!(problem.message.starts_with(message), "{problem}");
            let says_it_itself = message.ends_with("version");
            assert!(problem.hint.is_some() || says_it_itself, "{problem}");
            assert_eq!(problem.origin.to_string(), name);
            // The last step of the path stands in that line, at that column.
            let line = text
                .lines()
                .nth(problem.line.unwrap() as usize - 1)
                .unwrap();
            let column = problem.column.unwrap() as usize - 1;
            let key = path.rsplit('.').next().unwrap();
            let there = line[column..].trim_start_matches('"');
            assert!(there.starts_with(key), "{problem}: {line}");
        }
    }
}
