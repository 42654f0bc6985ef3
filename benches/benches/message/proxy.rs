//! The proxy in a process of its own: this program, started once more.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::policy::Strategy;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Policy, Preset, Safety};
use mainstay_journal::{Journal, JournalSettings};
use mainstay_message::settings::{JOB_FAILED_EVENT, STATUS_OPERATION};
use mainstay_message::{
    Expression, Identity, MessageLimits, OperationKind, OperationSettings, Pointer, Service,
    ServiceParts, ServiceSettings, Spread, TargetSettings, Timeouts,
};

use crate::brokers::{PLACE, Place};
use crate::peers;

/// The process; killed with its drop.
pub(crate) struct Proxy {
    child: Child,
    _folder: tempfile::TempDir,
}

const FOLDER: &str = "MAINSTAY_BENCH_FOLDER";

pub(crate) fn start(place: &Place) -> Proxy {
    let folder = tempfile::tempdir().unwrap();
    let child = Command::new(std::env::current_exe().unwrap())
        .env(PLACE, place.to_string())
        .env(FOLDER, folder.path())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Proxy {
        child,
        _folder: folder,
    }
}

impl Proxy {
    /// The CPU time of all its threads so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = rest.split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // USER_HZ is 100 on every Linux that people run.
        Duration::from_millis(ticks * 10)
    }

    pub(crate) fn memory_mb(&self) -> f64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .unwrap();
        line.trim()
            .trim_end_matches("kB")
            .trim()
            .parse::<f64>()
            .unwrap()
            / 1024.0
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The work of that process.
pub(crate) fn run(place: Place) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tasks = Tasks::new();
        let broker = place.connect("bench-proxy", &tasks);
        let folder = std::env::var(FOLDER).unwrap();
        let journal = Journal::open(JournalSettings::within(folder))
            .await
            .unwrap();
        let mut parts =
            ServiceParts::new(settings(), BTreeMap::from([(Arc::from("main"), broker)]));
        parts.store = Arc::new(journal);
        parts.tasks = tasks;
        let _service = Service::start(parts).await.unwrap();
        std::future::pending::<()>().await;
    });
}

fn settings() -> ServiceSettings {
    let mut policy = Preset::Service.settings();
    policy.retry.attempts_max = 1;
    policy.route.strategy = Strategy::PrimaryWithStandby;
    let policy = Policy::new(policy).unwrap();
    let operation = |kind| OperationSettings {
        safety: Safety::IdempotentWrite,
        safety_declared: true,
        kind,
        result_timeout: Some(Duration::from_secs(3600)),
        job_key: Some(Pointer::parse("/id").unwrap()),
        last_result: Some(Expression::parse("/done").unwrap()),
        ..OperationSettings::default()
    };
    let map = |function: &str| (Arc::from(function), Arc::from(format!("Work.{function}")));
    ServiceSettings {
        name: "bench".into(),
        identity: Identity::parse(peers::FRONTED).unwrap(),
        caller: Identity::parse("org.fac.sys.-.bench-proxy").unwrap(),
        capability_name: "Work".into(),
        spread: Spread::ActiveStandby,
        group_order: vec!["primary".into()],
        timeouts: Timeouts {
            ack_timeout: Duration::from_secs(30),
            ..Timeouts::default()
        },
        operations: [
            ("run".into(), operation(OperationKind::Plain)),
            ("job".into(), operation(OperationKind::Job)),
        ]
        .into_iter()
        .collect(),
        targets: vec![TargetSettings {
            name: "worker".into(),
            group: "primary".into(),
            destination: Identity::parse(peers::DIRECT).unwrap(),
            broker: None,
            operation_map: [map("run"), map("job")].into_iter().collect(),
            weight: 1.0,
            max_in_flight: None,
            policy: Arc::clone(&policy),
        }],
        brokers: vec!["main".into()],
        fronts: vec!["main".into()],
        status_operation: STATUS_OPERATION.into(),
        rules: Vec::new(),
        discover: Vec::new(),
        job_failed_event: Some(JOB_FAILED_EVENT.into()),
        object_stores: Vec::new(),
        limits: MessageLimits::default(),
        policy,
    }
}
