//! Values that make no sense are refused wherever they stand, with what would make sense beside them.

use mainstay_config::check;
use mainstay_engine::policy::{KEYS, Kind};

use super::given::{ORDERS, lines, toml};

/// The problems of a file with this text behind the usual source, which has none.
fn problems(text: &str) -> Vec<mainstay_config::Problem> {
    let mut problems = check(toml(&format!("{text}\n{ORDERS}")));
    problems.retain(mainstay_config::Problem::is_error);
    problems
}

#[test]
fn absurd_values_of_every_policy_key_are_refused_with_a_way_out() {
    for key in KEYS {
        let absurd: &[&str] = match key.kind {
            Kind::Count => &["4294967295", "18446744073709551615"],
            Kind::Number => &["1e-300", "-1", "1e300"],
            Kind::Time => &["\"1ns\"", "\"365d\""],
            _ => &[],
        };
        for value in absurd {
            let (group, name) = key.path.split_once('.').unwrap();
            let found = problems(&format!("[policy.{group}]\n{name} = {value}"));
            let all = lines(&found);
            let own: Vec<_> = found
                .iter()
                .filter(|problem| problem.path.ends_with(key.path))
                .collect();
            assert!(!own.is_empty(), "{} = {value}: {all}", key.path);
            let all_help = own.iter().all(|problem| problem.hint.is_some());
            assert!(all_help, "{} = {value}: {all}", key.path);
        }
    }
}

#[test]
fn absurd_values_of_the_program_and_of_sources_are_refused_with_their_bounds() {
    let table = [
        (
            "[server]\nbody_max = \"1B\"",
            "server.body_max",
            "from 1KiB to 1GiB",
        ),
        (
            "[server]\nbody_max = \"16000GiB\"",
            "server.body_max",
            "from 1KiB to 1GiB",
        ),
        (
            "[server]\nanswer_max = \"3B\"",
            "server.answer_max",
            "from 1KiB to 1GiB",
        ),
        (
            "[server]\nconnections_max = 4000000000",
            "server.connections_max",
            "from 1 to 1000000",
        ),
        (
            "[server]\nrows_max = 99999999999",
            "server.rows_max",
            "from 1 to 1000000",
        ),
        (
            "[server]\nstatements_max = 0",
            "server.statements_max",
            "from 1 to 1000000",
        ),
        (
            "[server]\nheader_timeout = \"1ns\"",
            "server.header_timeout",
            "from 10ms to 24h",
        ),
        (
            "[server]\nrequest_timeout = \"300d\"",
            "server.request_timeout",
            "from 10ms to 24h",
        ),
        (
            "[server]\nidle_timeout = \"0s\"",
            "server.idle_timeout",
            "from 10ms to 24h",
        ),
        (
            "[server]\nstream_idle = \"1us\"",
            "server.stream_idle",
            "from 10ms to 24h",
        ),
        (
            "[server]\ndrain_timeout = \"1ns\"",
            "server.drain_timeout",
            "from 10ms to 24h",
        ),
    ];
    for (text, path, hint) in table {
        let found = problems(text);
        let all = lines(&found);
        assert_eq!(found.len(), 1, "{text}: {all}");
        assert_eq!(found[0].path, path, "{all}");
        assert_eq!(found[0].hint.as_deref(), Some(hint), "{all}");
    }
    let table = [
        ("transaction_idle = \"1ns\"", "", "from 10ms to 24h"),
        ("transaction_idle = \"300d\"", "", "from 10ms to 24h"),
        ("transactions_max = 4000000000", "", "from 0 to 1000000"),
        ("idempotency_table = \"a.b.c\"", "", "schema.name"),
        ("idempotency_table = \"a;b\"", "", "schema.name"),
        (
            "idempotency_table = \"k\"\nidempotency_keep = \"1s\"",
            "",
            "from 1min to 30d",
        ),
        (
            "idempotency_table = \"k\"\nidempotency_keep = \"119s\"\npolicy.retry.deadline = \"60s\"",
            "",
            "at least 120s",
        ),
        (
            "idempotency_table = \"k\"\npolicy.retry.deadline = \"13h\"",
            "",
            "at least 93600s",
        ),
        (
            "idempotency_table = \"k\"\nidempotency_keep = \"9min\"\ncommit_proof = \"table\"\ncommit_proof_wait = \"5min\"",
            "",
            "at least 600s",
        ),
        (
            "idempotency_table = \"k\"\nidempotency_answer_max = \"1GiB\"",
            "",
            "from 256B to 16MiB",
        ),
        (
            "commit_proof = \"table\"\ncommit_proof_wait = \"1h\"",
            "",
            "from 100ms to 5min",
        ),
        (
            "commit_proof = \"table\"\ncommit_proof_table = \"\"",
            "",
            "schema.name",
        ),
        ("commit_proof = \"always\"", "", "one of off, table, xid"),
        ("commit_proof = \"xid\"", "", "only PostgreSQL"),
        ("", "weight = -1", "from 0.001 to 1000000"),
        ("", "weight = 1e-300", "from 0.001 to 1000000"),
        ("", "weight = 1e300", "from 0.001 to 1000000"),
        (
            "options.busy_timeout_ms = 99999999999",
            "",
            "from 0 to 3600000",
        ),
        ("options.statements_max = 0", "", "from 1 to 1000000"),
        (
            "options.statements_max = 99999999999",
            "",
            "from 1 to 1000000",
        ),
        ("options.value_max_bytes = 1", "", "from 1024 to 1000000000"),
        (
            "options.value_max_bytes = 1000000001",
            "",
            "from 1024 to 1000000000",
        ),
    ];
    for (of_source, of_endpoint, bounds) in table {
        let text = format!(
            "[sources.s]\ndriver = \"sqlite\"\npath = \"a.db\"\n{of_source}\n[sources.s.endpoints.a]\n{of_endpoint}"
        );
        let found = problems(&text);
        let all = lines(&found);
        assert_eq!(found.len(), 1, "{text}: {all}");
        assert!(all.contains(bounds), "{text}: {all}");
    }
}

#[test]
fn keys_that_need_another_one_are_told_without_it() {
    for (key, other) in [
        ("idempotency_keep = \"1h\"", "idempotency_table"),
        ("idempotency_answer_max = \"1KiB\"", "idempotency_table"),
        ("commit_proof_wait = \"1s\"", "commit_proof"),
        ("commit_proof_table = \"c\"", "commit_proof"),
    ] {
        let text = format!(
            "[sources.s]\ndriver = \"sqlite\"\npath = \"a.db\"\n{key}\n[sources.s.endpoints.a]\n"
        );
        let found = check(toml(&text));
        let all = lines(&found);
        assert!(!found[0].is_error(), "{all}");
        let hint = format!("set {other} too, or leave it out");
        assert_eq!(found[0].hint.as_deref(), Some(hint.as_str()), "{all}");
    }
}
