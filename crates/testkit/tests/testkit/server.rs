//! One private server: started, killed, stopped, left alone.

use std::path::PathBuf;
use std::time::Duration;

use mainstay_testkit::postgres::{PostgresOptions, PostgresServer, Session};
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn a_server_starts_with_its_settings_and_answers() {
    let options = PostgresOptions::new()
        .max_connections(17)
        .setting("work_mem", "2MB");
    let server = PostgresServer::start(options).await.unwrap();
    assert_eq!(server.value("SHOW max_connections").await.unwrap(), "17");
    assert_eq!(server.value("SHOW work_mem").await.unwrap(), "2MB");
    assert_eq!(
        server.value("SHOW port").await.unwrap(),
        server.port().to_string()
    );
}

#[tokio::test]
async fn a_second_server_is_ready_soon_and_apart_from_the_first() {
    let first = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let begun = Instant::now();
    let second = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    println!("a start from the template took {:?}", begun.elapsed());
    assert_ne!(first.port(), second.port());
    first.sql("CREATE TABLE only_here (id int)").await.unwrap();
    let seen = second
        .value("SELECT to_regclass('only_here') IS NULL")
        .await
        .unwrap();
    assert_eq!(seen, "t");
}

#[tokio::test]
async fn a_killed_server_is_gone_at_once_and_keeps_what_was_committed() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let session = server.session().await.unwrap();
    session
        .sql("CREATE TABLE kept (id int); INSERT INTO kept VALUES (7)")
        .await
        .unwrap();
    session
        .sql("BEGIN; INSERT INTO kept VALUES (8)")
        .await
        .unwrap();
    let port = server.port();
    server.kill9().await.unwrap();
    assert!(session.sql("SELECT 1").await.is_err());
    assert!(server.session().await.is_err());
    assert!(server.pid().is_none());
    server.start_again().await.unwrap();
    assert_eq!(server.port(), port);
    assert_eq!(
        server
            .value("SELECT string_agg(id::text, ' ') FROM kept")
            .await
            .unwrap(),
        "7"
    );
}

#[tokio::test]
async fn a_fast_stop_ends_clients_and_the_server_can_start_again() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let session = server.session().await.unwrap();
    server.stop_fast().await.unwrap();
    assert!(session.sql("SELECT 1").await.is_err());
    assert!(
        server.stop_fast().await.is_err(),
        "there is nothing left to stop"
    );
    server.start_again().await.unwrap();
    assert!(server.start_again().await.is_err(), "it runs already");
    assert_eq!(server.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_stopped_server_is_a_black_hole_until_it_goes_on() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let session = server.session().await.unwrap();
    server.sigstop().unwrap();
    let asked = session.value("SELECT 41 + 1");
    tokio::pin!(asked);
    assert!(
        timeout(Duration::from_millis(200), &mut asked)
            .await
            .is_err(),
        "it must not answer"
    );
    let newcomer = timeout(Duration::from_millis(200), server.session()).await;
    assert!(
        newcomer.is_err(),
        "a new client must hang, neither get in nor be refused"
    );
    server.sigcont().unwrap();
    assert_eq!(asked.await.unwrap(), "42");
}

#[tokio::test]
async fn a_stopped_server_can_be_killed() {
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    server.sigstop().unwrap();
    server.kill9().await.unwrap();
    server.start_again().await.unwrap();
}

#[tokio::test]
async fn a_password_is_asked_where_an_access_line_says_so() {
    let options = PostgresOptions::new().access("host all app 127.0.0.1/32 scram-sha-256");
    let server = PostgresServer::start(options).await.unwrap();
    server.create_user("app", "it's secret").await.unwrap();
    let url = |password| {
        format!(
            "host=127.0.0.1 port={} user=app dbname=postgres password='{password}'",
            server.port()
        )
    };
    let session = Session::connect(&url("it\\'s secret")).await.unwrap();
    assert_eq!(session.value("SELECT current_user").await.unwrap(), "app");
    let refused = Session::connect(&url("guess")).await.unwrap_err();
    let refused = refused.downcast::<tokio_postgres::Error>().unwrap();
    assert_eq!(refused.code().unwrap().code(), "28P01");
}

