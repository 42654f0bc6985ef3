//! One running source with what the engine does not keep about it.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_config::{EndpointSettings, Promotion as Configured, Role as Given, SourceSettings};
use mainstay_engine::event::Role;
use mainstay_engine::source::EndpointSpec;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::watchdog::Promotion;
use mainstay_engine::{Chance, PoolStats};
use mainstay_sql::{DataProxy, Database, Plain, SqlError, TransactionLimits};
use parking_lot::Mutex;

use super::{AssemblyError, drivers};

/// A source that is served: the proxy, and the pool behind each endpoint.
pub struct Served {
    name: Arc<str>,
    proxy: DataProxy,
    tasks: Tasks,
    chance: Chance,
    state: Mutex<State>,
}

struct State {
    settings: Arc<SourceSettings>,
    plains: BTreeMap<String, Plain>,
}

impl Served {
    pub(super) fn build(
        name: &str,
        settings: &SourceSettings,
        tasks: &Tasks,
        chance: &Chance,
    ) -> Result<Self, AssemblyError> {
        let promotion = match settings.promotion {
            Configured::Follow => Promotion::Follow,
            Configured::Route => Promotion::Route,
        };
        let limits = TransactionLimits {
            idle: settings.transaction_idle,
            count: settings.transactions_max,
        };
        let mut builder = DataProxy::builder(name, Arc::clone(&settings.policy))
            .promotion(promotion)
            .transactions(limits)
            .tasks(tasks.clone())
            .chance(chance.clone());
        let mut plains = BTreeMap::new();
        for (id, endpoint) in &settings.endpoints {
            let plain = plain(name, id, endpoint, tasks, chance)?;
            builder = builder.endpoint(spec(id, endpoint, &plain));
            plains.insert(id.clone(), plain);
        }
        let proxy = builder.build().map_err(|problem| AssemblyError::Source {
            name: name.to_owned(),
            problem,
        })?;
        Ok(Served {
            name: Arc::from(name),
            proxy,
            tasks: tasks.clone(),
            chance: chance.clone(),
            state: Mutex::new(State {
                settings: Arc::new(settings.clone()),
                plains,
            }),
        })
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The data proxy that runs its calls.
    pub fn proxy(&self) -> &DataProxy {
        &self.proxy
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<SourceSettings> {
        Arc::clone(&self.state.lock().settings)
    }

    /// Work in flight on all its endpoints.
    pub fn in_flight(&self) -> u32 {
        let snapshot = self.proxy.source().snapshot();
        let endpoints = snapshot.endpoints.iter();
        endpoints.map(|placed| placed.endpoint.in_flight()).sum()
    }

    /// The pool behind an endpoint; `None`: there is no such endpoint.
    pub fn pool_stats(&self, endpoint: &str) -> Option<PoolStats> {
        self.state
            .lock()
            .plains
            .get(endpoint)
            .map(Plain::pool_stats)
    }

    /// Where an endpoint connects to, without secrets.
    pub fn address(&self, endpoint: &str) -> Option<String> {
        self.state.lock().plains.get(endpoint).map(Plain::address)
    }

    /// Adds an endpoint; nothing is connected yet.
    pub(crate) fn add_endpoint(
        &self,
        id: &str,
        settings: &EndpointSettings,
    ) -> Result<(), AddError> {
        let plain = plain(&self.name, id, settings, &self.tasks, &self.chance)?;
        let added = self.proxy.source().add_endpoint(spec(id, settings, &plain));
        added.map_err(|problem| mainstay_sql::proxy::control(&problem))?;
        self.state.lock().plains.insert(id.to_owned(), plain);
        Ok(())
    }

    /// Takes an endpoint out and closes its connections in the background. Work in flight on it is cut.
    pub(crate) fn remove_endpoint(&self, id: &str) -> Result<(), SqlError> {
        let removed = self.proxy.source().remove_endpoint(id);
        let removed = removed.map_err(|problem| mainstay_sql::proxy::control(&problem))?;
        self.state.lock().plains.remove(id);
        let limit = self.settings().policy.pool.cleanup_max;
        let member = removed.member;
        self.tasks.spawn(async move { member.close(limit).await });
        Ok(())
    }

    /// Takes settings over: policies at once, for pools too. Addresses, roles and the list of endpoints
    /// are not touched.
    pub(crate) fn apply(&self, settings: &SourceSettings) {
        let policy_of = |id: &str| {
            let endpoint = settings.endpoints.get(id);
            endpoint.map(|endpoint| Arc::clone(&endpoint.policy))
        };
        let source = self.proxy.source();
        source.apply(Arc::clone(&settings.policy), |id| policy_of(id.as_str()));
        for placed in &source.snapshot().endpoints {
            let own = policy_of(placed.endpoint.id.as_str());
            placed
                .member
                .apply(own.as_ref().unwrap_or(&settings.policy));
        }
        self.note(settings);
    }

    /// Remembers the settings in force.
    pub(crate) fn note(&self, settings: &SourceSettings) {
        self.state.lock().settings = Arc::new(settings.clone());
    }
}

/// Why an endpoint was not added.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AddError {
    /// Its settings cannot work.
    #[error(transparent)]
    Settings(#[from] AssemblyError),
    /// The source refused it.
    #[error(transparent)]
    Refused(#[from] SqlError),
}

fn plain(
    source: &str,
    id: &str,
    settings: &EndpointSettings,
    tasks: &Tasks,
    chance: &Chance,
) -> Result<Plain, AssemblyError> {
    let driver = drivers::driver(settings).map_err(|message| AssemblyError::Endpoint {
        name: source.to_owned(),
        endpoint: id.to_owned(),
        message,
    })?;
    Ok(Plain::new(
        driver,
        &settings.policy,
        tasks.clone(),
        chance.clone(),
    ))
}

fn spec(id: &str, settings: &EndpointSettings, plain: &Plain) -> EndpointSpec<Arc<dyn Database>> {
    let role = match settings.role {
        Some(Given::Primary) => Role::Primary,
        Some(Given::Standby) => Role::Standby,
        // Without a role the server itself says who is primary; until then nobody writes there.
        Some(Given::Replica) | None => Role::Replica,
    };
    EndpointSpec::new(id.to_owned(), Arc::new(plain.clone()) as Arc<dyn Database>)
        .role(role)
        .weight(settings.weight)
        .policy(Arc::clone(&settings.policy))
}

impl std::fmt::Debug for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Served")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
