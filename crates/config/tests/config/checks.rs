//! What is checked beyond single keys, as a table.

use mainstay_config::{Promotion, check};
use mainstay_engine::Role;

use super::given::{ORDERS, lines, loaded, toml};

/// Each text and the problems it has, without file and column.
fn table(rows: &[(&str, &[&str])]) {
    for (text, expected) in rows {
        let problems = check(toml(text));
        let got: Vec<String> = problems
            .iter()
            .map(|p| {
                let line = p
                    .line
                    .map_or_else(|| "-".to_owned(), |line| line.to_string());
                format!("{line} {}: {}: {}", p.severity, p.path, p.message)
            })
            .collect();
        assert_eq!(got.len(), expected.len(), "{text}\n{}", lines(&problems));
        for (got, expected) in got.iter().zip(*expected) {
            assert!(
                got.starts_with(expected),
                "{text}\nexpected {expected}\ngot {got}"
            );
        }
    }
}

const PG: &str = "driver = \"postgres\"\nhost = \"h\"\ndatabase = \"d\"\nuser = \"u\"\n";

#[test]
fn a_source_needs_endpoints_a_driver_and_an_address() {
    table(&[
        ("", &["- warning: sources: there is no source"]),
        ("[sources]", &["- warning: sources: there is no source"]),
        (
            "sources = 3",
            &["1 error: sources: expected a table, got a whole number"],
        ),
        (
            "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"",
            &["1 error: sources.o: no endpoints"],
        ),
        (
            "[sources.o.endpoints.a]\npath = \"a\"",
            &["1 error: sources.o: no driver"],
        ),
        (
            "[sources.o]\ndriver = \"sqlite\"\n[sources.o.endpoints.a]",
            &["3 error: sources.o.endpoints.a: no path"],
        ),
        (
            "[sources.o]\ndriver = \"postgres\"\n[sources.o.endpoints.a]",
            &[
                "3 error: sources.o.endpoints.a: no database",
                "3 error: sources.o.endpoints.a: no host",
                "3 error: sources.o.endpoints.a: no user",
            ],
        ),
        (
            "[sources.o]\ndriver = \"mssql\"\n[sources.o.endpoints.a]",
            &["2 error: sources.o.driver: mssql is not available in this version"],
        ),
        (
            "[sources.o]\ndriver = \"postgre\"\n[sources.o.endpoints.a]",
            &["2 error: sources.o.driver: unknown driver \"postgre\""],
        ),
        (
            "[sources.o.endpoints.a]\nurl = \"sqlite:a\"\n[sources.o.endpoints.b]\nurl = \"postgres://u@h/d\"",
            &["4 error: sources.o.endpoints.b.driver: postgres beside sqlite"],
        ),
        (
            "[sources.o]\ndriver = \"sqlite\"\npath = \":memory:\"\n[sources.o.endpoints.a]",
            &["3 error: sources.o.path: a database in memory"],
        ),
        (
            "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a]\nhost = \"h\"",
            &["5 error: sources.o.endpoints.a.host: host says nothing to the driver sqlite"],
        ),
        (
            "[sources.\"a.b\"]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.\"a.b\".endpoints.a]",
            &["1 error: sources.a.b: not an id"],
        ),
        (
            "[sources.o]\ndriver = \"sqlite\"\npath = \"a\\u0000b\"\n[sources.o.endpoints.a]",
            &["3 error: sources.o.path: contains the control character"],
        ),
        // From the layers that all share, keys that do not fit are simply not used.
        (
            "[connection]\nhost = \"h\"\n[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a]",
            &[],
        ),
    ]);
}

#[test]
fn tls_settings_belong_together() {
    let with = |tls: &str| format!("[sources.o]\n{PG}{tls}\n[sources.o.endpoints.a]");
    let rows: Vec<(String, Vec<&str>)> = vec![
        (
            with("tls = \"verify-full\""),
            vec!["6 error: sources.o.tls: verify-full needs the authorities"],
        ),
        (with("tls = \"verify-full\"\ntls_ca = \"ca.pem\""), vec![]),
        (
            with("tls_cert = \"c\""),
            vec!["6 error: sources.o.tls_cert: tls_cert without tls_key"],
        ),
        (
            with("tls_key = \"c\""),
            vec!["6 error: sources.o.tls_key: tls_key without tls_cert"],
        ),
        (with("tls_key = \"c\"\ntls_cert = \"c\""), vec![]),
        (
            with("tls = \"verify_full\""),
            vec!["6 error: sources.o.tls: \"verify_full\" is not known"],
        ),
    ];
    for (text, expected) in &rows {
        table(&[(text, expected)]);
    }
}

