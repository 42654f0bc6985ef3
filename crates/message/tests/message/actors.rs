//! Workers and clients that speak as the SDK does.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_message::envelope::{
    self, JSON, Lifecycle, RequestHead, TEXT, event_headers, fresh_id, reply_headers,
};
use mainstay_message::identity::queue_name;
use mainstay_message::{
    Broker, Delivery, Headers, Identity, Publication, Queue, Subscription, Topic,
};
use serde_json::{Value, json};

use crate::hub::{Connection, Hub};

pub(crate) const VERSION: &str = "0.9.6";

/// What a worker does with a request.
#[derive(Debug, Clone)]
pub(crate) enum Does {
    /// Answers with its name and the argument.
    Echo,
    /// Answers with an error's text.
    Error(&'static str),
    /// Answers nothing.
    Nothing,
    /// Answers after a while.
    Late(Duration),
    /// Accepts a job and gives so many results, one a step; the last is done.
    Job { results: u32, step: Duration },
    /// The same, and stops after some.
    Stalls { after: u32, step: Duration },
    /// Gives all its results before it accepts.
    Early { results: u32 },
    /// The same, as requests to whom the job came from.
    EarlyRequests { results: u32 },
}

/// Between two results, where nothing else is said.
pub(crate) const STEP: Duration = Duration::from_secs(1);

impl Does {
    /// A job of so many results.
    pub(crate) fn gives(results: u32) -> Self {
        Does::Job {
            results,
            step: STEP,
        }
    }

    /// A job that stops after so many results.
    pub(crate) fn stalls(after: u32) -> Self {
        Does::Stalls { after, step: STEP }
    }
}

/// A worker: one request after the other, or all at once.
pub(crate) struct Worker {
    pub(crate) identity: Identity,
    pub(crate) connection: Arc<Connection>,
    pub(crate) runs: Arc<AtomicU32>,
    /// What it did, by operation and argument, and how often.
    pub(crate) done: Arc<Mutex<BTreeMap<String, u32>>>,
    does: Arc<Mutex<Does>>,
    tasks: Tasks,
}

impl Worker {
    pub(crate) fn start(hub: &Hub, name: &str, does: Does) -> Self {
        let worker = Worker {
            identity: Identity::parse(&format!("org.fac.sys.-.{name}")).unwrap(),
            connection: hub.connect(),
            runs: Arc::default(),
            done: Arc::default(),
            does: Arc::new(Mutex::new(does)),
            tasks: Tasks::new(),
        };
        worker.run();
        worker
    }

    fn run(&self) {
        let topic = self.identity.requests();
        let mut requests = self.connection.subscribe(Subscription {
            filter: (&topic).into(),
            queue: Queue::Durable(queue_name(topic.as_str()).into()),
            backlog_max: 100,
        });
        let (does, runs) = (Arc::clone(&self.does), Arc::clone(&self.runs));
        let done = Arc::clone(&self.done);
        let (connection, identity) = (Arc::clone(&self.connection), self.identity.clone());
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move {
            while let Some(mut delivery) = requests.deliveries.next().await {
                if let Some(it) = delivery.acknowledgement.take() {
                    it.acknowledge();
                }
                let head = RequestHead::read(&delivery.headers).unwrap();
                let work = Work {
                    connection: Arc::clone(&connection),
                    identity: identity.clone(),
                    head,
                    body: serde_json::from_slice(&delivery.body).unwrap_or_default(),
                };
                if work.head.operation_id == "intersect_sdk.system_capability" {
                    let does = does.lock().unwrap().clone();
                    if !matches!(does, Does::Nothing) {
                        work.reply(false, "{}").await;
                    }
                    continue;
                }
                runs.fetch_add(1, Ordering::SeqCst);
                let does = does.lock().unwrap().clone();
                if !matches!(does, Does::Error(text) if text.starts_with("Function '")) {
                    let what = format!("{} {}", work.head.operation_id, work.body);
                    *done.lock().unwrap().entry(what).or_default() += 1;
                }
                tasks.spawn(work.run(does));
            }
        });
    }

    pub(crate) fn does(&self, does: Does) {
        *self.does.lock().unwrap() = does;
    }

    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// As if it had been killed.
    pub(crate) fn kill(&self) {
        self.tasks.stop();
        self.connection.kill();
    }

