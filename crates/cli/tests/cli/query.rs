//! `query --config`: a statement without a running server.

use std::net::TcpListener;
use std::time::Duration;

use tokio::time::Instant;

use super::program::Place;

#[test]
fn query_runs_in_this_process_with_a_configuration() {
    let place = Place::new();
    place.write(
        "a.toml",
        "[sources.own]\ndriver = \"sqlite\"\npath = \"own.db\"\noptions = { create = \"true\" }\n[sources.own.endpoints.a]\n",
    );
    let query = |sql: &str| place.run(&["query", "--config", "a.toml", sql]);
    let made = query("CREATE TABLE t (a INTEGER PRIMARY KEY)");
    assert_eq!(made.code, 0, "{made:?}");
    let wrote = query("INSERT INTO t VALUES (41), (42)");
    assert!(wrote.out.contains("2 rows affected"), "{wrote:?}");
    let read = query("SELECT max(a) AS a FROM t");
    assert!(read.out.starts_with(" a\n42\n"), "{read:?}");
    // Keys of the file are for callers of a server that is served to others.
    let hash = "0".repeat(64);
    let keys = format!("[server.keys.a]\nsha256 = \"{hash}\"\nrole = \"read\"\n");
    place.write("keys.toml", &(keys + &place.read("a.toml")));
    for more in [&[][..], &["--key", "another"]] {
        let arguments = [&["query", "--config", "keys.toml"][..], more];
        let insert = place.run(
            &[
                &arguments.concat()[..],
                &[
                    "INSERT INTO t VALUES (?) RETURNING a",
                    "--param",
                    &more.len().to_string(),
                ],
            ]
            .concat(),
        );
        assert_eq!(insert.code, 0, "{insert:?}");
    }
    place.write("wrong.toml", "[server]\nno = 1\n");
    assert_eq!(
        place
            .run(&["query", "--config", "wrong.toml", "SELECT 1"])
            .code,
        2
    );
}

#[test]
fn query_in_this_process_waits_for_no_source_but_its_own() {
    let place = Place::new();
    place.write("own.toml", "[sources.own]\ndriver = \"sqlite\"\npath = \"own.db\"\noptions = { create = \"true\" }\n[sources.own.endpoints.a]\n");
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let down = (0..12).map(|number| format!(
        "[sources.down{number}]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {closed}\ndatabase = \"o\"\nuser = \"u\"\n[sources.down{number}.endpoints.a]\n[sources.down{number}.endpoints.b]\n"
    ));
    place.write("down.toml", &down.collect::<String>());
    let query = |source: &str| {
        let begun = Instant::now();
        let config = ["query", "--config", "own.toml", "--config", "down.toml"];
        let ended = place.run(&[&config[..], &["SELECT 7 AS a", "--source", source]].concat());
        // A primary is waited for 5 s; for each of all these it would be a minute.
        assert!(begun.elapsed() < Duration::from_secs(30), "{ended:?}");
        ended
    };
    let own = query("own");
    assert_eq!(own.code, 0, "{own:?}");
    assert!(
        own.out.starts_with("a\n7\n") || own.out.starts_with(" a\n7\n"),
        "{own:?}"
    );
    assert_eq!(query("down1").code, 1);
    let several = place.run(&[
        "query",
        "--config",
        "own.toml",
        "--config",
        "down.toml",
        "SELECT 1",
    ]);
    assert_eq!(several.code, 64, "{several:?}");
}
