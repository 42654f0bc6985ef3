use mainstay_config::{Address, TlsMode, check};

use super::given::{lines, loaded, toml};

fn source(url: &str) -> String {
    format!(
        "[sources.o]\nuser = \"app\"\ndatabase = \"db\"\n[sources.o.endpoints.a]\nurl = {url:?}\n"
    )
}

#[test]
fn a_url_stands_for_the_keys_it_contains() {
    for (url, host, port, database, user, password, mode) in [
        (
            "postgres://h",
            "h",
            5432,
            "db",
            "app",
            None,
            TlsMode::Prefer,
        ),
        (
            "postgresql://h:1/d",
            "h",
            1,
            "d",
            "app",
            None,
            TlsMode::Prefer,
        ),
        ("mysql://h", "h", 3306, "db", "app", None, TlsMode::Prefer),
        (
            "mariadb://u:p@h:3307/d?ssl-mode=VERIFY_IDENTITY&ssl-ca=/ca",
            "h",
            3307,
            "d",
            "u",
            Some("p"),
            TlsMode::VerifyFull,
        ),
        (
            "postgres://u@h/d",
            "h",
            5432,
            "d",
            "u",
            None,
            TlsMode::Prefer,
        ),
        (
            "postgres://u:p@h:6000/d?sslmode=require",
            "h",
            6000,
            "d",
            "u",
            Some("p"),
            TlsMode::Require,
        ),
        (
            "postgres://u:p%40%3A%2F@h/d%20e",
            "h",
            5432,
            "d e",
            "u",
            Some("p@:/"),
            TlsMode::Prefer,
        ),
        (
            "postgres://u:a@b@h/d",
            "h",
            5432,
            "d",
            "u",
            Some("a@b"),
            TlsMode::Prefer,
        ),
        (
            "postgres://[::1]:7/d",
            "::1",
            7,
            "d",
            "app",
            None,
            TlsMode::Prefer,
        ),
        (
            "postgres://[::1]/d?sslmode=disable",
            "::1",
            5432,
            "d",
            "app",
            None,
            TlsMode::Off,
        ),
        (
            "postgres://%2Frun%2Fpg/d",
            "/run/pg",
            5432,
            "d",
            "app",
            None,
            TlsMode::Prefer,
        ),
        (
            "postgres://h/d?sslmode=verify-full&sslrootcert=/ca",
            "h",
            5432,
            "d",
            "app",
            None,
            TlsMode::VerifyFull,
        ),
        (
            "postgres://h/d?application_name=x+y",
            "h",
            5432,
            "d",
            "app",
            None,
            TlsMode::Prefer,
        ),
    ] {
        // What the endpoint's URL says is stronger than what the source says.
        let loaded = loaded(toml(&source(url)));
        let endpoint = &loaded.configuration.sources["o"].endpoints["a"];
        let server = endpoint.server().unwrap();
        let read = server
            .password
            .as_ref()
            .map(|password| password.read().unwrap());
        assert_eq!(
            (
                server.host.as_str(),
                server.port,
                server.database.as_str(),
                server.user.as_str(),
                read.as_deref(),
                server.tls.mode
            ),
            (host, port, database, user, password, mode),
            "{url}"
        );
        if url.contains("application_name") {
            assert_eq!(endpoint.options["application_name"], "x+y");
        }
    }
    for (url, path) in [
        ("sqlite:o.db", "o.db"),
        ("sqlite://o.db", "o.db"),
        ("sqlite:/var/o.db", "/var/o.db"),
        ("sqlite:///var/o%20p.db", "/var/o p.db"),
    ] {
        let loaded = loaded(toml(&format!("[sources.o.endpoints.a]\nurl = {url:?}\n")));
        let endpoint = &loaded.configuration.sources["o"].endpoints["a"];
        assert_eq!(endpoint.address, Address::File(path.into()), "{url}");
    }
}

#[test]
fn a_url_that_cannot_be_read_says_what_would_be_right() {
    for (url, message) in [
        ("", "is empty"),
        (
            "db1",
            "the URL has no scheme (known: postgres://user@host:5432/database, mysql://user@host:3306/database, mariadb://user@host:3306/database, sqlite:path)",
        ),
        (
            "oracle://h/d",
            "unknown scheme \"oracle\" (known: postgres://user@host:5432/database, mysql://user@host:3306/database, mariadb://user@host:3306/database, sqlite:path)",
        ),
        ("mssql://h/d", "mssql is not available in this version"),
        (
            "mysql://h/d?ssl-mode=maybe",
            "the URL's ssl-mode is not known",
        ),
        ("postgres:h/d", "the URL lacks //"),
        ("postgres://a,b/d", "the URL names several hosts"),
        ("postgres://h:x/d", "the port is not a number"),
        ("postgres://h:0/d", "the port is not a number"),
        ("postgres://h:70000/d", "the port is not a number"),
        ("postgres://[::1/d", "the URL lacks ]"),
        ("postgres://h/d%", "the URL has a % without"),
        ("postgres://h/d%ff", "the URL's escapes are not UTF-8"),
        ("postgres://h/d%00", "the URL contains a control character"),
        (
            "postgres://h/d?sslmode=maybe",
            "the URL's sslmode is not known",
        ),
        ("postgres://h/d?host=x", "host stands in the URL's query"),
        ("postgres://h/d?x=1&x=2", "the URL gives options.x twice"),
        ("sqlite:", "the URL names no file"),
    ] {
        let problems = check(toml(&source(url)));
        let all = lines(&problems);
        let found = problems.iter().any(|problem| {
            let text = problem.to_string();
            problem.line == Some(5)
                && text.contains(&format!("sources.o.endpoints.a.url: {message}"))
        });
        assert!(found, "{url}\n{all}");
    }
}

#[test]
fn a_key_beside_a_url_that_gives_it_too_is_a_problem() {
    let text = format!("{}host = \"other\"\n", source("postgres://h/d"));
    let all = lines(&check(toml(&text)));
    assert!(
        all.contains("host is already given by sources.o.endpoints.a."),
        "{all}"
    );
}
