//! Services of one name at two brokers.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_message::{Broker, Service, ServiceParts};
use serde_json::json;

use crate::actors::{Client, Does, STEP, Worker, request};
use crate::hub::Hub;
use crate::world::{settings, target};

#[tokio::test(start_paused = true)]
async fn what_a_target_asks_is_told_from_what_its_namesake_at_another_broker_asks() {
    let (near, far) = (Hub::default(), Hub::default());
    let idle = Worker::start(&near, "worker-a", Does::Nothing);
    let busy = Worker::start(&far, "worker-a", Does::stalls(0));
    let mut settings = settings();
    settings.brokers = vec!["near".into(), "far".into()];
    settings.fronts = vec!["near".into()];
    let mut namesake = target("worker-a", "standby");
    namesake.name = "worker-far".into();
    namesake.broker = Some("far".into());
    settings.targets = vec![target("worker-a", "primary"), namesake];
    let front = settings.identity.clone();
    let brokers = [("near", &near), ("far", &far)].map(|(name, hub)| {
        let connection = hub.connect() as Arc<dyn Broker>;
        (Arc::from(name), connection)
    });
    let parts = ServiceParts::new(settings, BTreeMap::from(brokers));
    let service = Service::start(parts).await.unwrap();
    let client = Client::start(&near, &front);
    let reply = client
        .call(&front, "Compute.job", &json!({"id": "j"}))
        .await;
    assert!(!reply.has_error, "{}", reply.text);
    let (id, proxy) = (&busy.identity, "org.fac.sys.-.compute-proxy");
    let done = json!({"id": "j", "index": 1, "status": "done"});
    request(&busy.connection, id, proxy, &done).await;
    tokio::time::sleep(STEP).await;
    let relayed = near.published(client.requests().as_str());
    assert_eq!(relayed.len(), 1);
    assert_eq!(service.status().jobs_open, 0);
    assert!(idle.runs() > 0 && busy.runs() == 1);
}
