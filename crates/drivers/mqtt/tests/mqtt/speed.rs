//! How fast messages go and come; printed, as it is the machine's.

use mainstay_message::Broker;
use mainstay_testkit::mosquitto::MosquittoOptions;
use tokio::time::Instant;

use super::world::{World, durable, message, publish, take};

#[tokio::test]
async fn thousands_of_messages_cross_in_a_moment() {
    const COUNT: usize = 5000;
    let world = World::new(MosquittoOptions::new().max_inflight(256)).await;
    let client = world.up("speed").await;
    let mut inbox = durable(&client, "a/b").await;
    let body = bytes::Bytes::from(vec![b'x'; 1024]);
    let begun = Instant::now();
    let cpu = processor();
    let all = (0..COUNT).map(|n| {
        let mut sent = message("a/b", body.clone());
        sent.content_type = Some("application/json".into());
        sent.headers.push("message_id", format!("{n:036}"));
        for name in [
            "campaign_id",
            "request_id",
            "source",
            "destination",
            "created_at",
        ] {
            sent.headers
                .push(name, "2463dcfd-b322-4ed9-b09b-6c8f1a89c194");
        }
        publish(&client, sent)
    });
    tokio::join!(futures_util::future::join_all(all), async {
        for _ in 0..COUNT {
            assert_eq!(take(&mut inbox).await.body.len(), 1024);
        }
    });
    let (wall, cpu) = (begun.elapsed(), processor() - cpu);
    println!(
        "{COUNT} messages with quality of service 2, out and in: {:.0} a second, {:.1} us of our processor each",
        COUNT as f64 / wall.as_secs_f64(),
        cpu * 1e6 / COUNT as f64,
    );
    client.close().await;
}

/// Seconds that this process has had.
fn processor() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks: f64 = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .filter_map(|field| field.parse::<f64>().ok())
        .sum();
    ticks / 100.0
}
