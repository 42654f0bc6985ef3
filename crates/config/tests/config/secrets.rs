use std::sync::Arc;

use mainstay_config::{FixedSecrets, Secret, check, explain};

use super::given::{ORDERS, lines, loaded, toml};

const VALUE: &str = "hunter2-very-secret";

fn with_password(password: &str) -> mainstay_config::LoadOptions {
    let line = format!("user = \"app\"\npassword = {password}");
    toml(&ORDERS.replace("user = \"app\"", &line))
}

#[test]
fn a_secret_is_read_from_where_it_is_kept_and_never_shown() {
    for (written, value, shown) in [
        (
            "\"env:ORDERS_PASSWORD\"",
            VALUE,
            "(secret from env:ORDERS_PASSWORD)",
        ),
        (
            "\"file:/run/secrets/orders\"",
            "from-a-file",
            "(secret from file:/run/secrets/orders)",
        ),
        ("\"hunter2-very-secret\"", VALUE, "(secret)"),
    ] {
        let loaded = loaded(with_password(written));
        let server = loaded.configuration.sources["orders"].endpoints["a"]
            .server()
            .unwrap();
        let password = server.password.as_ref().unwrap();
        assert_eq!(password.read().unwrap(), value);
        assert_eq!(password.to_string(), shown);
        assert_eq!(
            serde_json::to_string(password).unwrap(),
            format!("{shown:?}")
        );
        let all = format!(
            "{:?} {:#?} {}",
            loaded,
            loaded,
            serde_json::to_string(&explain(&loaded.configuration, "orders.a").unwrap()).unwrap()
        );
        assert!(all.contains(shown));
        assert!(!all.contains(value), "{written} is shown");
    }
}

#[test]
fn a_password_that_is_written_out_is_a_warning_that_does_not_show_it() {
    for (options, path) in [
        (
            with_password("\"hunter2-very-secret\""),
            "sources.orders.password",
        ),
        (
            toml("[sources.o.endpoints.a]\nurl = \"postgres://app:hunter2-very-secret@db/x\""),
            "sources.o.endpoints.a.url",
        ),
    ] {
        let loaded = loaded(options);
        let all = lines(&loaded.warnings);
        assert_eq!(loaded.warnings.len(), 1, "{all}");
        assert_eq!(loaded.warnings[0].path, path);
        assert!(all.contains("a password is written out"), "{all}");
        assert!(!all.contains(VALUE), "{all}");
    }
}

#[test]
fn a_secret_that_does_not_resolve_is_a_problem_that_names_the_place() {
    for (written, message) in [
        (
            "\"env:NOWHERE\"",
            "does not resolve: the variable NOWHERE is not set",
        ),
        ("\"env:\"", "does not resolve: the variable  is not set"),
        (
            "\"file:/no/such\"",
            "does not resolve: /no/such cannot be read",
        ),
        ("\"\"", "is empty"),
        ("123456789", "expected text"),
        ("[\"hunter2-very-secret\"]", "expected text"),
        ("{ hunter2-very-secret = 1 }", "expected text"),
    ] {
        let problems = check(with_password(written));
        let all = lines(&problems);
        assert!(
            problems.iter().any(|p| p.path == "sources.orders.password"
                && p.line == Some(6)
                && p.message.starts_with(message)),
            "{written}: {all}"
        );
        assert!(!all.contains(VALUE) && !all.contains("123456789"), "{all}");
    }
}

#[test]
fn a_whole_url_can_be_a_secret_and_its_password_stays_one() {
    let mut options = toml("[sources.o.endpoints.a]\nurl = \"env:URL\"");
    let url = "postgres://app:hunter2-very-secret@db:6000/x";
    options.secrets = Arc::new(FixedSecrets::default().with_variable("URL", url));
    let loaded = loaded(options);
    assert_eq!(lines(&loaded.warnings), "");
    let server = loaded.configuration.sources["o"].endpoints["a"]
        .server()
        .unwrap();
    assert_eq!((server.host.as_str(), server.port), ("db", 6000));
    assert_eq!(server.password.as_ref().unwrap().read().unwrap(), VALUE);
    assert!(!format!("{loaded:?}").contains(VALUE));
    assert_eq!(
        server.password.as_ref().unwrap().to_string(),
        "(secret from env:URL)"
    );
}

#[test]
fn the_password_of_a_url_in_a_file_is_read_anew_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("url");
    let write =
        |password: &str| std::fs::write(&path, format!("postgres://u:{password}@h/d\n")).unwrap();
    write("first");
    let mut options = toml(&format!(
        "[sources.o.endpoints.a]\nurl = \"file:{}\"",
        path.display()
    ));
    options.secrets = Arc::new(mainstay_config::ProcessSecrets);
    let loaded = loaded(options);
    let server = loaded.configuration.sources["o"].endpoints["a"]
        .server()
        .unwrap();
    let password = server.password.as_ref().unwrap();
    assert_eq!(password.read().unwrap(), "first");
    write("second");
    assert_eq!(password.read().unwrap(), "second");
    std::fs::remove_file(&path).unwrap();
    assert!(password.read().is_err());
}

