//! Logins, encryption and what is read anew at each connect.

use std::io;
use std::sync::{Arc, Mutex};

use mainstay_engine::{Blame, Category, Sent, Severity};
use mainstay_postgres::{PostgresSettings, TlsMode, TlsSettings};
use mainstay_sql::{Access, Code, Connection, Driver, SqlError, Value};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};

use super::failures::state;
use super::place::{driver, run, server, settings, value};

async fn refused(settings: PostgresSettings) -> SqlError {
    match driver(settings).connect(Access::ReadOnly).await {
        Err(error) => error,
        Ok(_) => panic!("connected"),
    }
}

/// A server with TLS, where `app` logs in by password only.
async fn guarded() -> PostgresServer {
    let options = PostgresOptions::new()
        .tls()
        .setting("listen_addresses", "127.0.0.1, 127.0.0.2")
        .access("host all app 127.0.0.0/8 scram-sha-256");
    let server = PostgresServer::start(options).await.unwrap();
    server.create_user("app", "right").await.unwrap();
    server
}

#[tokio::test]
async fn a_refused_login_is_auth_and_weighs_high() {
    let server = guarded().await;
    let mut wrong = settings(&server);
    wrong.user = "app".into();
    wrong.password = Some(Arc::new(|| Ok("wrong".to_owned())));
    let error = refused(wrong.clone()).await;
    let failure = error.failure();
    assert_eq!(
        (state(&error), failure.category, failure.severity),
        ("28P01", Category::Auth, Severity::High)
    );
    assert_eq!((failure.blame, failure.sent), (Blame::Endpoint, Sent::No));
    wrong.user = "nobody".into();
    assert_eq!(state(&refused(wrong).await), "28000");
}

#[tokio::test]
async fn a_password_is_read_at_each_connect() {
    let server = guarded().await;
    let password = Arc::new(Mutex::new("wrong".to_owned()));
    let mut rotating = settings(&server);
    rotating.user = "app".into();
    let shared = password.clone();
    rotating.password = Some(Arc::new(move || Ok(shared.lock().unwrap().clone())));
    let driver = driver(rotating);
    assert!(driver.connect(Access::ReadOnly).await.is_err());
    *password.lock().unwrap() = "right".into();
    assert!(driver.connect(Access::ReadOnly).await.is_ok());
}

#[tokio::test]
async fn a_password_that_cannot_be_read_or_is_missing_is_said_so() {
    let server = guarded().await;
    let mut unreadable = settings(&server);
    unreadable.user = "app".into();
    unreadable.password = Some(Arc::new(|| Err(io::Error::other("the vault is shut"))));
    let error = refused(unreadable.clone()).await;
    assert!(error.to_string().contains("the vault is shut"), "{error}");
    unreadable.password = None;
    let error = refused(unreadable).await;
    assert!(error.to_string().contains("password missing"), "{error}");
    assert_eq!(error.sent(), Sent::No);
}

#[tokio::test]
async fn an_endpoint_without_the_database_is_the_wrong_endpoint() {
    let mut elsewhere = settings(server().await);
    elsewhere.database = "nowhere".into();
    let error = refused(elsewhere).await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("3D000", Category::Endpoint)
    );
    assert_eq!(error.sent(), Sent::No);
}

#[tokio::test]
async fn too_many_connections_are_saturation() {
    let server = server().await;
    server
        .sql("CREATE ROLE lonely LOGIN CONNECTION LIMIT 0")
        .await
        .unwrap();
    let mut lonely = settings(server);
    lonely.user = "lonely".into();
    let error = refused(lonely).await;
    assert_eq!(
        (state(&error), error.failure().category),
        ("53300", Category::Saturation)
    );
    assert_eq!(
        (error.sent(), error.code()),
        (Sent::No, Code::AttemptsFailed)
    );
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_transient() {
    let mut closed = settings(server().await);
    closed.port = 1;
    let error = refused(closed.clone()).await;
    assert_eq!(
        (error.failure().category, error.sent()),
        (Category::Transient, Sent::No),
        "{error}"
    );
    closed.host = "nowhere.invalid".into();
    let error = refused(closed).await;
    assert_eq!(
        (error.failure().category, error.sent()),
        (Category::Transient, Sent::No),
        "{error}"
    );
    assert!(error.to_string().contains("resolved"), "{error}");
}

/// The server's word about transactions is heard, encrypted or not.
async fn assert_watched(session: &mut Box<dyn Connection>) {
    let error = run(session, "BEGIN", &[]).await.unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::BadStatement, Sent::YesUnprocessed)
    );
    assert!(!session.is_closed());
}

