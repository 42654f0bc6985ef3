//! Logins, encryption and what is read anew at each connect.

use std::io;
use std::sync::{Arc, Mutex};

use mainstay_engine::{Blame, Category, Sent, Severity};
use mainstay_mysql::{MysqlSettings, TlsMode, TlsSettings};
use mainstay_sql::{Access, Driver, SqlError, Value};
use mainstay_testkit::mariadb::MariadbOptions;

use super::place::{Place, driver, number, value};

async fn refused(settings: MysqlSettings) -> SqlError {
    match driver(settings).connect(Access::ReadOnly).await {
        Err(error) => error,
        Ok(_) => panic!("connected"),
    }
}

/// A server where `app` logs in by password.
async fn guarded(options: MariadbOptions) -> Place {
    let mut place = Place::with(options).await;
    place.server.create_user("app", "right").await.unwrap();
    place.settings.user = "app".into();
    place.settings.password = Some(Arc::new(|| Ok("right".to_owned())));
    place
}

#[tokio::test]
async fn a_refused_login_is_auth_and_weighs_high() {
    let place = guarded(MariadbOptions::new()).await;
    place.driver().connect(Access::ReadOnly).await.unwrap();
    let mut wrong = place.settings.clone();
    wrong.password = Some(Arc::new(|| Ok("wrong".to_owned())));
    let error = refused(wrong.clone()).await;
    let failure = error.failure();
    assert_eq!(
        (number(&error), failure.category, failure.severity),
        (1045, Category::Auth, Severity::High)
    );
    assert_eq!((failure.blame, failure.sent), (Blame::Endpoint, Sent::No));
    wrong.user = "nobody".into();
    assert_eq!(number(&refused(wrong).await), 1045);
    place
        .server
        .sql("ALTER USER 'app'@'127.0.0.1' ACCOUNT LOCK")
        .await
        .unwrap();
    let error = refused(place.settings.clone()).await;
    assert_eq!(
        (number(&error), error.failure().category),
        (4151, Category::Auth)
    );
}

#[tokio::test]
async fn a_user_without_rights_to_the_database_is_refused_at_the_login() {
    let place = guarded(MariadbOptions::new()).await;
    place.server.sql("CREATE DATABASE other").await.unwrap();
    let mut elsewhere = place.settings.clone();
    elsewhere.database = "other".into();
    let error = refused(elsewhere).await;
    assert_eq!(
        (number(&error), error.failure().category),
        (1044, Category::Auth)
    );
    assert_eq!(error.failure().blame, Blame::Endpoint);
}

#[tokio::test]
async fn a_password_is_read_at_each_connect() {
    let place = guarded(MariadbOptions::new()).await;
    let password = Arc::new(Mutex::new("wrong".to_owned()));
    let mut rotating = place.settings.clone();
    let shared = password.clone();
    rotating.password = Some(Arc::new(move || Ok(shared.lock().unwrap().clone())));
    let driver = driver(rotating);
    assert!(driver.connect(Access::ReadOnly).await.is_err());
    *password.lock().unwrap() = "right".into();
    assert!(driver.connect(Access::ReadOnly).await.is_ok());
}

#[tokio::test]
async fn a_password_that_cannot_be_read_is_said_so() {
    let place = guarded(MariadbOptions::new()).await;
    let mut unreadable = place.settings.clone();
    unreadable.password = Some(Arc::new(|| Err(io::Error::other("the vault is shut"))));
    let error = refused(unreadable).await;
    assert!(error.to_string().contains("the vault is shut"), "{error}");
    assert_eq!(
        (error.sent(), error.failure().category),
        (Sent::No, Category::Endpoint)
    );
}

#[tokio::test]
async fn an_endpoint_without_the_database_is_the_wrong_endpoint() {
    let place = Place::new().await;
    let mut elsewhere = place.settings.clone();
    elsewhere.database = "nowhere".into();
    let error = refused(elsewhere).await;
    assert_eq!(
        (number(&error), error.failure().category, error.sent()),
        (1049, Category::Endpoint, Sent::No)
    );
}

#[tokio::test]
async fn too_many_connections_are_saturation() {
    let place = guarded(MariadbOptions::new().max_connections(10)).await;
    let mut held = Vec::new();
    let error = loop {
        match place.driver().connect(Access::ReadOnly).await {
            Ok(session) => held.push(session),
            Err(error) => break error,
        }
        assert!(held.len() < 20);
    };
    assert_eq!(
        (number(&error), error.failure().category, error.sent()),
        (1040, Category::Saturation, Sent::No)
    );
    drop(held);
    let limit = "ALTER USER 'app'@'127.0.0.1' WITH MAX_USER_CONNECTIONS 1";
    mainstay_testkit::until("a session is free", async || {
        place.server.sql(limit).await.is_ok()
    })
    .await;
    let first = place.driver().connect(Access::ReadOnly).await;
    let error = refused(place.settings.clone()).await;
    assert_eq!(
        (number(&error), error.failure().category),
        (1226, Category::Saturation)
    );
    drop(first);
}

