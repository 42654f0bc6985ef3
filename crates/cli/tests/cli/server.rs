use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;
use tokio::time::Instant;

use super::program::{Place, Run, run};

fn curl_lines(greeting: &[String]) -> Vec<&str> {
    let lines = greeting.iter().map(|line| line.trim());
    lines.filter(|line| line.starts_with("curl ")).collect()
}

fn shell(line: &str) -> Run {
    run(Command::new("sh").arg("-c").arg(line))
}

#[test]
fn the_lines_that_serve_prints_work_as_they_are_printed() {
    let place = Place::new();
    let server = place.serve(&[]);
    let lines = curl_lines(&server.greeting);
    assert!((3..=6).contains(&lines.len()), "{:?}", server.greeting);
    // Neither the usual port nor a program on the path: a line to copy names both.
    let last = server.greeting.last().unwrap();
    let watch = format!("/mainstay status --watch --url {}`", server.url);
    assert!(last.contains(&watch), "{last}");
    for line in lines {
        let ended = shell(line);
        assert_eq!(ended.code, 0, "{line}: {ended:?}");
        let answer: Value = serde_json::from_str(&ended.out)
            .unwrap_or_else(|error| panic!("{line}: {error}: {ended:?}"));
        assert!(answer.get("code").is_none(), "{line}: {answer}");
        if line.contains("/find") || line.contains("/query") {
            assert!(
                !answer["rows"].as_array().unwrap().is_empty(),
                "{line}: {answer}"
            );
        }
        if line.contains("/insert") {
            assert_eq!(answer["affected"], 1, "{line}: {answer}");
        }
    }
    server.signal(Signal::SIGTERM);
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("nothing was left"), "{err}");
    assert!(place.path().join("mainstay-data/demo.db").exists());
}

#[test]
fn an_encrypted_server_is_checked_served_greeted_and_asked() {
    let place = Place::new();
    let files = mainstay_testkit::certificates(place.path()).unwrap();
    let config = |cert: &str| {
        format!(
            "[server]\ndata_dir = \"data\"\n[server.tls]\ncert = \"{cert}\"\nkey = \"server.key\"\n\
             [sources.s]\ndriver = \"sqlite\"\npath = \"s.db\"\noptions = {{ create = \"true\" }}\n\
             [sources.s.endpoints.a]\n"
        )
    };
    place.write("wrong.toml", &config("server.key"));
    let checked = place.run(&["check", "wrong.toml"]);
    assert_eq!(checked.code, 2, "{checked:?}");
    let expected = "wrong.toml:4:1: error: server.tls.cert: server.key: holds no certificate";
    assert!(checked.out.contains(expected), "{checked:?}");
    let refused = place.run(&["serve", "--config", "wrong.toml", "--listen", "127.0.0.1:0"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.err.contains("holds no certificate"), "{refused:?}");

    place.write("right.toml", &config("server.crt"));
    assert_eq!(place.run(&["check", "right.toml"]).code, 0);
    let server = place.serve(&["--config", "right.toml"]);
    assert!(
        server.url.starts_with("https://127.0.0.1:"),
        "{}",
        server.url
    );
    let line = curl_lines(&server.greeting)[0].to_owned();
    let told = run(Command::new("sh")
        .arg("-c")
        .arg(&line)
        .current_dir(place.path()));
    assert!(told.out.contains("\"name\":\"s\""), "{line}: {told:?}");
    let ca = files.ca.display().to_string();
    let ask = [
        "query",
        "SELECT 1 AS one",
        "--format",
        "csv",
        "--url",
        &server.url,
    ];
    let asked = place.run(&[&ask[..], &["--ca", &ca]].concat());
    assert_eq!(
        (asked.code, asked.out.as_str()),
        (0, "one\n1\n"),
        "{asked:?}"
    );
    let alone = place.run(&ask);
    assert_eq!(alone.code, 64, "{alone:?}");
    assert!(alone.err.contains("--ca FILE"), "{alone:?}");
    let own = [
        "query",
        "SELECT 2 AS two",
        "--format",
        "csv",
        "--config",
        "right.toml",
    ];
    let own = place.run(&own);
    assert_eq!((own.code, own.out.as_str()), (0, "two\n2\n"), "{own:?}");
}

#[test]
fn the_end_says_which_transactions_were_rolled_back() {
    let place = Place::new();
    let server = place.serve(&[]);
    let begin = format!(
        "curl -sf -X POST {}/v1/sources/demo/transactions -d '{{}}'",
        server.url
    );
    let begun = shell(&begin);
    assert_eq!(begun.code, 0, "{begun:?}");
    server.signal(Signal::SIGTERM);
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
    assert!(
        err.contains("mainstay: ended, 1 open transaction rolled back"),
        "{err}"
    );
}

#[test]
fn what_init_writes_can_be_served_and_ctrl_c_ends_it() {
    let place = Place::new();
    assert_eq!(place.run(&["init"]).code, 0);
    let server = place.serve(&["--config", "mainstay.toml", "--log-format", "json"]);
    let answer = shell(&format!("curl -s {}/healthz", server.url));
    assert!(answer.out.contains("ok"), "{answer:?}");
    server.signal(Signal::SIGINT);
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
    let logs = err.lines().filter(|line| !line.starts_with("mainstay: "));
    for line in logs {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}

#[test]
fn a_second_ctrl_c_ends_it_at_once_with_work_in_flight() {
    let place = Place::new();
    let mut server = place.serve(&[]);
    // Counts for ever.
    let sql =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let mut asking = place.command(&["query", "--url", &server.url, sql]);
    let asking = asking.stdout(Stdio::piped()).stderr(Stdio::piped());
    let asking = asking.spawn().unwrap();
    let begun = Instant::now();
    while in_flight(&place, &server.url) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20), "it never began");
    }
    server.signal(Signal::SIGINT);
    server.hear("once more to end at once");
    // Two within 200 ms are one wish.
    let first = Instant::now();
    while first.elapsed() < Duration::from_millis(250) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    let second = Instant::now();
    server.signal(Signal::SIGINT);
    let (code, err) = server.wait();
    // The statement would go on until its limit, and the server would wait for it.
    assert!(second.elapsed() < Duration::from_secs(20), "{err}");
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("ended at once"), "{err}");
    let asked = asking.wait_with_output().unwrap();
    assert_eq!(asked.status.code(), Some(1), "{asked:?}");
}

