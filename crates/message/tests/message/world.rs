//! A proxied service between clients and workers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::policy::Strategy;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Policy, Preset, Safety};
use mainstay_message::settings::{JOB_FAILED_EVENT, STATUS_OPERATION};
use mainstay_message::store::{JobStore, MemoryStore};
use mainstay_message::{
    Broker, Expression, Hooks, Identity, MessageLimits, NoHooks, OperationKind, OperationSettings,
    Pointer, Service, ServiceParts, ServiceSettings, Spread, TargetSettings, Timeouts,
};

use crate::actors::{Client, Does, Worker};
use crate::hub::{Connection, Hub};

pub(crate) struct World {
    pub(crate) hub: Hub,
    pub(crate) front: Identity,
    pub(crate) client: Client,
    pub(crate) a: Worker,
    pub(crate) b: Worker,
    pub(crate) service: Service,
    pub(crate) connection: Arc<Connection>,
    pub(crate) store: MemoryStore,
    pub(crate) settings: ServiceSettings,
    hooks: Arc<dyn Hooks>,
}

pub(crate) fn policy(count: u32, spread: Spread, concurrency: Option<u32>) -> Arc<Policy> {
    let mut settings = Preset::Service.settings();
    settings.retry.attempts_max = count + 1;
    settings.route.strategy = match spread {
        Spread::ActiveStandby => Strategy::PrimaryWithStandby,
        Spread::RoundRobin => Strategy::RoundRobin,
        Spread::Weighted => Strategy::WeightedRoundRobin,
    };
    settings.limits.concurrency = concurrency;
    Policy::new(settings).unwrap()
}

pub(crate) fn target(name: &str, group: &str) -> TargetSettings {
    let map = |function: &str| (Arc::from(function), Arc::from(format!("Work.{function}")));
    TargetSettings {
        name: name.into(),
        group: group.into(),
        destination: Identity::parse(&format!("org.fac.sys.-.{name}")).unwrap(),
        broker: None,
        operation_map: [map("run"), map("write"), map("job"), map("job_write")]
            .into_iter()
            .collect(),
        weight: 1.0,
        max_in_flight: None,
        policy: policy(1, Spread::ActiveStandby, None),
    }
}

pub(crate) fn settings() -> ServiceSettings {
    let job = |safety| OperationSettings {
        kind: OperationKind::Job,
        safety,
        job_key: Some(Pointer::parse("/id").unwrap()),
        last_result: Some(Expression::parse(r#"/status == "done""#).unwrap()),
        ..OperationSettings::default()
    };
    let write = OperationSettings {
        safety: Safety::Write,
        ..OperationSettings::default()
    };
    ServiceSettings {
        name: "compute".into(),
        identity: Identity::parse("org.fac.sys.-.compute").unwrap(),
        caller: Identity::parse("org.fac.sys.-.compute-proxy").unwrap(),
        capability_name: "Compute".into(),
        spread: Spread::ActiveStandby,
        group_order: vec!["primary".into(), "standby".into()],
        timeouts: Timeouts::default(),
        operations: [
            ("write".into(), write),
            ("job".into(), job(Safety::IdempotentWrite)),
            ("job_write".into(), job(Safety::Write)),
        ]
        .into_iter()
        .collect(),
        targets: vec![target("worker-b", "standby"), target("worker-a", "primary")],
        brokers: vec!["main".into()],
        fronts: vec!["main".into()],
        status_operation: STATUS_OPERATION.into(),
        rules: Vec::new(),
        discover: Vec::new(),
        job_failed_event: Some(JOB_FAILED_EVENT.into()),
        object_stores: Vec::new(),
        limits: MessageLimits::default(),
        policy: policy(1, Spread::ActiveStandby, None),
    }
}

async fn serve(
    settings: ServiceSettings,
    connection: &Arc<Connection>,
    store: &MemoryStore,
    hooks: &Arc<dyn Hooks>,
) -> Service {
    let broker: Arc<dyn Broker> = Arc::clone(connection) as Arc<dyn Broker>;
    let brokers = BTreeMap::from([(Arc::from("main"), broker)]);
    let mut parts = ServiceParts::new(settings, brokers);
    parts.store = Arc::new(store.clone()) as Arc<dyn JobStore>;
    parts.hooks = Arc::clone(hooks);
    parts.tasks = Tasks::new();
    Service::start(parts).await.unwrap()
}

impl World {
    pub(crate) async fn new(a: Does, b: Does) -> Self {
        Self::of(settings(), a, b).await
    }

    pub(crate) async fn of(settings: ServiceSettings, a: Does, b: Does) -> Self {
        Self::hooked(settings, Arc::new(NoHooks), a, b).await
    }

    pub(crate) async fn hooked(
        settings: ServiceSettings,
        hooks: Arc<dyn Hooks>,
        a: Does,
        b: Does,
    ) -> Self {
        let hub = Hub::default();
        let (a, b) = (
            Worker::start(&hub, "worker-a", a),
            Worker::start(&hub, "worker-b", b),
        );
        let connection = hub.connect();
        let store = MemoryStore::new();
        let service = serve(settings.clone(), &connection, &store, &hooks).await;
        let client = Client::start(&hub, &settings.identity);
        World {
            hub,
            front: settings.identity.clone(),
            client,
            a,
            b,
            service,
            connection,
            store,
            settings,
            hooks,
        }
    }

    pub(crate) async fn call(
        &self,
        function: &str,
        body: serde_json::Value,
    ) -> crate::actors::Heard {
        self.client
            .call(&self.front, &format!("Compute.{function}"), &body)
            .await
    }

    pub(crate) async fn send(&self, function: &str, body: serde_json::Value) -> String {
        self.client
            .send(&self.front, &format!("Compute.{function}"), &body)
            .await
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let counts = self.service.counts();
        counts
            .into_iter()
            .find(|(known, _)| *known == name)
            .unwrap_or_else(|| panic!("{name}"))
            .1
    }

    /// Stops the proxy as a kill would, and starts another on what it wrote down.
    pub(crate) async fn restart(&mut self) {
        self.connection.kill();
        drop(std::mem::replace(&mut self.connection, self.hub.connect()));
        let _ = self.service.stop(Duration::ZERO).await;
        let settings = self.settings.clone();
        self.service = serve(settings, &self.connection, &self.store, &self.hooks).await;
    }
}