    /// Says that it is there and fine.
    pub(crate) async fn announce(&self, kind: Lifecycle) {
        self.announce_as(kind, "fine").await;
    }

    /// Says that it is there, and how it is.
    pub(crate) async fn announce_as(&self, kind: Lifecycle, status: &str) {
        let schema = json!({
            "asyncapi": "2.6.0",
            "info": {"title": self.identity.as_str()},
            "capabilities": {"intersect_sdk": {}, "Work": {"endpoints": {"run": {}, "job": {}}}},
        });
        let body = json!({"schema": schema, "status": {"Work": status}}).to_string();
        let mut message = Publication::new(self.identity.lifecycle(), body);
        message.content_type = Some(JSON.into());
        message.headers = envelope::lifecycle_headers(&self.identity, kind, VERSION);
        self.connection.publish(message).await.unwrap();
    }
}

struct Work {
    connection: Arc<Connection>,
    identity: Identity,
    head: RequestHead,
    body: Value,
}

impl Work {
    async fn run(self, does: Does) {
        let name = self
            .identity
            .as_str()
            .rsplit('.')
            .next()
            .unwrap()
            .to_owned();
        match does {
            Does::Echo => {
                self.reply(false, &json!([name, self.body]).to_string())
                    .await
            }
            Does::Error(text) => self.reply(true, text).await,
            Does::Nothing => {}
            Does::Late(wait) => {
                tokio::time::sleep(wait).await;
                self.reply(false, &json!([name, self.body]).to_string())
                    .await;
            }
            Does::Job { results, step } => {
                self.reply(false, r#"{"accepted":true}"#).await;
                self.results(results, results, step, &name).await;
            }
            Does::Stalls { after, step } => {
                self.reply(false, r#"{"accepted":true}"#).await;
                self.results(after, after + 1, step, &name).await;
            }
            Does::Early { results } => {
                self.results(results, results, Duration::ZERO, &name).await;
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.reply(false, r#"{"accepted":true}"#).await;
            }
            Does::EarlyRequests { results } => {
                for index in 1..=results {
                    self.report(index, results).await;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                self.reply(false, r#"{"accepted":true}"#).await;
            }
        }
    }

    /// Gives a result as a request.
    async fn report(&self, index: u32, total: u32) {
        let status = if index == total { "done" } else { "running" };
        let body = json!({"id": self.body["id"], "index": index, "status": status});
        request(&self.connection, &self.identity, &self.head.source, &body).await;
    }

    async fn results(&self, count: u32, total: u32, step: Duration, name: &str) {
        for index in 1..=count {
            tokio::time::sleep(step).await;
            let status = if index == total { "done" } else { "running" };
            let id = &self.body["id"];
            let body = json!({"id": id, "index": index, "status": status, "worker": name});
            event(&self.connection, &self.identity, &body).await;
        }
    }

    async fn reply(&self, has_error: bool, body: &str) {
        let topic =
            Topic::parse(&format!("{}/response", self.head.source.replace('.', "/"))).unwrap();
        let mut message = Publication::new(topic, body.to_owned());
        message.content_type = Some(if has_error { TEXT } else { JSON }.into());
        message.headers = reply_headers(&self.head, VERSION, has_error);
        // A killed worker says nothing.
        let _ = self.connection.publish(message).await;
    }
}

/// Publishes an event of a worker.
pub(crate) async fn event(connection: &Arc<Connection>, identity: &Identity, body: &Value) {
    let topic = identity.event("Work", "result").unwrap();
    let mut message = Publication::new(topic, body.to_string());
    message.content_type = Some(JSON.into());
    message.headers = event_headers(identity, "Work", "result", VERSION);
    let _ = connection.publish(message).await;
}

/// Publishes a result of a worker as a request to whom the job came from.
pub(crate) async fn request(
    connection: &Arc<Connection>,
    identity: &Identity,
    to: &str,
    body: &Value,
) {
    let topic = Topic::parse(&format!("{}/request", to.replace('.', "/"))).unwrap();
    let mut message = Publication::new(topic, body.to_string());
    message.content_type = Some(JSON.into());
    message.headers = envelope::request_headers(identity, to, "Work.result", &fresh_id(), VERSION);
    connection.publish(message).await.unwrap();
}

/// A client: sends requests and hears replies and events.
pub(crate) struct Client {
    pub(crate) connection: Arc<Connection>,
    name: String,
    replies: tokio::sync::Mutex<mainstay_message::Deliveries>,
    events: tokio::sync::Mutex<mainstay_message::Deliveries>,
}

/// What a client heard.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heard {
    pub(crate) request_id: String,
    pub(crate) has_error: bool,
    pub(crate) text: String,
    pub(crate) headers: Headers,
}

impl Heard {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }
}

fn heard(delivery: &Delivery) -> Heard {
    let header = |name| delivery.headers.get(name).unwrap_or_default().to_owned();
    Heard {
        request_id: header("request_id"),
        has_error: header("has_error") == "true",
        text: String::from_utf8(delivery.body.to_vec()).unwrap(),
        headers: delivery.headers.clone(),
    }
}

impl Client {
    pub(crate) fn start(hub: &Hub, front: &Identity) -> Self {
        let connection = hub.connect();
        let name = format!("org.fac.sys.-.tmp-{}", fresh_id());
        let transient = |filter| Subscription {
            filter,
            queue: Queue::Transient,
            backlog_max: 100,
        };
        let topic = Topic::parse(&format!("{}/response", name.replace('.', "/"))).unwrap();
        let replies = connection.subscribe(transient((&topic).into())).deliveries;
        let events = connection.subscribe(transient(front.events())).deliveries;
        Client {
            connection,
            name,
            replies: tokio::sync::Mutex::new(replies),
            events: tokio::sync::Mutex::new(events),
        }
    }

    /// Where requests to it would go.
    pub(crate) fn requests(&self) -> Topic {
        Topic::parse(&format!("{}/request", self.name.replace('.', "/"))).unwrap()
    }

    pub(crate) fn headers(&self, to: &Identity, operation: &str) -> Headers {
        [
            ("message_id", fresh_id().as_str()),
            ("campaign_id", fresh_id().as_str()),
            ("request_id", fresh_id().as_str()),
            ("source", &self.name),
            ("destination", to.as_str()),
            ("created_at", envelope::now().as_str()),
            ("sdk_version", VERSION),
            ("operation_id", operation),
            ("data_handler", "MESSAGE"),
            ("has_error", "false"),
        ]
        .into_iter()
        .collect()
    }

    pub(crate) async fn send_raw(
        &self,
        to: &Identity,
        content_type: &str,
        headers: Headers,
        body: &str,
    ) {
        let mut message = Publication::new(to.requests(), body.to_owned());
        message.content_type = Some(content_type.into());
        message.headers = headers;
        self.connection.publish(message).await.unwrap();
    }

    /// Sends a request; gives its request id.
    pub(crate) async fn send(&self, to: &Identity, operation: &str, body: &Value) -> String {
        let headers = self.headers(to, operation);
        let id = headers.get("request_id").unwrap().to_owned();
        self.send_raw(to, JSON, headers, &body.to_string()).await;
        id
    }

    /// The next reply, within ten minutes of the paused clock.
    pub(crate) async fn reply(&self) -> Heard {
        let mut replies = self.replies.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(600), replies.next());
        heard(&next.await.expect("a reply").unwrap())
    }

    /// The next event, within ten minutes of the paused clock.
    pub(crate) async fn event(&self) -> Heard {
        let mut events = self.events.lock().await;
        let next = tokio::time::timeout(Duration::from_secs(600), events.next());
        heard(&next.await.expect("an event").unwrap())
    }

    pub(crate) async fn reply_if_any(&self) -> Option<Heard> {
        self.replies.lock().await.try_next().as_ref().map(heard)
    }

    pub(crate) async fn event_if_any(&self) -> Option<Heard> {
        self.events.lock().await.try_next().as_ref().map(heard)
    }

    /// Whether nothing comes for an hour.
    pub(crate) async fn hears_nothing_more(&self) -> bool {
        tokio::time::sleep(Duration::from_secs(3600)).await;
        let reply = self.replies.lock().await.try_next();
        let event = self.events.lock().await.try_next();
        reply.is_none() && event.is_none()
    }

    pub(crate) async fn call(&self, to: &Identity, operation: &str, body: &Value) -> Heard {
        let id = self.send(to, operation, body).await;
        let reply = self.reply().await;
        assert_eq!(reply.request_id, id);
        reply
    }
}
