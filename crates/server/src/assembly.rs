//! From a configuration to running sources. Nothing behind them needs to be reachable: a source starts
//! with all its back ends down, says so, and recovers by itself.

mod brokers;
mod drivers;
mod folder;
mod served;
mod services;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use mainstay_config::{Configuration, SourceSettings};
use mainstay_engine::audit::{FileSink, Sink};
use mainstay_engine::event::EventKind;
use mainstay_engine::policy::AuditSink;
use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Chance, Policy};
use mainstay_message::Service;
use mainstay_sql::{Database, SqlError};
use parking_lot::Mutex;

pub use brokers::check_brokers;
pub(crate) use served::Plan;
pub use served::Served;
pub use services::{ServedService, Services};

/// Why sources could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AssemblyError {
    /// The folder for the program's files cannot be used.
    #[error("data_dir {} cannot be used: {source}; check the path and its permissions, or set server.data_dir", path.display())]
    DataDir {
        /// The folder.
        path: PathBuf,
        /// What the operating system says.
        source: std::io::Error,
    },
    /// The sample database could not be made.
    #[error("the sample database could not be made: {0}")]
    Sample(#[from] mainstay_sqlite::SampleError),
    /// A driver option that does not exist or does not fit.
    #[error("sources.{name}.endpoints.{endpoint}: {message}")]
    Endpoint {
        /// The source.
        name: String,
        /// The endpoint.
        endpoint: String,
        /// What is wrong and what would be right.
        message: String,
    },
    /// The store of jobs cannot be opened.
    #[error(transparent)]
    Jobs(#[from] mainstay_journal::JournalError),
    /// A message service was refused.
    #[error("services.{name}: {message}")]
    Service {
        /// The service.
        name: String,
        /// Why.
        message: String,
    },
    /// The source was refused as a whole.
    #[error("sources.{name}: {problem}")]
    Source {
        /// The source.
        name: String,
        /// Why.
        problem: SqlError,
    },
}

/// What sources are made with: a group for their background work, randomness, the folder for files.
/// Cheap to copy.
#[derive(Clone)]
pub struct Assembly {
    tasks: Tasks,
    chance: Chance,
    audit: Arc<AuditTrail>,
}

impl Assembly {
    /// Makes every source of a configuration. Must be called inside a runtime. Touches the disk: makes
    /// the data folder and, for the embedded source, its sample database; blocks for some tens of
    /// milliseconds the first time.
    ///
    /// # Errors
    /// The first thing that cannot work: a folder that cannot be written, an unknown driver option.
    /// Back ends that cannot be reached are no error.
    pub fn build(
        configuration: &Configuration,
        tasks: &Tasks,
        chance: &Chance,
    ) -> Result<Sources, AssemblyError> {
        folder::prepare(configuration)?;
        let assembly = Assembly {
            tasks: tasks.clone(),
            chance: chance.clone(),
            audit: Arc::new(AuditTrail::new(configuration, tasks)),
        };
        let mut sources = Sources {
            assembly,
            by_name: BTreeMap::new(),
        };
        for (name, settings) in &configuration.sources {
            let served = sources.assembly.source(name, settings)?;
            sources.by_name.insert(name.clone(), served);
        }
        Ok(sources)
    }

    /// Whether a start makes that database file if it is missing: the sample.
    pub fn makes(configuration: &Configuration, file: &Path) -> bool {
        folder::sample(configuration) == file
    }

    /// Makes one source and starts its prober.
    pub(crate) fn source(
        &self,
        name: &str,
        settings: &SourceSettings,
    ) -> Result<Arc<Served>, AssemblyError> {
        let served = Arc::new(Served::build(name, settings, &self.tasks, &self.chance)?);
        self.audit.attach(&served, &settings.policy);
        Ok(served)
    }

    /// Sends a source's audit entries where its policy says.
    pub(crate) fn attach_audit(&self, served: &Arc<Served>, policy: &Policy) {
        self.audit.attach(served, policy);
    }
}

/// The audit files, which all sources share. Opened when the first source wants them.
struct AuditTrail {
    folder: PathBuf,
    tasks: Tasks,
    sink: Mutex<Option<FileSink>>,
    /// Who is told when the files cannot be written.
    told: Arc<Mutex<Vec<Weak<Served>>>>,
}

impl AuditTrail {
    fn new(configuration: &Configuration, tasks: &Tasks) -> Self {
        AuditTrail {
            folder: configuration.server.data_dir.join("audit"),
            tasks: tasks.clone(),
            sink: Mutex::new(None),
            told: Arc::default(),
        }
    }

    fn attach(&self, served: &Arc<Served>, policy: &Policy) {
        let source = served.proxy().source();
        source.recent_audit().resize(policy.audit.recent_max);
        if policy.audit.recent_max > 0 {
            source.keep_recent_audit();
        }
        let sink = match policy.audit.sink {
            AuditSink::None => None,
            AuditSink::File => {
                let mut told = self.told.lock();
                told.retain(|known| known.strong_count() > 0);
                told.push(Arc::downgrade(served));
                drop(told);
                Some(Arc::new(self.open()) as Arc<dyn Sink>)
            }
        };
        // The files stay open for the other sources.
        drop(source.set_audit_sink(sink));
    }

    /// The same for a message service, whose policy stays as long as it runs.
    fn attach_service(&self, service: &Service) {
        let source = service.source();
        let audit = &service.settings().policy.audit;
        source.recent_audit().resize(audit.recent_max);
        if audit.recent_max > 0 {
            source.keep_recent_audit();
        }
        if audit.sink == AuditSink::File {
            drop(source.set_audit_sink(Some(Arc::new(self.open()) as Arc<dyn Sink>)));
        }
    }

    fn open(&self) -> FileSink {
        let told = Arc::clone(&self.told);
        let mut sink = self.sink.lock();
        let report = move |problem: &mainstay_engine::audit::FileProblem| {
            tracing::warn!(%problem, "audit trail");
            let known: Vec<_> = told.lock().iter().filter_map(Weak::upgrade).collect();
            for served in known {
                let message = problem.to_string();
                served
                    .proxy()
                    .source()
                    .publish(EventKind::AuditProblem { message });
            }
        };
        let open = || FileSink::open_reporting(&self.folder, &self.tasks, report);
        sink.get_or_insert_with(open).clone()
    }

    fn current(&self) -> Option<FileSink> {
        self.sink.lock().clone()
    }
}

/// Running sources by name.
#[derive(Clone)]
pub struct Sources {
    assembly: Assembly,
    by_name: BTreeMap<String, Arc<Served>>,
}

impl Sources {
    /// The source of that name.
    pub fn get(&self, name: &str) -> Option<&Arc<Served>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.by_name.values()
    }

    /// What further sources are made with.
    pub(crate) fn assembly(&self) -> &Assembly {
        &self.assembly
    }

    /// The same with one source added, exchanged or, with `None`, taken out.
    pub(crate) fn with(&self, name: &str, served: Option<Arc<Served>>) -> Self {
        let mut sources = self.clone();
        match served {
            Some(served) => sources.by_name.insert(name.to_owned(), served),
            None => sources.by_name.remove(name),
        };
        sources
    }

    /// The audit files, if a source writes any.
    pub(crate) fn audit_files(&self) -> Option<FileSink> {
        self.assembly.audit.current()
    }

    /// Lets work in flight end, closes every connection and writes the audit trail out, all within about
    /// `limit` and the 6 s that a slow disk is given. Returns whether everything ended by itself.
    pub async fn close(&self, limit: Duration) -> bool {
        let closing = self.iter().map(|served| served.proxy().close(limit));
        futures_util::future::join_all(closing).await;
        let drained = self.iter().all(|served| served.in_flight() == 0);
        let written = match self.audit_files() {
            Some(files) => files.close().await,
            None => true,
        };
        drained && written
    }
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}