#[tokio::test]
async fn a_closed_port_and_an_unknown_name_are_transient() {
    let place = Place::new().await;
    let mut closed = place.settings.clone();
    closed.port = 1;
    for host in ["127.0.0.1", "nowhere.invalid"] {
        closed.host = host.into();
        let error = refused(closed.clone()).await;
        assert_eq!(
            (error.failure().category, error.sent()),
            (Category::Transient, Sent::No),
            "{error}"
        );
    }
}

#[tokio::test]
async fn every_tls_mode_checks_what_it_promises() {
    let place = guarded(
        MariadbOptions::new()
            .tls()
            .setting("bind_address", "127.0.0.1,127.0.0.2"),
    );
    let place = place.await;
    let files = place.server.tls_files().unwrap();
    let other = Place::with(MariadbOptions::new().tls()).await;
    let right = Some(files.ca.clone());
    let wrong = Some(other.server.tls_files().unwrap().ca.clone());
    // 127.0.0.2 is not a name in the certificate.
    let table = [
        (TlsMode::Off, "127.0.0.1", None, Some(false)),
        (TlsMode::Prefer, "127.0.0.1", None, Some(true)),
        (TlsMode::Prefer, "127.0.0.1", wrong.clone(), Some(true)),
        (TlsMode::Require, "127.0.0.1", None, Some(true)),
        (TlsMode::Require, "127.0.0.1", wrong.clone(), None),
        (TlsMode::VerifyCa, "127.0.0.1", None, None),
        (TlsMode::VerifyCa, "127.0.0.1", wrong.clone(), None),
        (TlsMode::VerifyCa, "127.0.0.2", right.clone(), Some(true)),
        (TlsMode::VerifyFull, "127.0.0.1", right.clone(), Some(true)),
        (TlsMode::VerifyFull, "localhost", right.clone(), Some(true)),
        (TlsMode::VerifyFull, "127.0.0.2", right.clone(), None),
        (TlsMode::VerifyFull, "127.0.0.1", wrong, None),
    ];
    let anywhere = "CREATE USER app@'%' IDENTIFIED BY 'right'; GRANT ALL ON test.* TO app@'%'";
    place.server.sql(anywhere).await.unwrap();
    for (mode, host, ca, encrypted) in table {
        let mut settings = place.settings.clone();
        settings.host = host.into();
        settings.tls = TlsSettings {
            mode,
            ca: ca.clone(),
            ..TlsSettings::default()
        };
        let connected = driver(settings).connect(Access::ReadOnly).await;
        let seen = match connected {
            Ok(mut session) => {
                let asked = "SELECT VARIABLE_VALUE <> '' FROM information_schema.SESSION_STATUS \
                             WHERE VARIABLE_NAME = 'SSL_CIPHER'";
                Some(value(&mut session, asked).await == Value::I64(1))
            }
            Err(error) => {
                assert_eq!(error.sent(), Sent::No);
                None
            }
        };
        assert_eq!(seen, encrypted, "{mode:?} {host} {ca:?}");
    }
}

#[tokio::test]
async fn a_server_without_tls_is_refused_where_it_is_required() {
    let place = Place::new().await;
    let mut settings = place.settings.clone();
    settings.tls.mode = TlsMode::Require;
    let error = refused(settings.clone()).await;
    assert!(
        error.to_string().contains("offers no encryption"),
        "{error}"
    );
    settings.tls.mode = TlsMode::Prefer;
    assert!(driver(settings).connect(Access::ReadOnly).await.is_ok());
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_it_is_given() {
    let mut place = guarded(MariadbOptions::new().tls()).await;
    let must = "ALTER USER 'app'@'127.0.0.1' REQUIRE X509";
    place.server.sql(must).await.unwrap();
    let files = place.server.tls_files().unwrap().clone();
    place.settings.tls = TlsSettings {
        mode: TlsMode::VerifyFull,
        ca: Some(files.ca),
        ..TlsSettings::default()
    };
    let error = refused(place.settings.clone()).await;
    assert_eq!(number(&error), 1045);
    place.settings.tls.certificate = Some(files.client_certificate);
    let error = refused(place.settings.clone()).await;
    assert_eq!(error.failure().category, Category::Endpoint, "{error}");
    place.settings.tls.key = Some(files.client_key);
    place.driver().connect(Access::ReadOnly).await.unwrap();
}

#[tokio::test]
async fn session_settings_come_from_the_options_and_survive_a_reset() {
    let mut place = Place::new().await;
    place.settings.options = vec![("max_statement_time".into(), "7".into())];
    place.settings.application_name = "story".into();
    let mut session = place.writer().await;
    for _ in 0..2 {
        let limit = value(&mut session, "SELECT CAST(@@max_statement_time AS CHAR)").await;
        assert_eq!(limit, Value::Text("7.000000".into()));
        super::place::rows(&mut session, "SET @@max_statement_time = 1").await;
        session.reset().await.unwrap();
    }
    place.settings.options = vec![("no_such_variable".into(), "7".into())];
    let error = refused(place.settings.clone()).await;
    assert_eq!((number(&error), error.sent()), (1193, Sent::No));
}
