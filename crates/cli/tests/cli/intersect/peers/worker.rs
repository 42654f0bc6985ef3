//! A service that is killed in an instant.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_message::envelope::{JSON, RequestHead, TEXT, event_headers, reply_headers};
use mainstay_message::identity::queue_name;
use mainstay_message::{
    Broker, Delivery, Identity, Publication, PublishErrorKind, Queue, Subscription,
    SubscriptionState, Topic,
};
use serde_json::{Value, json};

use super::{Line, VERSION, world};

/// What it does with jobs. Every other operation answers with its argument and the worker's name, `sleep` after as many
/// seconds.
#[derive(Debug, Clone, Copy)]
pub(in super::super) struct Work {
    /// Results of a job.
    pub(in super::super) results: u32,
    /// Before each of them.
    pub(in super::super) step: Duration,
}

impl Default for Work {
    fn default() -> Self {
        Work {
            results: 1,
            step: Duration::from_millis(1),
        }
    }
}

/// A worker. Dropping it kills it.
pub(in super::super) struct Worker {
    _line: Line,
}

impl Worker {
    /// Starts it; it listens when this returns.
    pub(in super::super) async fn start(broker: &world::Broker, name: &str, work: Work) -> Self {
        let line = Line::open(broker, Duration::ZERO);
        let identity = Identity::parse(name).unwrap();
        let topic = identity.requests();
        let mut requests = line.broker.subscribe(Subscription {
            filter: (&topic).into(),
            queue: Queue::Durable(queue_name(topic.as_str()).into()),
            backlog_max: 1000,
        });
        let listens = requests
            .state
            .wait_for(|state| *state == SubscriptionState::Active);
        tokio::time::timeout(world::WITHIN, listens)
            .await
            .expect("a worker that does not listen")
            .unwrap();
        let desk = Desk {
            broker: Arc::clone(&line.broker),
            identity,
            tasks: line.tasks.clone(),
            work,
        };
        let desk = Arc::new(desk);
        line.tasks.spawn(async move {
            while let Some(delivery) = requests.deliveries.next().await {
                let it = Arc::clone(&desk);
                desk.tasks.spawn(async move { it.take(delivery).await });
            }
        });
        Worker { _line: line }
    }
}

/// Where its requests are worked on.
struct Desk {
    broker: Arc<dyn Broker>,
    identity: Identity,
    tasks: Tasks,
    work: Work,
}

impl Desk {
    async fn take(&self, mut delivery: Delivery) {
        let acknowledgement = delivery.acknowledgement.take();
        if let Ok(head) = RequestHead::read(&delivery.headers) {
            let argument = serde_json::from_slice(&delivery.body).unwrap_or(Value::Null);
            match head.operation_id.as_str() {
                "intersect_sdk.system_capability" => self.reply(&head, &json!({})).await,
                "Compute.run_compute_job" => self.run(&head, &argument).await,
                _ => {
                    if head.operation_id == "Compute.sleep" {
                        let seconds = argument.as_f64().unwrap_or_default();
                        tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
                    }
                    let body = json!({"worker": self.identity.as_str(), "argument": argument});
                    self.reply(&head, &body).await;
                }
            }
        }
        acknowledgement.into_iter().for_each(|it| it.acknowledge());
    }

    /// Accepts a job and emits its results; of one that `stalls` none comes.
    async fn run(&self, head: &RequestHead, argument: &Value) {
        let id = argument["job_id"].as_str().unwrap_or_default().to_owned();
        self.reply(head, &json!({"accepted": true, "job_id": id}))
            .await;
        if argument["stalls"] == json!(true) {
            return;
        }
        let (broker, identity, work) = (Arc::clone(&self.broker), self.identity.clone(), self.work);
        self.tasks.spawn(async move {
            for index in 1..=work.results {
                tokio::time::sleep(work.step).await;
                let status = match index == work.results {
                    true => "done",
                    false => "running",
                };
                let worker = identity.as_str();
                let body =
                    json!({"job_id": id, "index": index, "status": status, "worker": worker});
                let topic = identity.event("Compute", "job_result").unwrap();
                let mut message = Publication::new(topic, body.to_string());
                message.content_type = Some(JSON.into());
                message.headers = event_headers(&identity, "Compute", "job_result", VERSION);
                publish(&broker, message).await;
            }
        });
    }

    async fn reply(&self, head: &RequestHead, body: &Value) {
        publish(&self.broker, answer(head, false, &body.to_string())).await;
    }
}

/// The reply to a request.
pub(in super::super) fn answer(to: &RequestHead, has_error: bool, body: &str) -> Publication {
    let topic = Topic::parse(&format!("{}/response", to.source.replace('.', "/"))).unwrap();
    let mut message = Publication::new(topic, body.to_owned());
    message.content_type = Some(if has_error { TEXT } else { JSON }.into());
    message.headers = reply_headers(to, VERSION, has_error);
    message
}

/// Publishes until the broker has it, over lost connections, or its sender is killed.
pub(super) async fn publish(broker: &Arc<dyn Broker>, message: Publication) {
    while let Err(error) = broker.publish(message.clone()).await {
        if error.kind == PublishErrorKind::Closed {
            return;
        }
        let is_lost = matches!(
            error.kind,
            PublishErrorKind::NotConnected { .. } | PublishErrorKind::Lost { .. }
        );
        assert!(is_lost, "{error}");
        let mut link = broker.link();
        if link.wait_for(mainstay_message::Link::is_up).await.is_err() {
            return;
        }
        tokio::task::yield_now().await;
    }
}
