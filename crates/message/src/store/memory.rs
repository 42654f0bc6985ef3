//! A store that ends with the process: for the library where no folder is given, and for tests.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use mainstay_engine::BoxFuture;
use parking_lot::Mutex;
use smol_str::SmolStr;

use super::{Change, FINISHED_MAX, Found, JobStore, StoreError, Unfinished};

/// Keeps requests in memory: a restart of the process forgets them. Copies share everything.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore {
    services: Arc<Mutex<HashMap<String, Kept>>>,
}

#[derive(Debug, Default)]
struct Kept {
    next: u64,
    places: HashMap<SmolStr, u64>,
    unfinished: BTreeMap<u64, Unfinished>,
    finished: VecDeque<SmolStr>,
}

impl MemoryStore {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Kept {
    fn make(&mut self, change: Change) {
        match change {
            Change::Accept {
                id,
                record,
                request,
            } => {
                if let Some(former) = self.places.insert(id.clone(), self.next) {
                    self.unfinished.remove(&former);
                }
                let unfinished = Unfinished {
                    id,
                    record,
                    request,
                    reply: None,
                };
                self.unfinished.insert(self.next, unfinished);
                self.next += 1;
            }
            Change::Update { id, record } => {
                if let Some(known) = self.known(&id) {
                    known.record = record;
                }
            }
            Change::Reply { id, reply } => {
                if let Some(known) = self.known(&id) {
                    known.reply = Some(reply);
                }
            }
            Change::Finish { id } => {
                if let Some(place) = self.places.remove(&id) {
                    self.unfinished.remove(&place);
                }
                self.finished.push_back(id);
                if self.finished.len() > FINISHED_MAX {
                    self.finished.pop_front();
                }
            }
        }
    }

    fn known(&mut self, id: &SmolStr) -> Option<&mut Unfinished> {
        let place = self.places.get(id)?;
        self.unfinished.get_mut(place)
    }
}

impl JobStore for MemoryStore {
    fn write(
        &self,
        service: &str,
        changes: Vec<Change>,
        _durable: bool,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        let mut services = self.services.lock();
        let kept = services.entry(service.to_owned()).or_default();
        changes.into_iter().for_each(|change| kept.make(change));
        Box::pin(std::future::ready(Ok(())))
    }

    fn found(&self, service: &str) -> BoxFuture<'_, Result<Found, StoreError>> {
        let services = self.services.lock();
        let found = services.get(service).map(|kept| Found {
            unfinished: kept.unfinished.values().cloned().collect(),
            finished: kept.finished.iter().cloned().collect(),
        });
        Box::pin(std::future::ready(Ok(found.unwrap_or_default())))
    }

    fn is_lasting(&self) -> bool {
        false
    }
}
