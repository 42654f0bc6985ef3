//! Two endpoints behind one proxy.

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, EndpointSpec, Policy, Preset, Role};
use mainstay_sql::{DataProxy, Database, Dialect, Plain};
use mainstay_testkit::scripted::ScriptedDriver;

/// A proxy over two scripted drivers, without health checks and without a bound on lag.
pub(crate) struct Pair {
    pub(crate) proxy: DataProxy,
    pub(crate) drivers: [ScriptedDriver; 2],
    pub(crate) plains: [Plain; 2],
}

/// A primary `a` and another endpoint `b` of this role.
pub(crate) fn pair(other: Role) -> Pair {
    pair_of(Dialect::Postgres, other)
}

pub(crate) fn pair_of(dialect: Dialect, other: Role) -> Pair {
    let drivers = [0, 1].map(|_| ScriptedDriver::new(dialect));
    let mut settings = Preset::Balanced.settings();
    settings.health.enabled = false;
    settings.route.lag_max = None;
    settings.retry.delay = Duration::from_millis(5);
    settings.retry.attempts_max = 3;
    let policy = Policy::new(settings).unwrap();
    let tasks = Tasks::new();
    let plains = drivers
        .clone()
        .map(|driver| Plain::new(Arc::new(driver), &policy, tasks.clone(), Chance::seeded(1)));
    let member = |plain: &Plain| -> Arc<dyn Database> { Arc::new(plain.clone()) };
    let first = if other == Role::Member {
        Role::Member
    } else {
        Role::Primary
    };
    let proxy = DataProxy::builder("s", policy)
        .tasks(tasks)
        .chance(Chance::seeded(2))
        .endpoint(EndpointSpec::new("a", member(&plains[0])).role(first))
        .endpoint(EndpointSpec::new("b", member(&plains[1])).role(other))
        .build()
        .unwrap();
    proxy.source().keep_recent_audit();
    Pair {
        proxy,
        drivers,
        plains,
    }
}