#[test]
fn roles_are_known_or_told_as_missing() {
    let sqlite = |rest: &str| format!("[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n{rest}");
    let roles = |text: &str| {
        let loaded = loaded(toml(text));
        let source = &loaded.configuration.sources["o"];
        let roles: Vec<_> = source
            .endpoints
            .values()
            .map(|endpoint| endpoint.role)
            .collect();
        (source.promotion, roles)
    };
    const A: &str = "[sources.o.endpoints.a]\n";
    const B: &str = "[sources.o.endpoints.b]\n";
    let primary = "role = \"primary\"\n";
    let (p, r) = (Some(Role::Primary), Some(Role::Replica));
    assert_eq!(roles(&sqlite(A)), (Promotion::Route, vec![p]));
    assert_eq!(
        roles(&sqlite(&format!("{A}{B}"))),
        (Promotion::Route, vec![p, r])
    );
    // The first of the file, not of the alphabet.
    assert_eq!(
        roles(&sqlite(&format!("{B}{A}"))),
        (Promotion::Route, vec![r, p])
    );
    assert_eq!(
        roles(&sqlite(&format!("{A}{B}{primary}"))),
        (Promotion::Route, vec![r, p])
    );
    assert_eq!(
        roles(&format!("[sources.o]\n{PG}{A}{B}")),
        (Promotion::Follow, vec![None, None])
    );
    assert_eq!(
        roles(&format!("[sources.o]\n{PG}{A}{B}{primary}")),
        (Promotion::Follow, vec![None, p])
    );

    let replica = "role = \"replica\"\n";
    let external = "replication = \"external\"\n";
    let rows: Vec<(String, Vec<&str>)> = vec![
        (
            sqlite(&format!("{A}{primary}{B}{primary}")),
            vec!["7 error: sources.o.endpoints.b.role: a second primary beside a"],
        ),
        (
            format!("[sources.o]\n{PG}{A}{primary}{B}{primary}"),
            vec!["9 error: sources.o.endpoints.b.role: a second primary beside a"],
        ),
        (
            sqlite(&format!("{A}{replica}{B}{replica}")),
            vec!["1 error: sources.o: no endpoint is the primary"],
        ),
        (
            sqlite(&format!("{external}{A}{B}path = \"b\"\n")),
            vec![
                "5 error: sources.o.endpoints.a: no role, and nothing else tells it",
                "6 error: sources.o.endpoints.b: no role, and nothing else tells it",
            ],
        ),
        (
            sqlite(&format!("{external}{A}{primary}{B}{replica}path = \"b\"\n")),
            vec![],
        ),
        (
            sqlite(&format!("{A}{B}path = \"b\"\n")),
            vec!["6 error: sources.o.endpoints.b.path: another file than endpoint a"],
        ),
        (sqlite(&format!("{A}{B}path = \"./a\"\n")), vec![]),
        (
            sqlite(&format!("{A}role = \"leader\"\n")),
            vec!["5 error: sources.o.endpoints.a.role: \"leader\" is not known"],
        ),
        (
            sqlite(&format!("promotion = \"follow\"\n{A}")),
            vec!["4 error: sources.o.promotion: SQLite has no server"],
        ),
        (sqlite(&format!("promotion = \"route\"\n{A}")), vec![]),
        (
            format!("[sources.o]\n{PG}promotion = \"route\"\n{A}"),
            vec!["6 error: sources.o.promotion: route is for SQLite"],
        ),
        (
            format!("[sources.o]\n{PG}promotion = \"command\"\n{A}"),
            vec!["6 error: sources.o.promotion: command is not available in this version"],
        ),
    ];
    for (text, expected) in &rows {
        table(&[(text, expected)]);
    }
}

