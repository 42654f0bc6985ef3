//! Private MariaDB servers: started, killed, stopped, replicated, promoted.

use std::time::Duration;

use mainstay_testkit::mariadb::{MariadbCluster, MariadbOptions, MariadbServer, MariadbSession};
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn a_server_starts_with_its_settings_and_answers() {
    let options = MariadbOptions::new()
        .max_connections(17)
        .setting("lock_wait_timeout", 3);
    let server = MariadbServer::start(options).await.unwrap();
    let asked =
        "SELECT CONCAT(@@max_connections, ' ', @@lock_wait_timeout, ' ', @@port, ' ', database())";
    assert_eq!(
        server.value(asked).await.unwrap(),
        format!("17 3 {} test", server.port())
    );
}

#[tokio::test]
async fn a_second_server_is_ready_soon_and_apart_from_the_first() {
    let first = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    let begun = Instant::now();
    let second = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    println!("a start from the template took {:?}", begun.elapsed());
    assert_ne!(first.port(), second.port());
    first.sql("CREATE TABLE only_here (id int)").await.unwrap();
    assert!(second.sql("SELECT * FROM only_here").await.is_err());
    // A start removes temporary tables, which another server may be using.
    for server in [&first, &second] {
        let temporary = server.value("SELECT @@tmpdir").await.unwrap();
        let folder = server.folder().display().to_string();
        assert!(temporary.starts_with(&folder), "{temporary} {folder}");
    }
}

#[tokio::test]
async fn a_killed_server_is_gone_at_once_and_keeps_what_was_committed() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
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
    let kept = server.value("SELECT GROUP_CONCAT(id) FROM kept").await;
    assert_eq!(kept.unwrap(), "7");
}

#[tokio::test]
async fn a_stop_ends_clients_and_the_server_can_start_again() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    let session = server.session().await.unwrap();
    server.stop().await.unwrap();
    assert!(session.sql("SELECT 1").await.is_err());
    assert!(
        server.stop().await.is_err(),
        "there is nothing left to stop"
    );
    server.start_again().await.unwrap();
    assert!(server.start_again().await.is_err(), "it runs already");
    assert_eq!(server.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_stopped_process_answers_nothing_until_it_goes_on() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    let session = server.session().await.unwrap();
    server.sigstop().unwrap();
    let asked = timeout(Duration::from_millis(300), session.sql("SELECT 1"));
    assert!(asked.await.is_err());
    server.sigcont().unwrap();
    assert_eq!(server.value("SELECT 1").await.unwrap(), "1");
}

#[tokio::test]
async fn a_dropped_server_leaves_no_process_and_no_folder() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    let (folder, pid) = (server.folder().to_owned(), server.pid().unwrap());
    assert!(folder.join("data").is_dir());
    drop(server);
    assert!(!folder.exists());
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
}

#[tokio::test]
async fn a_user_logs_in_by_password_only() {
    let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
    server.create_user("app", "it's").await.unwrap();
    let login = |password| MariadbSession::connect_as(server.port(), "test", "app", password);
    assert!(login(Some("it's")).await.is_ok());
    assert!(login(Some("wrong")).await.is_err());
    assert!(login(None).await.is_err());
}

async fn marks(server: &MariadbServer) -> String {
    let all = "SELECT GROUP_CONCAT(id ORDER BY id) FROM marks";
    server.value(all).await.unwrap()
}

#[tokio::test]
async fn a_replica_receives_is_read_only_and_takes_over() {
    let begun = Instant::now();
    let cluster = MariadbCluster::start(2, MariadbOptions::new())
        .await
        .unwrap();
    println!("three nodes took {:?}", begun.elapsed());
    let made = "CREATE TABLE marks (id int PRIMARY KEY); INSERT INTO marks VALUES (1)";
    cluster.primary().sql(made).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    for number in cluster.replica_numbers() {
        assert_eq!(marks(cluster.node(number)).await, "1");
        let read_only = cluster.node(number).value("SELECT @@read_only").await;
        assert_eq!(read_only.unwrap(), "1");
    }

    cluster.node(0).kill9().await.unwrap();
    let next = cluster.most_advanced_replica().await.unwrap();
    cluster.promote(next).await.unwrap();
    assert_eq!(cluster.primary_number(), next);
    cluster.wait_attached(1).await.unwrap();
    let write = "INSERT INTO marks VALUES (2)";
    cluster.primary().sql(write).await.unwrap();

    // The old one comes back and believes that it is the primary, until it is made a replica.
    cluster.node(0).start_again().await.unwrap();
    assert_eq!(marks(cluster.node(0)).await, "1");
    let claims = cluster.node(0).value("SELECT @@read_only").await;
    assert_eq!(claims.unwrap(), "0");
    cluster.attach(0).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    for node in cluster.nodes() {
        assert_eq!(marks(node).await, "1,2");
    }
}

#[tokio::test]
async fn a_commit_waits_until_a_replica_has_it() {
    let cluster = MariadbCluster::start(1, MariadbOptions::new())
        .await
        .unwrap();
    let primary = cluster.primary();
    primary.sql("CREATE TABLE marks (id int)").await.unwrap();
    cluster.node(1).sigstop().unwrap();
    let session = primary.session().await.unwrap();
    let commit = session.sql("INSERT INTO marks VALUES (1)");
    let mut commit = std::pin::pin!(commit);
    let waits = timeout(Duration::from_millis(300), &mut commit).await;
    assert!(waits.is_err(), "nobody else has it");
    cluster.node(1).sigcont().unwrap();
    commit.await.unwrap();
    assert_eq!(marks(primary).await, "1");
}

#[tokio::test]
async fn a_replica_that_is_held_back_shows_the_past() {
    let cluster = MariadbCluster::start(1, MariadbOptions::new())
        .await
        .unwrap();
    let made = "CREATE TABLE marks (id int); INSERT INTO marks VALUES (1)";
    cluster.primary().sql(made).await.unwrap();
    cluster.wait_caught_up().await.unwrap();
    let delay = Duration::from_secs(2);
    cluster.hold_back(1, delay).await.unwrap();
    let begun = Instant::now();
    let write = "INSERT INTO marks VALUES (2)";
    cluster.primary().sql(write).await.unwrap();
    let seen = marks(cluster.node(1)).await;
    assert!(seen == "1" || begun.elapsed() > delay / 2, "{seen}");
    cluster.wait_caught_up().await.unwrap();
    assert_eq!(marks(cluster.node(1)).await, "1,2");
}
