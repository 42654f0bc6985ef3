//! One running source with what the engine does not keep about it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use mainstay_config::{
    CommitProof as ProofWord, EndpointSettings, Promotion as Configured, SourceSettings,
};
use mainstay_engine::event::Role;
use mainstay_engine::source::EndpointSpec;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::watchdog::Promotion;
use mainstay_engine::{Chance, PoolStats};
use mainstay_sql::{
    CommitProof, DataProxy, DataProxyBuilder, Database, IdempotencyTable, Plain, ProofForm,
    SqlError, TableName, TransactionLimits,
};
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
    /// Endpoints of the settings that a person took out while running.
    taken_out: BTreeSet<String>,
}

/// Other settings for a running source, with everything made that they need.
pub(crate) struct Plan {
    settings: Arc<SourceSettings>,
    /// Endpoints that are new, or whose address or driver options are others.
    made: BTreeMap<String, Plain>,
    taken_out: BTreeSet<String>,
}

impl Plan {
    /// The settings that it leads to.
    pub(crate) fn settings(&self) -> &Arc<SourceSettings> {
        &self.settings
    }
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
        builder = with_proofs(builder, settings);
        let mut plains = BTreeMap::new();
        for (id, endpoint) in &settings.endpoints {
            let own_file = settings.replication.is_some();
            let plain = plain((name, id), endpoint, own_file, tasks, chance)?;
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
                taken_out: BTreeSet::new(),
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

    /// Takes an endpoint out and closes its connections in the background. Work in flight on it is cut.
    pub(crate) fn remove_endpoint(&self, id: &str) -> Result<(), SqlError> {
        self.take_out(id)?;
        self.state.lock().taken_out.insert(id.to_owned());
        Ok(())
    }

    fn take_out(&self, id: &str) -> Result<(), SqlError> {
        let removed = self.proxy.source().remove_endpoint(id);
        let removed = removed.map_err(|problem| mainstay_sql::proxy::control(&problem))?;
        self.state.lock().plains.remove(id);
        let limit = self.settings().policy.pool.cleanup_max;
        let member = removed.member;
        self.tasks.spawn(async move { member.close(limit).await });
        Ok(())
    }

    /// Lets an endpoint come back that was taken out.
    pub(crate) fn admit_again(&self, id: &str) {
        self.state.lock().taken_out.remove(id);
    }

    /// Whether the source can go over to these settings while it runs. Else it is made anew.
    pub(crate) fn can_follow(&self, settings: &SourceSettings) -> bool {
        let old = self.settings();
        old.driver == settings.driver
            && old.promotion == settings.promotion
            && old.replication == settings.replication
            && old.transaction_idle == settings.transaction_idle
            && old.transactions_max == settings.transactions_max
            && old.idempotency == settings.idempotency
            && old.commit_proof == settings.commit_proof
    }

    /// Makes what other settings need; nothing changes yet. `returning`: endpoints that were taken out
    /// come back.
    pub(crate) fn plan(
        &self,
        settings: &SourceSettings,
        returning: bool,
    ) -> Result<Plan, AssemblyError> {
        let old = self.settings();
        let (running, mut taken_out): (BTreeSet<String>, _) = {
            let state = self.state.lock();
            (
                state.plains.keys().cloned().collect(),
                state.taken_out.clone(),
            )
        };
        if returning {
            taken_out.clear();
        }
        let mut made = BTreeMap::new();
        for (id, endpoint) in &settings.endpoints {
            let same_place = old.endpoints.get(id).is_some_and(|old| {
                old.address == endpoint.address && old.options == endpoint.options
            });
            if taken_out.contains(id) || (same_place && running.contains(id)) {
                continue;
            }
            let (place, own_file) = ((&*self.name, &**id), settings.replication.is_some());
            let plain = plain(place, endpoint, own_file, &self.tasks, &self.chance)?;
            made.insert(id.clone(), plain);
        }
        Ok(Plan {
            settings: Arc::new(settings.clone()),
            made,
            taken_out,
        })
    }

    /// Goes over to other settings: endpoints come and go, policies and weights are taken over, pools,
    /// counters and circuits of those that stay are kept. Roles are state and are not touched.
    pub(crate) fn follow(&self, plan: Plan) {
        let old = self.settings();
        let settings = &plan.settings;
        let source = self.proxy.source();
        self.state.lock().taken_out.clone_from(&plan.taken_out);
        for (id, plain) in plan.made {
            let Some(endpoint) = settings.endpoints.get(&id) else {
                continue;
            };
            if source.snapshot().endpoint(&id).is_some() {
                self.drop_endpoint(&id);
            }
            let mut spec = spec(&id, endpoint, &plain);
            if source.snapshot().primary().is_some() && spec.role == Role::Primary {
                spec.role = Role::Replica;
            }
            match source.add_endpoint(spec) {
                Ok(()) => {
                    self.state.lock().plains.insert(id, plain);
                }
                Err(problem) => tracing::warn!(endpoint = id, %problem, "not added"),
            }
        }
        for placed in &source.snapshot().endpoints {
            let id = placed.endpoint.id.as_str();
            match settings.endpoints.get(id) {
                None => self.drop_endpoint(id),
                Some(new) => {
                    let was = old.endpoints.get(id).map(|old| old.weight);
                    if was != Some(new.weight)
                        && let Err(problem) = source.set_weight(id, new.weight)
                    {
                        tracing::warn!(endpoint = id, %problem, "weight not set");
                    }
                }
            }
        }
        self.apply(&old, settings);
        self.state.lock().settings = Arc::clone(settings);
    }

    fn drop_endpoint(&self, id: &str) {
        if let Err(problem) = self.take_out(id) {
            tracing::warn!(endpoint = id, %problem, "not removed");
        }
    }

    /// Takes policies over, for pools too.
    fn apply(&self, old: &SourceSettings, new: &SourceSettings) {
        let policies = |settings: &SourceSettings| {
            let endpoints = settings.endpoints.iter();
            let endpoints =
                endpoints.map(|(id, endpoint)| (id.clone(), Arc::clone(&endpoint.policy)));
            (
                Arc::clone(&settings.policy),
                endpoints.collect::<BTreeMap<_, _>>(),
            )
        };
        let (was, is) = (policies(old), policies(new));
        if was == is {
            return;
        }
        let (policy, own) = is;
        let source = self.proxy.source();
        source.apply(Arc::clone(&policy), |id| own.get(id.as_str()).cloned());
        for placed in &source.snapshot().endpoints {
            let own = own.get(placed.endpoint.id.as_str());
            placed.member.apply(own.unwrap_or(&policy));
        }
    }
}

/// What the source is to prove. Names of tables are known to be good.
fn with_proofs(mut builder: DataProxyBuilder, settings: &SourceSettings) -> DataProxyBuilder {
    if let Some(keys) = &settings.idempotency
        && let Some(table) = TableName::parse(&keys.table)
    {
        builder = builder.idempotency(IdempotencyTable {
            table,
            keep: keys.keep,
            answer_max: keys.answer_max,
        });
    }
    let Some(proof) = &settings.commit_proof else {
        return builder;
    };
    let form = match proof.form {
        ProofWord::Off => return builder,
        ProofWord::Table => ProofForm::Table,
        ProofWord::Xid => ProofForm::Xid,
    };
    match TableName::parse(&proof.table) {
        Some(table) => builder.commit_proof(CommitProof {
            form,
            table,
            wait: proof.wait,
        }),
        None => builder,
    }
}

fn plain(
    (source, id): (&str, &str),
    settings: &EndpointSettings,
    own_file: bool,
    tasks: &Tasks,
    chance: &Chance,
) -> Result<Plain, AssemblyError> {
    let driver = drivers::driver(settings, own_file, tasks);
    let driver = driver.map_err(|message| AssemblyError::Endpoint {
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
    // Without a role the server itself says who is primary; until then nobody writes there.
    let role = settings.role.unwrap_or(Role::Replica);
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