#[test]
fn policies_are_checked_as_a_whole_and_told_at_the_line_that_set_them() {
    let with = |rest: &str| format!("[sources.o]\n{PG}[sources.o.endpoints.a]\n{rest}");
    let rows: Vec<(String, Vec<&str>)> = vec![
        (
            with("[sources.o.policy.retry]\nattempt_timeout = \"40s\""),
            vec![
                "8 warning: sources.o.policy.retry.attempt_timeout: 40s is more than half of retry.deadline (1min):",
            ],
        ),
        (
            with("[sources.o.policy.retry]\nattempt_timeout = \"30s\""),
            vec![],
        ),
        (
            with("[sources.o.policy.retry]\nseries = \"fibonacci\""),
            vec!["8 warning: sources.o.policy.retry.series: \"fibonacci\" is the old name"],
        ),
        (
            with("[sources.o.policy.retry]\nattempts_max = -1"),
            vec![
                "8 error: sources.o.policy.retry.attempts_max: expected a whole number from 0, got -1",
            ],
        ),
        (
            with("[sources.o.policy.retry]\nattempts_max = 0"),
            vec!["8 error: sources.o.policy.retry.attempts_max: 0 is out of bounds"],
        ),
        // Two keys that do not fit each other: at the one that was written.
        (
            with("[sources.o.policy.retry]\ndelay = \"40s\""),
            vec![
                "8 error: sources.o.policy.retry.delay: retry.delay_max: is below retry.delay (40s)",
            ],
        ),
        (
            with("[policy.pool]\nmin_idle = 20"),
            vec!["8 error: policy.pool.min_idle: is above pool.idle_max (10)"],
        ),
        (
            with("[policy.pool]\nmin_idle = 20\n[sources.o.policy.pool]\nidle_max = 30"),
            vec![],
        ),
        (
            with("[policy.retry]\nbudget_ratio = -1"),
            vec!["8 error: policy.retry.budget_ratio: -1 is out of bounds"],
        ),
        (
            with("[policy.cache]\nttl = \"5min\""),
            vec!["7 error: policy.cache: cache is not available in this version"],
        ),
        (
            with("[policy.circuit]\nmode = \"three_state\""),
            vec!["8 error: policy.circuit.mode: three_state is not available in this version"],
        ),
        (
            with("[policy]\nfailures = 5"),
            vec!["8 error: policy.failures: unknown key"],
        ),
        (
            with("[sources.o.circuit]\nfailures = 5"),
            vec!["7 error: sources.o.circuit: a policy group stands in a policy table"],
        ),
        (
            with("[policy]\nretry = 5"),
            vec!["8 error: policy.retry: expected a table, got a whole number"],
        ),
        (
            with("[policy.retry]\njitter = \"up_to(200%)\""),
            vec!["8 error: policy.retry.jitter: a share of 2"],
        ),
        (
            with("[policy.limits]\nrate = \"off\"\nconcurrency = 5"),
            vec![],
        ),
        (
            with("[policy.limits]\nrate = nan"),
            vec!["8 error: policy.limits.rate: expected a number, got NaN"],
        ),
        // Hidden by a stronger layer, and wrong all the same.
        (
            with("[policy.retry]\ndelay = 5\n[sources.o.policy.retry]\ndelay = \"5s\""),
            vec!["8 error: policy.retry.delay: 5 has no unit"],
        ),
        (
            format!(
                "[sources.o]\n{PG}preset = \"balanced\"\n[sources.o.endpoints.a]\n[sources.o.policy]\npreset = \"conservative\""
            ),
            vec!["6 error: sources.o.preset: a preset is already named in line 9"],
        ),
        (
            with(
                "[sources.o.policy]\npreset = \"balanced\"\n[sources.o.endpoints.a.policy]\npreset = \"x\"",
            ),
            vec!["10 error: sources.o.endpoints.a.policy.preset: \"x\" is not known"],
        ),
        // A policy that nobody uses is checked as well.
        (
            "[policy.pool]\nmin_idle = 20".to_owned(),
            vec![
                "2 error: policy.pool.min_idle: is above pool.idle_max (10)",
                "- warning: sources",
            ],
        ),
    ];
    for (text, expected) in &rows {
        let mut expected = expected.clone();
        // What has no file comes first.
        expected.sort_by_key(|line| !line.starts_with('-'));
        table(&[(text, &expected)]);
    }
}

#[test]
fn words_of_later_versions_are_known() {
    for table in ["shard_sets.t", "contexts.docs", "search", "server.store"] {
        let problems = check(toml(&format!("[{table}]\nx = 1")));
        let all = lines(&problems);
        assert!(
            all.contains("is not available in this version"),
            "{table}: {all}"
        );
        assert!(!all.contains("unknown key"), "{table}: {all}");
    }
}

