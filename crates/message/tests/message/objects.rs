//! Arguments by reference.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mainstay_engine::BoxFuture;
use mainstay_message::envelope::{DataHandler, JSON, name};
use mainstay_message::{Broker, Object, ObjectError, ObjectStore, Service, ServiceParts};
use serde_json::json;

use crate::actors::{Client, Does, Worker};
use crate::hub::Hub;
use crate::world::settings;

/// A store in memory that writes down what is asked of it.
#[derive(Debug, Default)]
struct Shelf {
    objects: Mutex<BTreeMap<String, Bytes>>,
    asked: Mutex<Vec<String>>,
}

impl Shelf {
    fn ask(&self, verb: &str, bucket: &str, object: &str) -> String {
        let place = format!("{bucket}/{object}");
        self.asked.lock().unwrap().push(format!("{verb} {place}"));
        place
    }

    fn asked(&self, verb: &str) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| it.starts_with(verb)).count()
    }
}

impl ObjectStore for Shelf {
    fn url(&self) -> &str {
        "http://store:9000"
    }

    fn get<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        _length_max: usize,
    ) -> BoxFuture<'a, Result<Object, ObjectError>> {
        let place = self.ask("get", bucket, object);
        let content = self.objects.lock().unwrap().get(&place).cloned().unwrap();
        Box::pin(async {
            Ok(Object {
                content,
                content_type: None,
            })
        })
    }

    fn put<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
        content: Object,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        let place = self.ask("put", bucket, object);
        self.objects.lock().unwrap().insert(place, content.content);
        Box::pin(async { Ok(()) })
    }

    fn remove<'a>(
        &'a self,
        bucket: &'a str,
        object: &'a str,
    ) -> BoxFuture<'a, Result<(), ObjectError>> {
        let place = self.ask("remove", bucket, object);
        self.objects.lock().unwrap().remove(&place);
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn an_argument_in_a_store_is_read_once_and_nothing_of_it_stays() {
    const FAILURE: &str = "Service domain logic threw exception.";
    let hub = Hub::default();
    let workers = ["worker-a", "worker-b"].map(|it| Worker::start(&hub, it, Does::Error(FAILURE)));
    let settings = settings();
    let broker: Arc<dyn Broker> = hub.connect();
    let brokers = BTreeMap::from([(Arc::from("main"), broker)]);
    let shelf = Arc::new(Shelf::default());
    let front = settings.identity.clone();
    let mut parts = ServiceParts::new(settings, brokers);
    parts.objects = vec![Arc::clone(&shelf) as Arc<dyn ObjectStore>];
    let service = Service::start(parts).await.unwrap();
    let client = Client::start(&hub, &front);

    let argument = Bytes::from_static(b"\"large\"");
    let mut objects = BTreeMap::from([("caller/argument".to_owned(), argument)]);
    std::mem::swap(&mut *shelf.objects.lock().unwrap(), &mut objects);
    let mut headers = client.headers(&front, "Compute.run");
    headers.set(name::DATA_HANDLER, DataHandler::Minio.as_str());
    let place = json!({
        "minio_url": shelf.url(), "minio_bucket": "caller", "minio_object_id": "argument",
    });
    client
        .send_raw(&front, JSON, headers, &place.to_string())
        .await;
    assert_eq!(client.reply().await.text, FAILURE);
    assert!(client.hears_nothing_more().await);
    let runs: Vec<_> = workers.iter().map(Worker::runs).collect();
    assert_eq!(runs, [2, 2]);
    let asked = ["get", "put", "remove"].map(|verb| shelf.asked(verb));
    assert_eq!(asked, [1, 4, 5]);
    assert!(shelf.objects.lock().unwrap().is_empty());
    drop(service);
}