#[tokio::test]
async fn a_server_with_tls_has_certificates_that_openssl_finds_right() {
    let server = PostgresServer::start(PostgresOptions::new().tls())
        .await
        .unwrap();
    assert_eq!(server.value("SHOW ssl").await.unwrap(), "on");
    let files = server.tls_files().unwrap();
    for (certificate, purpose) in [
        (&files.server_certificate, "sslserver"),
        (&files.client_certificate, "sslclient"),
    ] {
        let checked = std::process::Command::new("openssl")
            .args(["verify", "-purpose", purpose, "-CAfile"])
            .args([&files.ca, certificate])
            .output()
            .unwrap();
        assert!(checked.status.success(), "{checked:?}");
    }
    let greeted = std::process::Command::new("openssl")
        .args(["s_client", "-starttls", "postgres", "-verify_return_error"])
        .args([
            "-verify_hostname",
            "localhost",
            "-connect",
            &format!("127.0.0.1:{}", server.port()),
        ])
        .arg("-CAfile")
        .arg(&files.ca)
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    assert!(
        greeted.status.success(),
        "{}",
        String::from_utf8_lossy(&greeted.stderr)
    );
}

#[tokio::test]
async fn servers_share_a_system_identifier_unless_one_of_its_own_is_asked_for() {
    let identifier = "SELECT system_identifier FROM pg_control_system()";
    let mut seen = Vec::new();
    for options in [
        PostgresOptions::new(),
        PostgresOptions::new(),
        PostgresOptions::new().own_identity(),
    ] {
        let server = PostgresServer::start(options).await.unwrap();
        seen.push(server.value(identifier).await.unwrap());
    }
    assert_eq!(seen[0], seen[1]);
    assert_ne!(seen[0], seen[2]);
}

#[tokio::test]
async fn a_wrong_setting_is_reported_with_the_servers_own_words() {
    let options = PostgresOptions::new().setting("max_connections", "many");
    let problem = format!("{:#}", PostgresServer::start(options).await.unwrap_err());
    assert!(
        problem.contains("invalid value for parameter \"max_connections\""),
        "{problem}"
    );
}

#[tokio::test]
async fn dropping_a_server_ends_it_and_removes_its_folder() {
    for stopped in [false, true] {
        let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
        if stopped {
            server.sigstop().unwrap();
        }
        let (pid, folder) = (server.pid().unwrap(), server.folder().to_owned());
        drop(server);
        assert!(!runs(pid), "stopped before: {stopped}");
        assert!(!folder.exists(), "stopped before: {stopped}");
    }
}

#[tokio::test]
async fn a_server_ends_with_a_test_that_panics() {
    let (pid, folder) = tokio::task::spawn_blocking(|| {
        let (sender, receiver) = std::sync::mpsc::channel();
        let test = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async move {
                let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
                sender
                    .send((server.pid().unwrap(), server.folder().to_owned()))
                    .unwrap();
                panic!("on purpose");
            });
        });
        assert!(test.join().is_err());
        receiver.recv().unwrap()
    })
    .await
    .unwrap();
    assert!(!runs(pid));
    assert!(!folder.exists());
}

/// Set in the child process of the next test: where it writes what it started.
const STARTED: &str = "MAINSTAY_TESTKIT_STARTED";

/// Not a case of its own: the next test runs it in a process that it then kills.
#[tokio::test]
async fn a_process_that_holds_a_server_if_it_is_told_to() {
    let Some(path) = std::env::var_os(STARTED) else {
        return;
    };
    let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
    let text = format!("{} {}", server.pid().unwrap(), server.folder().display());
    let path = PathBuf::from(path);
    std::fs::write(path.with_extension("part"), text).unwrap();
    std::fs::rename(path.with_extension("part"), path).unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_server_ends_with_a_test_process_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "a_process_that_holds_a_server_if_it_is_told_to",
            "--nocapture",
        ])
        .env(STARTED, &started)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    within(PATIENCE, || started.exists()).await;
    let text = std::fs::read_to_string(&started).unwrap();
    let (pid, folder) = text.split_once(' ').unwrap();
    let (pid, folder) = (pid.parse().unwrap(), PathBuf::from(folder));
    assert!(runs(pid) && folder.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    within(PATIENCE, || !runs(pid) && !folder.exists()).await;
}

/// Far longer than it takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn within(limit: Duration, holds: impl Fn() -> bool) {
    let end = Instant::now() + limit;
    while !holds() {
        assert!(Instant::now() < end, "not within {limit:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn runs(pid: i32) -> bool {
    let nothing: Option<nix::sys::signal::Signal> = None;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nothing).is_ok()
}