#[test]
fn a_broken_url_or_a_debugged_option_never_shows_its_password() {
    for url in [
        "oracle://app:hunter2-very-secret@db/x",
        "postgres:app:hunter2-very-secret@db/x",
        "postgres://app:hunter2-very-secret@db:port/x",
        "postgres://app:hunter2-very-secret@[db/x",
        "postgres://app:hunter2-very-secret%zz@db/x",
        "hunter2-very-secret",
        "postgres://a:hunter2-very-secret@a,b/x",
    ] {
        let problems = check(toml(&format!("[sources.o.endpoints.a]\nurl = {url:?}")));
        assert!(problems.iter().any(|problem| problem.is_error()), "{url}");
        assert!(!lines(&problems).contains(VALUE), "{}", lines(&problems));
    }
    let mut options = toml("");
    options
        .environment
        .push(("MAINSTAY_SOURCES__O__PASSWORD".into(), VALUE.into()));
    assert!(!format!("{options:?}").contains(VALUE));
    let secrets = FixedSecrets::default()
        .with_variable("A", VALUE)
        .with_file("/f", VALUE);
    assert!(!format!("{secrets:?}").contains(VALUE));
}

#[test]
fn secrets_are_equal_if_they_are_kept_in_the_same_place() {
    let reader = |value: &str| Arc::new(FixedSecrets::default().with_variable("A", value));
    assert_eq!(
        Secret::new("env:A", reader("1")),
        Secret::new("env:A", reader("2"))
    );
    assert_ne!(
        Secret::new("env:A", reader("1")),
        Secret::new("env:B", reader("1"))
    );
    assert_ne!(Secret::new("x", reader("1")), Secret::new("y", reader("1")));
}

#[test]
fn a_file_that_only_a_secret_names_is_told_without_its_path() {
    let folder = std::env::temp_dir().join("hunter2-very-secret");
    let _ = std::fs::remove_dir_all(&folder);
    let told = |path: &std::path::Path| {
        let mut options = toml("[sources.o.endpoints.a]\nurl = \"file:/etc/kept\"\n");
        let kept = format!("sqlite:{}", path.display());
        options.secrets = Arc::new(FixedSecrets::default().with_file("/etc/kept", &kept));
        let loaded = loaded(options);
        let all = lines(&mainstay_config::missing_files(
            &loaded.configuration,
            |_| false,
        ));
        assert!(!all.contains("hunter2"), "{all}");
        all
    };
    let file = folder.join("a.db");
    let missing = told(&file);
    assert!(
        missing.contains("the folder that the secret names is missing"),
        "{missing}"
    );
    std::fs::create_dir(&folder).unwrap();
    let missing = told(&file);
    assert!(
        missing.contains("the file that the secret names is missing"),
        "{missing}"
    );
    let wrong = told(&folder);
    assert!(
        wrong.contains("what the secret names is a folder"),
        "{wrong}"
    );
    std::fs::write(&file, "this is a text, and longer than a head").unwrap();
    let wrong = told(&file);
    assert!(
        wrong.contains("what the secret names is no SQLite database"),
        "{wrong}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_url_that_is_kept_with_the_secrets_and_is_none_is_told_without_any_of_it() {
    for kept in [
        "root:hunter2-very-secret:19000:0:99999:7:::",
        "hunter2-very-secret:x",
        "mysql:hunter2-very-secret",
        "sqlite:a?hunter2-very-secret=1&hunter2-very-secret=2",
        "sqlite:a?statements_max=hunter2-very-secret",
        "sqlite:a?pragma.mmap_size=hunter2-very-secret",
        "sqlite:a?hunter2-very-secret=1",
        "postgres://u@h:hunter2-very-secret/d",
        "postgres://u@h/d?sslmode=hunter2-very-secret",
        "postgres://u@h/d?statements_max=hunter2-very-secret",
    ] {
        let mut options = toml(
            "[sources.o.endpoints.a]\nurl = \"file:/etc/kept\"\n[sources.p.endpoints.a]\nurl = \"env:KEPT\"\n",
        );
        let secrets = FixedSecrets::default().with_file("/etc/kept", kept);
        options.secrets = Arc::new(secrets.with_variable("KEPT", kept));
        let problems = check(options);
        let errors = problems.iter().filter(|problem| problem.is_error());
        let mut paths: Vec<&str> = errors.map(|problem| problem.path.as_str()).collect();
        paths.dedup();
        let expected = ["sources.o.endpoints.a.url", "sources.p.endpoints.a.url"];
        assert_eq!(paths, expected, "{kept}: {}", lines(&problems));
        assert!(!lines(&problems).contains("root"), "{}", lines(&problems));
        assert!(
            !lines(&problems).contains("hunter2"),
            "{}",
            lines(&problems)
        );
    }
}
