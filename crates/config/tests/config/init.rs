use mainstay_config::{check, init_text};
use mainstay_engine::policy::KEYS;

use super::given::{lines, toml};

/// A line that is a key or a table behind a `#`.
fn commented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix('#')?;
    (!rest.is_empty() && !rest.starts_with(' ')).then_some(rest)
}

#[test]
fn the_file_to_start_from_is_valid_as_it_is_and_names_every_policy_key() {
    let text = init_text();
    assert_eq!(lines(&check(toml(&text))), "");
    for key in KEYS {
        let (group, name) = key.path.split_once('.').unwrap();
        let section = text.split(&format!("[policy.{group}]\n")).nth(1).unwrap();
        assert!(section.contains(&format!("#{name} = ")), "{}", key.path);
    }
    for line in text.lines() {
        assert!(line.len() <= 110, "{line}");
    }
}

#[test]
fn each_commented_key_of_the_file_to_start_from_is_valid_by_itself() {
    let text = init_text();
    let all: Vec<&str> = text.lines().collect();
    let mut tried = 0;
    // A commented table is one example: it is used as a whole, with its keys.
    let mut in_example = false;
    for (at, line) in all.iter().enumerate() {
        in_example = match commented(line) {
            Some(rest) if rest.starts_with('[') => true,
            Some(_) => in_example,
            None => false,
        };
        let Some(rest) = commented(line) else {
            continue;
        };
        if in_example {
            continue;
        }
        let mut used = all.clone();
        used[at] = rest;
        let problems = check(toml(&used.join("\n")));
        let errors: Vec<_> = problems
            .into_iter()
            .filter(|problem| !permitted(rest, problem))
            .collect();
        assert_eq!(lines(&errors), "", "{rest}");
        tried += 1;
    }
    assert!(tried > KEYS.len(), "only {tried} keys were tried");
}

/// An example may need a secret that a test does not have, or another key beside it, nothing else.
fn permitted(line: &str, problem: &mainstay_config::Problem) -> bool {
    let may_warn = ["attempt_timeout", "idempotency_", "commit_proof_"];
    may_warn.iter().any(|key| line.starts_with(key)) && !problem.is_error()
}

#[test]
fn the_commented_examples_of_a_server_and_of_a_service_are_valid_as_a_whole() {
    for first in ["#[sources.orders]", "#[services.compute]"] {
        example_is_valid(first);
    }
}

fn example_is_valid(first: &str) {
    let text = init_text();
    let begin = text.find(first).expect("the example");
    let end = begin + text[begin..].find("\n\n").expect("its end");
    let example: Vec<&str> = text[begin..end]
        .lines()
        .map(|line| commented(line).expect("a line of it"))
        .collect();
    let used = format!("{}{}{}", &text[..begin], example.join("\n"), &text[end..]);
    assert_eq!(lines(&check(toml(&used))), "");
}
