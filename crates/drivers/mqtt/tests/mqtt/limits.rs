//! Brokers that can do less.

use mainstay_engine::Sent;
use mainstay_message::{Broker, PublishErrorKind};
use mainstay_testkit::mosquitto::MosquittoOptions;
use tokio::time::timeout;

use super::world::{PATIENCE, World, await_up, durable, message, publish, take};

#[tokio::test]
async fn a_broker_with_a_receive_maximum_of_one_gets_one_at_a_time() {
    let world = World::new(MosquittoOptions::new().max_inflight(1)).await;
    let client = world.up("narrow").await;
    let mut inbox = durable(&client, "a/b").await;
    let all = (0..200).map(|n| publish(&client, message("a/b", n.to_string())));
    tokio::join!(futures_util::future::join_all(all), async {
        for n in 0..200 {
            assert_eq!(take(&mut inbox).await.body, n.to_string());
        }
    });
    assert_eq!(
        await_up(&client).await,
        1,
        "the connection has stood all the time"
    );
    client.close().await;
}

#[tokio::test]
async fn our_own_receive_maximum_of_one_is_kept_by_the_broker() {
    let world = World::new(MosquittoOptions::new()).await;
    let mut settings = world.settings("one");
    settings.receive_max = 1;
    let client = world.open_with(settings);
    let mut inbox = durable(&client, "a/b").await;
    let all = (0..50).map(|n| publish(&client, message("a/b", n.to_string())));
    tokio::join!(futures_util::future::join_all(all), async {
        for n in 0..50 {
            assert_eq!(take(&mut inbox).await.body, n.to_string());
        }
    });
    assert_eq!(await_up(&client).await, 1);
    client.close().await;
}

#[tokio::test]
async fn a_broker_with_less_service_takes_and_gives_what_it_can() {
    for qos in [0, 1] {
        let world = World::new(MosquittoOptions::new().max_qos(qos)).await;
        let client = world.up("lesser").await;
        let mut inbox = durable(&client, "a/b").await;
        for n in 0..20 {
            publish(&client, message("a/b", n.to_string())).await;
            let got = super::world::next(&mut inbox).await;
            assert_eq!(got.body, n.to_string());
            assert_eq!(got.acknowledgement.is_some(), qos > 0);
            if let Some(acknowledgement) = got.acknowledgement {
                acknowledgement.acknowledge();
            }
        }
        assert_eq!(await_up(&client).await, 1);
        client.close().await;
    }
}

#[tokio::test]
async fn a_message_larger_than_the_broker_takes_is_an_error_and_no_disconnect() {
    let world = World::new(MosquittoOptions::new().max_packet_size(10_000)).await;
    let client = world.up("large").await;
    let mut inbox = durable(&client, "a/b").await;
    let published = client.publish(message("a/b", vec![0; 10_000]));
    let error = timeout(PATIENCE, published).await.unwrap().unwrap_err();
    assert_eq!(error.sent, Sent::No);
    let large = PublishErrorKind::TooLarge {
        length: 10_011,
        length_max: 10_000,
    };
    assert_eq!(error.kind, large);
    publish(&client, message("a/b", vec![0; 9_989])).await;
    assert_eq!(take(&mut inbox).await.body.len(), 9_989);
    assert_eq!(await_up(&client).await, 1);
    client.close().await;
}