#[tokio::test]
async fn every_tls_mode_checks_what_it_promises() {
    let server = guarded().await;
    let files = server.tls_files().unwrap();
    let other = guarded().await;
    let (right, wrong) = (
        Some(files.ca.clone()),
        Some(other.tls_files().unwrap().ca.clone()),
    );
    let table = [
        (TlsMode::Off, "127.0.0.1", None, Some(false)),
        (TlsMode::Prefer, "127.0.0.1", None, Some(true)),
        (TlsMode::Prefer, "127.0.0.1", wrong.clone(), Some(true)),
        (TlsMode::Require, "127.0.0.1", None, Some(true)),
        (TlsMode::Require, "127.0.0.1", wrong.clone(), None),
        (TlsMode::VerifyCa, "127.0.0.1", right.clone(), Some(true)),
        (TlsMode::VerifyCa, "127.0.0.2", right.clone(), Some(true)),
        (TlsMode::VerifyCa, "127.0.0.1", wrong.clone(), None),
        (TlsMode::Require, "0x7f000001", None, Some(true)),
        (TlsMode::VerifyCa, "127.0.0.1", None, None),
        (TlsMode::VerifyFull, "127.0.0.1", right.clone(), Some(true)),
        (TlsMode::VerifyFull, "localhost", right.clone(), Some(true)),
        (TlsMode::VerifyFull, "127.0.0.1", wrong, None),
        // The server listens there too, but its certificate does not name it.
        (TlsMode::VerifyFull, "127.0.0.2", right, None),
    ];
    for (mode, host, ca, expected) in table {
        let mut settings = settings(&server);
        settings.host = host.into();
        settings.user = "app".into();
        settings.password = Some(Arc::new(|| Ok("right".to_owned())));
        settings.tls = TlsSettings {
            mode,
            ca: ca.clone(),
            ..TlsSettings::default()
        };
        let connected = driver(settings).connect(Access::ReadOnly).await;
        let mut shown = String::new();
        let encrypted = match connected {
            Ok(mut session) => {
                assert_watched(&mut session).await;
                let ssl = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
                Some(value(&mut session, ssl).await == Value::Bool(true))
            }
            Err(error) => {
                assert_eq!(error.sent(), Sent::No);
                shown = error.to_string();
                None
            }
        };
        assert_eq!(encrypted, expected, "{mode:?} {host} {ca:?}: {shown}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let mut required = settings(server().await);
    required.tls.mode = TlsMode::Require;
    let error = refused(required.clone()).await;
    assert!(
        error.to_string().contains("does not support TLS"),
        "{error}"
    );
    required.tls.mode = TlsMode::Prefer;
    let mut session = driver(required).connect(Access::ReadOnly).await.unwrap();
    assert_watched(&mut session).await;
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_given() {
    let options = PostgresOptions::new()
        .tls()
        .access("hostssl all postgres 127.0.0.1/32 cert");
    let options = options.access("hostnossl all postgres 127.0.0.1/32 trust");
    let server = PostgresServer::start(options).await.unwrap();
    let files = server.tls_files().unwrap();
    let mut without = settings(&server);
    without.tls = TlsSettings {
        mode: TlsMode::VerifyFull,
        ca: Some(files.ca.clone()),
        ..TlsSettings::default()
    };
    assert_eq!(state(&refused(without.clone()).await), "28000");
    without.tls.certificate = Some(files.client_certificate.clone());
    let error = refused(without.clone()).await;
    assert!(error.to_string().contains("needs both"), "{error}");
    without.tls.key = Some(files.client_key.clone());
    assert!(driver(without).connect(Access::ReadOnly).await.is_ok());
}

#[tokio::test]
async fn session_settings_come_from_the_options() {
    let mut configured = settings(server().await);
    configured.options = vec![
        ("work_mem".into(), "123kB".into()),
        ("search_path".into(), "\"a b\", public".into()),
    ];
    configured.application_name = "a test".into();
    let mut session = driver(configured).connect(Access::ReadWrite).await.unwrap();
    assert_eq!(
        value(&mut session, "SHOW work_mem").await,
        Value::Text("123kB".into())
    );
    assert_eq!(
        value(&mut session, "SHOW search_path").await,
        Value::Text("\"a b\", public".into())
    );
    assert_eq!(
        value(&mut session, "SHOW application_name").await,
        Value::Text("a test".into())
    );
    assert_eq!(
        value(&mut session, "SHOW default_transaction_read_only").await,
        Value::Text("off".into())
    );
}