#[test]
fn keys_of_callers_are_hashes_with_a_role() {
    let hash = "0123456789abcdef".repeat(4);
    let table = [
        (format!("sha256 = \"{hash}\"\nrole = \"read\""), ""),
        (format!("sha256 = \"{hash}\""), "has no role"),
        ("role = \"read\"".to_owned(), "has no sha256"),
        (
            "sha256 = \"ms_secret\"\nrole = \"read\"".to_owned(),
            "is no SHA-256",
        ),
        (format!("sha256 = \"{hash}\"\nrole = \"boss\""), "admin"),
        (
            format!("sha256 = \"{hash}\"\nrole = \"read\"\nrate = 0"),
            "from 1",
        ),
        (
            format!("sha256 = \"{hash}\"\nrole = \"read\"\nsource = []"),
            "sources",
        ),
        (
            format!("sha256 = \"{hash}\"\nrole = \"read\"\ncontexts = [\"docs\"]"),
            "contexts is not available in this version",
        ),
        (
            format!(
                "sha256 = \"{hash}\"\nrole = \"read\"\n[server.keys.b]\nsha256 = \"{hash}\"\nrole = \"read\""
            ),
            "is the same key as a",
        ),
    ];
    for (text, expected) in table {
        let all = lines(&check(toml(&format!("[server.keys.a]\n{text}"))));
        match expected {
            "" => assert!(!all.contains("server.keys"), "{text}: {all}"),
            expected => assert!(all.contains(expected), "{text}: {all}"),
        }
        assert!(!all.contains("secret"), "{text}: {all}");
    }
}

#[test]
fn labels_of_a_policy_come_from_the_strongest_layer() {
    let text = format!(
        "[policy]\nname = \"house\"\nversion = 3\n[sources.o]\n{PG}[sources.o.policy]\nname = \"orders\"\n[sources.o.endpoints.a]\n"
    );
    let loaded = loaded(toml(&text));
    let policy = &loaded.configuration.sources["o"].policy;
    assert_eq!((policy.name.as_ref(), policy.version), ("orders", 3));
}

#[test]
fn a_key_for_a_source_that_is_not_there_is_told_with_the_nearest_one() {
    let hash = "0".repeat(64);
    let key = |sources: &str| {
        let key =
            format!("[server.keys.a]\nsha256 = \"{hash}\"\nrole = \"read\"\nsources = {sources}\n");
        lines(&check(toml(&format!("{key}{ORDERS}"))))
    };
    for good in ["[\"*\"]", "[\"orders\"]", "[\"orders\", \"*\"]"] {
        assert_eq!(key(good), "", "{good}");
    }
    for (sources, expected) in [
        (
            "[\"order\"]",
            "server.keys.a.sources: there is no source \"order\" (did you mean orders?)",
        ),
        (
            "[\"x\", \"orders\"]",
            "there is no source \"x\" (sources: orders)",
        ),
        ("[]", "is empty, so that the key is for nothing"),
    ] {
        let all = key(sources);
        assert!(
            all.contains("mainstay.toml:4:") && all.contains(expected),
            "{sources}: {all}"
        );
    }
}

#[test]
fn keys_that_do_not_fit_each_other_come_with_a_way_out() {
    for (text, hint) in [
        (
            "[policy.pool]\nmin_idle = 20",
            "lower it, or raise pool.idle_max",
        ),
        (
            "[policy.retry]\ndelay = \"40s\"",
            "raise it, or lower retry.delay",
        ),
        (
            "[policy.circuit]\nopen_for_max = \"1s\"",
            "raise it, or lower circuit.open_for",
        ),
    ] {
        let problems = check(toml(text));
        let error = problems.iter().find(|problem| problem.is_error()).unwrap();
        assert_eq!(error.hint.as_deref(), Some(hint), "{error}");
    }
}

#[test]
fn what_is_missing_is_told_beside_a_value_that_is_wrong() {
    table(&[(
        "[sources.o]\ndriver = \"postgres\"\nport = 0\n[sources.o.endpoints.a]",
        &[
            "3 error: sources.o.port: 0 is not a port",
            "4 error: sources.o.endpoints.a: no database",
            "4 error: sources.o.endpoints.a: no host",
            "4 error: sources.o.endpoints.a: no user",
        ],
    )]);
}

#[test]
fn a_file_without_sources_is_named_by_the_warning() {
    let problems = check(toml("# nothing yet\n"));
    assert_eq!(
        lines(&problems),
        "mainstay.toml: warning: sources: there is no source, so there is nothing to serve (add [sources.orders] for a database, or [services.compute] for a message service)"
    );
}

