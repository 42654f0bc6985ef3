//! A worker and a client that speak as the SDK does, without its weight.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use mainstay_engine::tasks::Tasks;
use mainstay_message::envelope::{JSON, RequestHead, fresh_id, now, reply_headers};
use mainstay_message::identity::queue_name;
use mainstay_message::{
    Broker, Headers, Identity, Persistence, Publication, Queue, Subscription, Topic,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::BODY;
use crate::brokers::Place;

/// The worker's own name.
pub(crate) const DIRECT: &str = "org.fac.sys.-.bench-worker";
/// The fronted name.
pub(crate) const FRONTED: &str = "org.fac.sys.-.bench";
const CLIENT: &str = "org.fac.sys.-.tmp-bench";
/// Requests under way at once where the rate is measured.
const AT_ONCE: usize = 64;

/// A worker that answers at once; ends with its drop.
pub(crate) struct Worker(Tasks);

impl Drop for Worker {
    fn drop(&mut self) {
        self.0.stop();
    }
}

pub(crate) async fn worker(place: &Place) -> Worker {
    let tasks = Tasks::new();
    let broker = place.connect("bench-worker", &tasks);
    let topic = Identity::parse(DIRECT).unwrap().requests();
    let mut requests = broker.subscribe(Subscription {
        filter: (&topic).into(),
        queue: Queue::Durable(queue_name(topic.as_str()).into()),
        backlog_max: 1024,
    });
    let spawned = tasks.clone();
    tasks.spawn(async move {
        while let Some(mut delivery) = requests.deliveries.next().await {
            let Ok(head) = RequestHead::read(&delivery.headers) else {
                continue;
            };
            let topic = format!("{}/response", head.source.replace('.', "/"));
            let mut reply = Publication::new(Topic::parse(&topic).unwrap(), delivery.body.clone());
            reply.content_type = Some(JSON.into());
            reply.headers = reply_headers(&head, "0.9.6", false);
            let acknowledgement = delivery.acknowledgement.take();
            let broker = Arc::clone(&broker);
            spawned.spawn(async move {
                let _ = broker.publish(reply).await;
                acknowledgement.into_iter().for_each(|it| it.acknowledge());
            });
        }
    });
    Worker(tasks)
}

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<()>>>>;

/// A client.
pub(crate) struct Client {
    broker: Arc<dyn Broker>,
    waiting: Waiting,
    echo: tokio::sync::Mutex<mainstay_message::Deliveries>,
    tasks: Tasks,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl Client {
    pub(crate) async fn new(place: &Place) -> Self {
        let tasks = Tasks::new();
        let broker = place.connect("bench-client", &tasks);
        let transient = |topic: &Topic| Subscription {
            filter: topic.into(),
            queue: Queue::Transient,
            backlog_max: 1024,
        };
        let topic = Topic::parse(&format!("{}/response", CLIENT.replace('.', "/"))).unwrap();
        let mut replies = broker.subscribe(transient(&topic));
        let waiting = Waiting::default();
        let answered = Arc::clone(&waiting);
        tasks.spawn(async move {
            while let Some(delivery) = replies.deliveries.next().await {
                let id = delivery.headers.get("request_id").unwrap_or_default();
                if let Some(to) = answered.lock().remove(id) {
                    let _ = to.send(());
                }
            }
        });
        let echo = broker
            .subscribe(transient(&Topic::parse("bench/echo").unwrap()))
            .deliveries;
        Client {
            broker,
            waiting,
            echo: tokio::sync::Mutex::new(echo),
            tasks,
        }
    }

    fn request(
        &self,
        to: &str,
        operation: &str,
        body: Bytes,
    ) -> (Publication, oneshot::Receiver<()>) {
        let id = fresh_id();
        let topic = Identity::parse(to).unwrap().requests();
        let mut message = Publication::new(topic, body);
        message.content_type = Some(JSON.into());
        message.persistence = Persistence::Transient;
        message.headers = headers(to, operation, &id);
        let (told, tell) = oneshot::channel();
        self.waiting.lock().insert(id.to_string(), told);
        (message, tell)
    }

    async fn call(&self, to: &str, operation: &str, body: Bytes) {
        let (message, answered) = self.request(to, operation, body);
        self.broker.publish(message).await.unwrap();
        tokio::time::timeout(Duration::from_secs(60), answered)
            .await
            .unwrap()
            .unwrap();
    }

    /// Asks until the proxy answers.
    pub(crate) async fn until_answered(&self, limit: Duration) {
        let end = Instant::now() + limit;
        for to in [DIRECT, FRONTED] {
            loop {
                let (message, answered) = self.request(to, "Work.run", body());
                let sent = self.broker.publish(message).await.is_ok();
                let wait = tokio::time::timeout(Duration::from_millis(500), answered);
                if sent && matches!(wait.await, Ok(Ok(()))) {
                    break;
                }
                assert!(Instant::now() < end, "{to} does not answer");
            }
        }
    }

    /// The median of calls one after the other, in milliseconds.
    pub(crate) async fn median(&self, to: &str, calls: usize) -> f64 {
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            self.call(to, "Work.run", body()).await;
            times.push(began.elapsed());
        }
        middle(times)
    }

    /// What one more hop over the broker and back costs: two messages, the second sent when the first came.
    pub(crate) async fn hop(&self, calls: usize) -> f64 {
        let mut echo = self.echo.lock().await;
        let mut times = Vec::with_capacity(calls);
        for _ in 0..calls {
            let began = Instant::now();
            for _ in 0..2 {
                let mut message = Publication::new(Topic::parse("bench/echo").unwrap(), body());
                message.headers = headers(DIRECT, "Work.run", "0");
                self.broker.publish(message).await.unwrap();
                echo.next().await.unwrap();
            }
            times.push(began.elapsed());
        }
        middle(times)
    }

    /// Jobs that are accepted and never end.
    pub(crate) async fn open_jobs(&self, count: usize) {
        for number in 0..count {
            let body = format!("{{\"id\":\"job-{number}\"}}");
            self.call(FRONTED, "Work.job", body.into()).await;
        }
    }

    /// Calls a second, so many at once.
    pub(crate) async fn rate(&self, to: &str, calls: usize) -> f64 {
        let began = Instant::now();
        let each = (0..AT_ONCE).map(async |_| {
            for _ in 0..calls.div_ceil(AT_ONCE) {
                self.call(to, "Work.run", body()).await;
            }
        });
        futures_util::future::join_all(each).await;
        (calls.div_ceil(AT_ONCE) * AT_ONCE) as f64 / began.elapsed().as_secs_f64()
    }
}

fn middle(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e3
}

fn body() -> Bytes {
    let mut text = String::from("{\"text\":\"");
    text.push_str(&"x".repeat(BODY - text.len() - 2));
    text.push_str("\"}");
    text.into()
}

fn headers(to: &str, operation: &str, request_id: &str) -> Headers {
    [
        ("message_id", fresh_id().as_str()),
        ("campaign_id", "5a0f7c1e-93b1-4c36-9f1d-0f5d8f4f6f11"),
        ("request_id", request_id),
        ("source", CLIENT),
        ("destination", to),
        ("created_at", now().as_str()),
        ("sdk_version", "0.9.6"),
        ("operation_id", operation),
        ("data_handler", "MESSAGE"),
        ("has_error", "false"),
    ]
    .into_iter()
    .collect()
}