/// Attempts in flight on all endpoints.
fn in_flight(place: &Place, url: &str) -> u64 {
    let status = place.run(&["status", "--url", url, "--json"]);
    let all: Value = serde_json::from_str(&status.out).unwrap();
    let members = all["sources"][0]["members"].as_array().unwrap().iter();
    members
        .map(|member| member["in_flight"].as_u64().unwrap())
        .sum()
}

#[test]
fn a_back_end_that_is_down_gives_its_reason_in_the_log_and_in_status() {
    let place = Place::new();
    place.write(
        "down.toml",
        "[sources.orders]\ndriver = \"sqlite\"\npath = \"no/such.db\"\n\
         [sources.orders.policy.health]\ninterval = \"100ms\"\ndown_after = 1\n\
         [sources.orders.endpoints.a]\n",
    );
    let mut server = place.serve(&["--config", "down.toml"]);
    server.hear("endpoint down");
    let status = place.run(&["status", "--url", &server.url]);
    let reason = status
        .out
        .lines()
        .find(|line| line.starts_with("orders.a: "));
    let reason = reason.unwrap_or_else(|| panic!("{status:?}"));
    assert!(reason.contains("unable to open"), "{reason}");
    server.signal(Signal::SIGTERM);
    let (_, err) = server.wait();
    let logged = err.lines().find(|line| line.contains("endpoint down"));
    assert!(
        logged.is_some_and(|line| line.contains("unable to open")),
        "{err}"
    );
}

#[test]
fn a_server_that_cannot_start_says_why_and_what_to_do() {
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    place.write("file", "");
    place.write(
        "wrong.toml",
        "[server]\nlisten = \"nowhere\"\n[sources.s]\ndriver = \"sqlte\"\n",
    );
    for (arguments, code, expected) in [
        (
            &["--listen", address.as_str()][..],
            1,
            &["cannot listen", "--listen"][..],
        ),
        (
            &["--data-dir", "file"],
            1,
            &["data_dir file", "check the path"],
        ),
        (
            &["--config", "wrong.toml"],
            2,
            &["wrong.toml:2:", "wrong.toml:4:", "did you mean sqlite?"],
        ),
        (&["--config", "missing.toml"], 2, &["missing.toml"]),
        (&["--listen", "0.0.0.0:0"], 2, &["--listen", "127.0.0.1"]),
        (&["--log", "loud=?"], 64, &["--log"]),
    ] {
        let mut all = vec!["serve"];
        all.extend(arguments);
        let ended = place.run(&all);
        assert_eq!(ended.code, code, "{arguments:?}: {ended:?}");
        for part in expected {
            assert!(ended.err.contains(part), "{arguments:?}: {ended:?}");
        }
        assert_eq!(ended.out, "", "{arguments:?}");
    }
}

#[test]
fn a_flag_wins_over_a_variable_and_a_variable_over_a_file() {
    let place = Place::new();
    place.write(
        "a.toml",
        "[server]\ndata_dir = \"from-file\"\nlisten = \"127.0.0.1:1\"\n",
    );
    let mut command = place.command(&["serve", "--config", "a.toml", "--listen", "127.0.0.1:0"]);
    command.env("MAINSTAY_SERVER__DATA_DIR", "from-variable");
    command.env("MAINSTAY_SERVER__LISTEN", "127.0.0.1:2");
    let server = super::program::Server::start(command);
    assert!(
        !server.url.ends_with(":1") && !server.url.ends_with(":2"),
        "{}",
        server.url
    );
    assert!(place.path().join("from-variable").is_dir());
    assert!(!place.path().join("from-file").exists());
}

