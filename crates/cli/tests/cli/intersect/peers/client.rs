//! A caller that counts what it is told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_message::envelope::{JSON, fresh_id, name, request_headers};
use mainstay_message::{
    Delivery, Identity, Persistence, Publication, Queue, Subscription, SubscriptionState,
    TopicFilter,
};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use super::{Line, VERSION, worker, world};

/// A reply that came.
#[derive(Debug, Clone)]
pub(in super::super) struct Heard {
    pub(in super::super) message_id: String,
    pub(in super::super) has_error: bool,
    pub(in super::super) text: String,
}

/// All that came.
#[derive(Debug, Default)]
pub(in super::super) struct Ledger {
    /// By request id, in their order.
    pub(in super::super) replies: HashMap<String, Vec<Heard>>,
    /// Events with a job's end, by its key: `done` or `job_failed`.
    pub(in super::super) ends: HashMap<String, Vec<&'static str>>,
}

impl Ledger {
    /// Replies of all requests.
    pub(in super::super) fn all(&self) -> impl Iterator<Item = &Heard> {
        self.replies.values().flatten()
    }

    /// Replies beyond the first of their request: the same message once more, and others.
    pub(in super::super) fn twice(&self) -> (usize, usize) {
        let (mut same, mut others) = (0, 0);
        for replies in self.replies.values() {
            let first = &replies[0].message_id;
            for reply in &replies[1..] {
                match reply.message_id == *first {
                    true => same += 1,
                    false => others += 1,
                }
            }
        }
        (same, others)
    }

    fn take_reply(&mut self, delivery: &Delivery) {
        let header = |name| delivery.headers.get(name).unwrap_or_default();
        let heard = Heard {
            message_id: header(name::MESSAGE_ID).to_owned(),
            has_error: header(name::HAS_ERROR) == "true",
            text: String::from_utf8_lossy(&delivery.body).into_owned(),
        };
        let id = header(name::REQUEST_ID).to_owned();
        self.replies.entry(id).or_default().push(heard);
    }

    fn take_event(&mut self, delivery: &Delivery) {
        let body: Value = serde_json::from_slice(&delivery.body).unwrap_or_default();
        let failed = delivery.headers.get(name::EVENT_NAME) == Some("job_failed");
        let end = match failed {
            true => "job_failed",
            false if body["status"] == json!("done") => "done",
            false => return,
        };
        let key = body["job_id"].as_str().unwrap_or_default().to_owned();
        self.ends.entry(key).or_default().push(end);
    }
}

/// A caller of the fronted service.
pub(in super::super) struct Client {
    pub(in super::super) line: Line,
    pub(in super::super) identity: Identity,
    pub(in super::super) ledger: Arc<Mutex<Ledger>>,
    news: Arc<Notify>,
}

impl Client {
    /// Starts it; it listens when this returns. It acknowledges what comes, and what comes while it is away
    /// waits for it as far as its broker keeps it.
    pub(in super::super) async fn start(broker: &world::Broker) -> Self {
        let id = fresh_id();
        let identity = Identity::parse(&format!("org.fac.sys.-.c{id}")).unwrap();
        let client = Client {
            line: Line::open(broker, Duration::from_secs(3600)),
            identity,
            ledger: Arc::default(),
            news: Arc::default(),
        };
        let replies = (&client.identity.responses()).into();
        client
            .hear(replies, &format!("{id}-replies"), Ledger::take_reply)
            .await;
        let events = Identity::parse(world::FRONT).unwrap().events();
        client
            .hear(events, &format!("{id}-events"), Ledger::take_event)
            .await;
        client
    }

    async fn hear(&self, filter: TopicFilter, queue: &str, take: fn(&mut Ledger, &Delivery)) {
        let mut heard = self.line.broker.subscribe(Subscription {
            filter,
            queue: Queue::Durable(queue.into()),
            backlog_max: 1000,
        });
        let listens = heard
            .state
            .wait_for(|state| *state == SubscriptionState::Active);
        tokio::time::timeout(world::WITHIN, listens)
            .await
            .expect("a client that does not listen")
            .unwrap();
        let (ledger, news) = (Arc::clone(&self.ledger), Arc::clone(&self.news));
        self.line.tasks.spawn(async move {
            while let Some(mut delivery) = heard.deliveries.next().await {
                take(&mut ledger.lock().unwrap(), &delivery);
                let acknowledgement = delivery.acknowledgement.take();
                acknowledgement.into_iter().for_each(|it| it.acknowledge());
                news.notify_one();
            }
        });
    }

    /// A request as the SDK writes it.
    pub(in super::super) fn request(&self, operation: &str, body: &Value) -> Publication {
        let front = Identity::parse(world::FRONT).unwrap();
        let (id, operation) = (fresh_id(), format!("Compute.{operation}"));
        let mut message = Publication::new(front.requests(), body.to_string());
        message.content_type = Some(JSON.into());
        message.headers = request_headers(&self.identity, front.as_str(), &operation, &id, VERSION);
        message.persistence = Persistence::Transient;
        message
    }

    /// Sends a request as clients do: the broker need not keep it. Gives its request id.
    pub(in super::super) async fn send(&self, operation: &str, body: &Value) -> String {
        self.publish(self.request(operation, body)).await
    }

    /// Sends a request as services do: the broker keeps it.
    pub(in super::super) async fn send_kept(&self, operation: &str, body: &Value) -> String {
        let mut message = self.request(operation, body);
        message.persistence = Persistence::Persistent;
        self.publish(message).await
    }

    /// Publishes a message, again after a lost connection. Gives its request id.
    pub(in super::super) async fn publish(&self, message: Publication) -> String {
        let id = message.headers.get(name::REQUEST_ID).unwrap_or_default();
        let id = id.to_owned();
        worker::publish(&self.line.broker, message).await;
        id
    }

    /// Waits until what came is so. Gives what `fits` gave.
    pub(in super::super) async fn until<T>(
        &self,
        what: &str,
        within: Duration,
        fits: impl Fn(&Ledger) -> Option<T>,
    ) -> T {
        let end = Instant::now() + within;
        loop {
            let news = self.news.notified();
            if let Some(found) = fits(&self.ledger.lock().unwrap()) {
                return found;
            }
            let in_time = timeout_at(end, news).await.is_ok();
            assert!(in_time, "not within {within:?}: {what}");
        }
    }

    /// Waits for the first reply to a request.
    pub(in super::super) async fn reply(&self, id: &str) -> Heard {
        let first = |ledger: &Ledger| ledger.replies.get(id).map(|all| all[0].clone());
        self.until("a reply", world::WITHIN, first).await
    }
}