#[test]
fn options_that_a_driver_does_not_take_are_told_with_what_was_meant() {
    let sqlite = |options: &str| {
        format!(
            "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a.options]\n{options}"
        )
    };
    let told = lines(&check(toml(&sqlite(
        "creat = true\nread_only = \"maybe\"\nbusy_timeout_ms = \"soon\"\nstatements_max = 0\n\
         \"pragma.cache_size\" = -2000\n\"pragma.Query_Only\" = \"on\"\n\"pragma.a;b\" = 1\ncolour = 1\n",
    ))));
    let at = "sources.o.endpoints.a.options";
    let expected = [
        format!("mainstay.toml:5:1: error: {at}.creat: unknown key (did you mean create?)"),
        format!(
            "mainstay.toml:6:1: error: {at}.read_only: expected true or false, got \"maybe\" (the endpoint never writes, whatever is asked for)"
        ),
        format!(
            "mainstay.toml:7:1: error: {at}.busy_timeout_ms: expected a whole number of milliseconds from 0 to 3600000, got \"soon\" (how long a statement waits for a lock inside SQLite)"
        ),
        format!(
            "mainstay.toml:8:1: error: {at}.statements_max: expected a whole number from 1 to 1000000, got \"0\" (prepared statements that a connection keeps)"
        ),
        format!(
            "mainstay.toml:10:1: error: {at}.pragma.Query_Only: is set by the driver (use the option read_only)"
        ),
        format!(
            "mainstay.toml:11:1: error: {at}.pragma.a;b: not the name of a pragma (letters, digits and _)"
        ),
        format!(
            "mainstay.toml:12:1: error: {at}.colour: unknown key (known here: create, read_only, busy_timeout_ms, statements_max, value_max_bytes, pragma.NAME)"
        ),
    ];
    assert_eq!(told, expected.join("\n"));

    let postgres =
        |options: &str| format!("[sources.o]\n{PG}[sources.o.endpoints.a.options]\n{options}");
    assert_eq!(
        lines(&check(toml(&postgres("search_path = \"app\"\n")))),
        ""
    );
    let told = lines(&check(toml(&postgres(
        "statements_max = \"many\"\naplication_name = \"x\"\n",
    ))));
    assert!(
        told.contains("7:1: error: sources.o.endpoints.a.options.statements_max: expected a whole"),
        "{told}"
    );
    assert!(told.contains("8:1: warning: sources.o.endpoints.a.options.aplication_name: goes to the server, as a setting of the session (did you mean application_name?)"), "{told}");
    let mysql = postgres("gtid_domain = -1\nsql_mode = \"ANSI\"\ngtid_domain_id = 4\n")
        .replace("postgres", "mysql");
    let told = check(toml(&mysql));
    assert_eq!(told.len(), 1, "{}", lines(&told));
    assert_eq!(told[0].path, "sources.o.endpoints.a.options.gtid_domain");
}

#[test]
fn pragmas_that_reach_beyond_their_connection_or_damage_the_file_are_refused() {
    let table = [
        ("hard_heap_limit = 1000", "holds for the whole process"),
        ("Soft_Heap_Limit = 1000", "holds for the whole process"),
        ("temp_store_directory = \"/tmp\"", "SQLITE_TMPDIR"),
        ("data_store_directory = \"/tmp\"", "SQLITE_TMPDIR"),
        ("writable_schema = \"on\"", "can damage the file"),
        ("schema_version = 1", "can damage the file"),
        ("mmap_size = 1073741825", "from 0 to 1073741824"),
        ("mmap_size = -1", "from 0 to 1073741824"),
        ("mmap_size = \"much\"", "from 0 to 1073741824"),
    ];
    for (option, expected) in table {
        let (name, value) = option.split_once(" = ").unwrap();
        let text = format!(
            "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a.options]\n\"pragma.{name}\" = {value}\n"
        );
        let problems = check(toml(&text));
        let all = lines(&problems);
        assert_eq!(problems.len(), 1, "{option}: {all}");
        assert!(problems[0].is_error() && all.contains(expected), "{all}");
    }
    let text = "[sources.o]\ndriver = \"sqlite\"\npath = \"a\"\n[sources.o.endpoints.a.options]\n\"pragma.mmap_size\" = 1073741824\n";
    assert_eq!(lines(&check(toml(text))), "");
}
