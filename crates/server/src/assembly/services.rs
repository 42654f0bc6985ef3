//! Proxied message services: their connections to brokers, their store of jobs, and the proxy itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mainstay_config::{Configuration, ProxiedService};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_journal::{Journal, JournalSettings};
use mainstay_message::{
    Broker, JobStore, ObjectStore, Service, ServiceParts, ServiceSettings, TargetError,
};
use mainstay_objects::{S3Settings, S3Store};
use parking_lot::Mutex;

use super::brokers::connect;
use super::{Assembly, AssemblyError};

/// A service that is proxied.
pub struct ServedService {
    service: Service,
    brokers: Vec<Arc<dyn Broker>>,
    /// As they are in the configuration in force.
    settings: Mutex<ProxiedService>,
}

/// Proxied services by name, and what they share.
#[derive(Default)]
pub struct Services {
    by_name: BTreeMap<String, Arc<ServedService>>,
    journal: Option<Arc<Journal>>,
}

impl Services {
    /// Starts every service of a configuration. Brokers and targets may all be down.
    ///
    /// # Errors
    /// If the store of jobs cannot be opened, or a service is refused. Nothing runs then.
    pub(crate) async fn start(
        configuration: &Configuration,
        assembly: &Assembly,
    ) -> Result<Self, AssemblyError> {
        let mut services = Services::default();
        if configuration.services().is_empty() {
            return Ok(services);
        }
        let settings = JournalSettings::within(&configuration.server.data_dir);
        let journal = Arc::new(Journal::open(settings).await?);
        services.journal = Some(Arc::clone(&journal));
        for (name, settings) in configuration.services() {
            let started = start_one(settings, &journal, &assembly.tasks, &assembly.chance).await;
            match started {
                Ok(served) => {
                    assembly.audit.attach_service(&served.service);
                    services.by_name.insert(name.clone(), Arc::new(served));
                }
                Err(message) => {
                    services.close(Duration::ZERO).await;
                    let name = name.clone();
                    return Err(AssemblyError::Service { name, message });
                }
            }
        }
        Ok(services)
    }

    /// The service of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<ServedService>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Arc<ServedService>)> {
        self.by_name.iter()
    }

    /// Answers what is under way, says goodbye, and closes connections and the store, all within about
    /// `limit`. Open jobs go on with the next start. Returns whether everything ended by itself.
    pub async fn close(&self, limit: Duration) -> bool {
        let closing = self.by_name.values().map(|served| served.close(limit));
        let closed = futures_util::future::join_all(closing).await;
        if let Some(journal) = &self.journal {
            journal.close().await;
        }
        closed.into_iter().all(|closed| closed)
    }
}

impl ServedService {
    /// The running proxy.
    pub fn service(&self) -> &Service {
        &self.service
    }

    async fn close(&self, limit: Duration) -> bool {
        let ended = self.service.stop(limit).await;
        let closing = self.brokers.iter().map(|broker| broker.close());
        futures_util::future::join_all(closing).await;
        ended
    }

    /// Whether it can go over to these settings while it runs: only targets come, go, or weigh
    /// differently.
    pub(crate) fn can_follow(&self, new: &ProxiedService) -> bool {
        let old = self.settings.lock();
        let without_targets = |service: &ProxiedService| {
            let settings = ServiceSettings {
                targets: Vec::new(),
                ..service.settings.clone()
            };
            (settings, service.brokers.clone())
        };
        without_targets(&old) == without_targets(new)
    }

    /// Goes over to other settings: targets that are gone are taken out, new ones taken in, weights taken
    /// over. Says what was refused.
    pub(crate) fn follow(&self, new: &ProxiedService) -> Vec<TargetError> {
        let mut settings = self.settings.lock();
        let mut refused = Vec::new();
        let mut note = |result: Result<(), TargetError>| refused.extend(result.err());
        let (old, targets) = (&settings.settings.targets, &new.settings.targets);
        for target in old {
            let stays = targets.iter().find(|it| it.name == target.name);
            let same = stays.is_some_and(|stays| {
                let weighed = mainstay_message::TargetSettings {
                    weight: stays.weight,
                    ..target.clone()
                };
                *stays == weighed
            });
            if !same && self.service.target(&target.name).is_some() {
                note(self.service.remove_target(&target.name));
            } else if let Some(stays) = stays.filter(|stays| stays.weight != target.weight) {
                note(self.service.set_target_weight(&stays.name, stays.weight));
            }
        }
        for target in targets {
            if self.service.target(&target.name).is_none() {
                note(self.service.add_target(target.clone()));
            }
        }
        *settings = new.clone();
        refused
    }
}

async fn start_one(
    settings: &ProxiedService,
    journal: &Arc<Journal>,
    tasks: &Tasks,
    chance: &Chance,
) -> Result<ServedService, String> {
    let mut brokers = BTreeMap::new();
    for (name, broker) in &settings.brokers {
        let connection = connect(broker, &settings.settings, name, tasks, chance)?;
        brokers.insert(Arc::from(name.as_str()), connection);
    }
    let mut parts = ServiceParts::new(settings.settings.clone(), brokers.clone());
    parts.store = Arc::clone(journal) as Arc<dyn JobStore>;
    parts.objects = objects(&settings.settings)?;
    parts.tasks = tasks.clone();
    parts.chance = chance.clone();
    let service = Service::start(parts)
        .await
        .map_err(|error| error.to_string())?;
    Ok(ServedService {
        service,
        brokers: brokers.into_values().collect(),
        settings: Mutex::new(settings.clone()),
    })
}

/// Stores of objects. Nothing is connected yet.
fn objects(service: &ServiceSettings) -> Result<Vec<Arc<dyn ObjectStore>>, String> {
    let stores = service.object_stores.iter().map(|store| {
        let settings = S3Settings::new(&*store.url, &*store.user, &*store.password);
        let made = S3Store::new(settings).map_err(|problem| format!("object_stores: {problem}"))?;
        Ok(Arc::new(made) as Arc<dyn ObjectStore>)
    });
    stores.collect()
}
