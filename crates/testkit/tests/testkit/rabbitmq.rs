//! Private RabbitMQ brokers: started, killed, stopped.

use std::time::Duration;

use mainstay_testkit::rabbitmq::{
    INTERSECT_EXCHANGE, QueueState, RabbitmqOptions, RabbitmqServer, RabbitmqSession,
};
use tokio::time::{Instant, timeout};

/// Delivery mode 2 and nothing else.
const PERSISTENT: [u8; 3] = [0x10, 0x00, 2];

async fn start() -> RabbitmqServer {
    RabbitmqServer::start(RabbitmqOptions::new()).await.unwrap()
}

async fn waiting(server: &RabbitmqServer, queue: &str) -> Option<u32> {
    let state: Option<QueueState> = server.queue(queue).await.unwrap();
    state.map(|state| state.messages)
}

#[tokio::test]
async fn a_killed_broker_keeps_its_durable_queues_and_persistent_messages() {
    let server = start().await;
    server.declare_exchange().await.unwrap();
    let mut session = server.session().await.unwrap();
    session
        .bind("kept", INTERSECT_EXCHANGE, "a.#")
        .await
        .unwrap();
    session
        .publish(INTERSECT_EXCHANGE, "a.b", &PERSISTENT, b"one")
        .await
        .unwrap();
    assert_eq!(waiting(&server, "kept").await, Some(1));
    assert_eq!(waiting(&server, "none").await, None);
    let port = server.port();
    server.kill9().await.unwrap();
    assert!(server.pid().is_none());
    assert!(server.session().await.is_err());
    let begun = Instant::now();
    server.start_again().await.unwrap();
    println!("a restart after a kill took {:?}", begun.elapsed());
    assert!(server.start_again().await.is_err(), "it runs already");
    assert_eq!(server.port(), port);
    let mut session = server.session().await.unwrap();
    let (header, body) = session.take("kept").await.unwrap().unwrap();
    assert_eq!(
        (header.as_slice(), body.as_slice()),
        (&PERSISTENT[..], &b"one"[..])
    );
    assert_eq!(session.take("kept").await.unwrap(), None);
}

#[tokio::test]
async fn a_second_broker_is_apart_from_the_first() {
    let first = start().await;
    let begun = Instant::now();
    let second = start().await;
    println!("a start from the template took {:?}", begun.elapsed());
    assert_ne!(first.port(), second.port());
    first.declare_exchange().await.unwrap();
    let mut session = second.session().await.unwrap();
    let bound = session.bind("queue", INTERSECT_EXCHANGE, "a").await;
    let refused = bound.unwrap_err().to_string();
    assert!(refused.contains("404"), "{refused}");
}

#[tokio::test]
async fn a_stopped_process_answers_nothing_until_it_goes_on() {
    let server = start().await;
    let mut session = server.session().await.unwrap();
    server.sigstop().unwrap();
    let asked = timeout(Duration::from_millis(300), session.queue("none")).await;
    assert!(asked.is_err(), "a stopped broker answered");
    server.sigcont().unwrap();
    let mut session = server.session().await.unwrap();
    assert_eq!(session.queue("none").await.unwrap(), None);
}

#[tokio::test]
async fn a_user_may_do_what_the_options_say_and_a_wrong_password_is_refused() {
    let options = RabbitmqOptions::new().user("reader", "secret", ["^$", "^$", ".*"]);
    let server = RabbitmqServer::start(options).await.unwrap();
    let mut reader = RabbitmqSession::connect(server.port(), "reader", "secret")
        .await
        .unwrap();
    let refused = reader.declare_exchange("x").await.unwrap_err().to_string();
    assert!(refused.contains("403"), "{refused}");
    let wrong = RabbitmqSession::connect(server.port(), "reader", "wrong").await;
    // The broker hangs up on a client that does not say that it understands a refusal.
    assert!(wrong.is_err());
}

#[tokio::test]
async fn a_dropped_broker_is_gone_with_its_folder() {
    let server = start().await;
    let (folder, port) = (server.folder().to_owned(), server.port());
    drop(server);
    assert!(!folder.exists());
    assert!(
        RabbitmqSession::connect(port, "guest", "guest")
            .await
            .is_err()
    );
}