#[test]
fn a_server_whose_back_ends_are_all_down_starts_and_says_so() {
    let place = Place::new();
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    place.write(
        "down.toml",
        &format!(
            "[sources.orders]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {closed}\ndatabase = \"o\"\nuser = \"u\"\n[sources.orders.endpoints.a]\n[sources.orders.endpoints.b]\n[sources.orders.policy.health]\ninterval = \"200ms\"\n"
        ),
    );
    let server = place.serve(&["--config", "down.toml"]);
    let status = place.run(&["status", "--url", &server.url]);
    assert_eq!(status.code, 0, "{status:?}");
    assert!(status.out.contains("orders"), "{status:?}");
    let url = ["--url", server.url.as_str()];
    let query = place.run(&["query", url[0], url[1], "INSERT INTO t VALUES (1)"]);
    assert_eq!(query.code, 1, "{query:?}");
    assert!(query.err.contains("[no_"), "{query:?}");
}

#[test]
fn status_shows_every_endpoint_with_its_numbers() {
    let place = Place::new();
    let server = place.serve(&[]);
    for _ in 0..5 {
        let asked = place.run(&["query", "--url", &server.url, "SELECT 1"]);
        assert_eq!(asked.code, 0, "{asked:?}");
    }
    let status = place.run(&["status", "--url", &server.url]);
    assert_eq!(status.code, 0, "{status:?}");
    for part in [
        "SOURCE", "demo", "writer", "primary", "reader_1", "replica", "closed", "P99",
    ] {
        assert!(status.out.contains(part), "{part}: {}", status.out);
    }
    assert!(!status.out.contains('\x1b'), "{}", status.out);
    let json = place.run(&["status", "--url", &server.url, "--json"]);
    let all: Value = serde_json::from_str(&json.out).unwrap();
    let members = all["sources"][0]["members"].as_array().unwrap();
    let calls: u64 = members
        .iter()
        .map(|member| member["stats"]["calls"].as_u64().unwrap())
        .sum();
    assert!(calls >= 5, "{all}");
}

#[test]
fn questions_to_a_server_that_is_not_there_say_how_to_start_one() {
    let place = Place::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let url = format!("http://127.0.0.1:{port}");
    for arguments in [
        &["status"][..],
        &["status", "--watch"],
        &["query", "SELECT 1"],
        &["explain", "--sql", "SELECT 1"],
    ] {
        let mut all = arguments.to_vec();
        all.extend(["--url", &url]);
        let ended = place.run(&all);
        assert_eq!(ended.code, 1, "{arguments:?}: {ended:?}");
        assert!(
            ended.err.contains("mainstay serve"),
            "{arguments:?}: {ended:?}"
        );
    }
}

#[test]
fn query_prints_tables_json_and_csv_and_tells_refusals() {
    let place = Place::new();
    let server = place.serve(&[]);
    let query = |arguments: &[&str]| {
        let mut all = vec!["query", "--url", &server.url];
        all.extend(arguments);
        place.run(&all)
    };
    const SQL: &str = "SELECT id, name FROM customers WHERE id <= ? ORDER BY id";
    let table = query(&[SQL, "--param", "2"]);
    assert_eq!(table.code, 0, "{table:?}");
    assert!(table.out.starts_with("id  name"), "{table:?}");
    assert!(table.out.contains("(2 rows · "), "{table:?}");
    let csv = query(&[SQL, "--param", "2", "--format", "csv"]);
    assert!(csv.out.starts_with("id,name\n1,"), "{csv:?}");
    assert_eq!(csv.out.lines().count(), 3, "{csv:?}");
    let json = query(&[SQL, "--param", "2", "--format", "json"]);
    let answer: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(answer["rows"].as_array().unwrap().len(), 2);
    let text = query(&[
        "SELECT count(*) AS n FROM customers WHERE name = ?",
        "--param",
        "\"7\"",
    ]);
    assert!(text.out.starts_with("n\n0\n"), "{text:?}");

    for (arguments, expected) in [
        (&["SELECT nothing FROM customers"][..], "nothing"),
        (&["SELECT 'open"], "[bad_statement]"),
        (&["SELECT 1", "--source", "nowhere"], "[unknown_source]"),
    ] {
        let refused = query(arguments);
        assert_eq!(refused.code, 1, "{arguments:?}: {refused:?}");
        assert!(refused.err.contains(expected), "{arguments:?}: {refused:?}");
    }
}

#[test]
fn a_statement_is_explained_by_a_running_server() {
    let place = Place::new();
    let server = place.serve(&[]);
    let explain = |sql: &str| place.run(&["explain", "--url", &server.url, "--sql", sql]);
    let read = explain("SELECT name FROM customers");
    assert_eq!(read.code, 0, "{read:?}");
    for part in ["safety", "read", "reader_1", "candidates"] {
        assert!(read.out.contains(part), "{part}: {}", read.out);
    }
    let write = explain("DELETE FROM customers");
    assert!(write.out.contains("primary"), "{write:?}");
    let json = place.run(&[
        "explain",
        "--url",
        &server.url,
        "--json",
        "--sql",
        "SELECT 1",
    ]);
    assert!(serde_json::from_str::<Value>(&json.out).is_ok(), "{json:?}");
}
