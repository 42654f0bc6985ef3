//! Sessions over the ends of programs, and two programs that want the same one.

use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_message::{Broker, Link};
use mainstay_testkit::mosquitto::MosquittoOptions;

use super::world::{
    World, assert_silent, await_link, await_up, durable, message, next, open, publish, take,
};

#[tokio::test]
async fn what_a_killed_program_had_not_acknowledged_comes_to_the_next() {
    let world = World::new(MosquittoOptions::new()).await;
    let sender = world.up("sender").await;
    let program = Tasks::new();
    let client = open(world.settings("receiver"), &program);
    let mut inbox = durable(&client, "a/b").await;
    for n in 0..10 {
        publish(&sender, message("a/b", n.to_string())).await;
    }
    let held = [next(&mut inbox).await, next(&mut inbox).await];
    assert_eq!(take(&mut inbox).await.body, "2");
    // What was acknowledged is with the broker before the end.
    publish(&client, message("nobody", "")).await;
    // No goodbye: the task is dropped where it stands, with its socket.
    program.shutdown(Duration::from_secs(5)).await;
    drop((inbox, held, client));
    let client = world.up("receiver").await;
    let mut inbox = durable(&client, "a/b").await;
    for n in [0, 1, 3, 4, 5, 6, 7, 8, 9] {
        let again = take(&mut inbox).await;
        assert_eq!(again.body, n.to_string());
        assert!(again.redelivered);
    }
    assert_silent(&mut inbox).await;
    client.close().await;
    sender.close().await;
}

#[tokio::test]
async fn messages_that_wait_in_the_session_come_before_their_subscription_and_are_kept_for_it() {
    let world = World::new(MosquittoOptions::new()).await;
    let sender = world.up("sender").await;
    let client = world.up("receiver").await;
    let inbox = durable(&client, "a/b").await;
    client.close().await;
    drop(inbox);
    for n in 0..30 {
        publish(&sender, message("a/b", n.to_string())).await;
    }
    let client = world.up("receiver").await;
    // By this answer what waited has come.
    publish(&client, message("nobody", "")).await;
    let mut inbox = durable(&client, "a/b").await;
    for n in 0..30 {
        assert_eq!(take(&mut inbox).await.body, n.to_string());
    }
    client.close().await;
    sender.close().await;
}

#[tokio::test]
async fn a_program_that_drops_its_deliveries_before_it_closes_keeps_its_queue() {
    let world = World::new(MosquittoOptions::new()).await;
    let sender = world.up("sender").await;
    let client = world.up("receiver").await;
    drop(durable(&client, "a/b").await);
    publish(&client, message("nobody", "")).await;
    client.close().await;
    publish(&sender, message("a/b", "kept")).await;
    let client = world.up("receiver").await;
    let mut inbox = durable(&client, "a/b").await;
    assert_eq!(take(&mut inbox).await.body, "kept");
    client.close().await;
    sender.close().await;
}

#[tokio::test]
async fn two_clients_with_one_id_say_so_and_do_not_fight_at_full_speed() {
    let world = World::new(MosquittoOptions::new()).await;
    let mut settings = world.settings("twin");
    settings.reconnect_max = Duration::from_secs(1);
    let one = world.open_with(settings.clone());
    await_up(&one).await;
    let other = world.open_with(settings);
    // mosquitto 2.0 says nothing: it closes the connection.
    let taken = await_link(&one, |link| matches!(link, Link::Down { .. })).await;
    assert!(format!("{taken:?}").contains("same client id"), "{taken:?}");
    await_up(&other).await;
    tokio::time::sleep(Duration::from_millis(4500)).await;
    for client in [&one, &other] {
        let mut link = client.link();
        let up = link.wait_for(Link::is_up).await.unwrap();
        let Link::Up { number, .. } = *up else {
            panic!("{up:?}")
        };
        drop(up);
        assert!(
            (1..=10).contains(&number),
            "{number} connections in five seconds"
        );
    }
    one.close().await;
    other.close().await;
}
