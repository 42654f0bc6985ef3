//! From files, environment, flags and changes at run time to one checked [`Configuration`].

mod files;
mod layers;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use files::missing_files;
pub(crate) use walk::TABLES_LATER;

use crate::connection::Held;
use crate::environment::Flag;
use crate::policy::PolicyLayer;
use crate::problem::{Findings, Problem, Wrong};
use crate::secret::{ProcessSecrets, SecretReader};
use crate::server::ServerSettings;
use crate::service::{ProxiedService, ServiceDraft, ServiceParts};
use crate::source::{Address, Parts, Shared, SourceDraft, SourceSettings};
use crate::tls::TlsMarks;
use crate::tree::Tree;

/// Everything that the program is told, complete and checked. Two are equal if the same is in
/// effect, wherever it was written.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The program itself.
    pub server: ServerSettings,
    /// Databases by id.
    pub sources: BTreeMap<String, SourceSettings>,
    services: BTreeMap<String, ProxiedService>,
    written: Written,
}

/// What the layers said, for `explain`.
#[derive(Debug, Clone)]
struct Written {
    shared: Shared,
    sources: Vec<SourceDraft>,
    /// `[message.policy]`.
    message: PolicyLayer,
    services: Vec<ServiceDraft>,
    /// Where `[server.tls]` stands.
    tls: Option<TlsMarks>,
}

impl PartialEq for Configuration {
    fn eq(&self, other: &Self) -> bool {
        self.server == other.server
            && self.sources == other.sources
            && self.services == other.services
    }
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file to read; the extension tells the format.
    File(PathBuf),
    /// A text that is already read; the extension of its name tells the format.
    Text {
        /// What problems call it.
        name: String,
        /// What it says.
        text: String,
    },
}

impl From<PathBuf> for Input {
    fn from(path: PathBuf) -> Self {
        Input::File(path)
    }
}

/// What a configuration is made of, weakest first: files, environment, flags, runtime.
#[derive(Clone)]
pub struct LoadOptions {
    /// Later ones win, key by key. None: the embedded source `demo`.
    pub files: Vec<Input>,
    /// Variables; those that are not configuration are passed over.
    pub environment: Vec<(String, String)>,
    /// Flags of the command line that stand for keys.
    pub flags: Vec<Flag>,
    /// Changes by the admin API, parsed with [`Origin::Runtime`](crate::Origin::Runtime).
    pub runtime: Option<Tree>,
    /// Where referenced secrets are kept.
    pub secrets: Arc<dyn SecretReader>,
}

impl Default for LoadOptions {
    /// No file, no environment, the secrets of this process.
    fn default() -> Self {
        LoadOptions {
            files: Vec::new(),
            environment: Vec::new(),
            flags: Vec::new(),
            runtime: None,
            secrets: Arc::new(ProcessSecrets),
        }
    }
}

/// Variables may hold secrets: only their names are shown.
impl fmt::Debug for LoadOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self
            .environment
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        f.debug_struct("LoadOptions")
            .field("files", &self.files.len())
            .field("environment", &names)
            .field("flags", &self.flags.len())
            .field("runtime", &self.runtime.is_some())
            .field("secrets", &self.secrets)
            .finish()
    }
}

/// A configuration that can be used, and what somebody should look at.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// The settings.
    pub configuration: Configuration,
    /// Problems that do not stand in the way, by file and line.
    pub warnings: Vec<Problem>,
}

impl Configuration {
    /// Reads and checks everything. Errors: all problems at once, errors and warnings, by file and
    /// line. Reading files blocks.
    pub fn load(options: LoadOptions) -> Result<Loaded, Vec<Problem>> {
        let mut findings = Findings::default();
        let Some(tree) = layers::merged(&options, &mut findings) else {
            return Err(findings.into_sorted());
        };
        let configuration = walk::walk(
            &tree,
            &layers::place(&options),
            &options.secrets,
            &mut findings,
        );
        let problems = findings.into_sorted();
        if problems.iter().any(Problem::is_error) {
            return Err(problems);
        }
        Ok(Loaded {
            configuration,
            warnings: problems,
        })
    }

    /// What the program does without a file: the embedded source `demo` in that folder.
    pub fn embedded(data_dir: impl Into<PathBuf>) -> Configuration {
        let loaded = Configuration::load(LoadOptions::default());
        let mut configuration = loaded
            .expect("the embedded configuration is part of the program and tested")
            .configuration;
        configuration.server.data_dir = data_dir.into();
        let path = configuration.server.data_dir.join(layers::EMBEDDED_FILE);
        for source in configuration.sources.values_mut() {
            for endpoint in source.endpoints.values_mut() {
                endpoint.address = Address::File(path.clone());
            }
        }
        for draft in &mut configuration.written.sources {
            if let Some(given) = draft.connection.values.get_mut("path") {
                given.value = Held::Text(path.display().to_string());
            }
        }
        configuration
    }

    /// Message services that are proxied, by id.
    pub fn services(&self) -> &BTreeMap<String, ProxiedService> {
        &self.services
    }

    /// What the layers said about a service.
    pub(crate) fn service_parts(&self, service: &str) -> Option<ServiceParts<'_>> {
        let mut drafts = self.written.services.iter();
        let draft = drafts.find(|draft| draft.id == service)?;
        let shared = [&self.written.shared.policies[0], &self.written.message];
        Some(ServiceParts::new(shared, draft))
    }

    /// A problem with a broker that only connecting to it shows, such as a refused login, at the place
    /// where the configuration says how to connect. `None`: there is no such service or broker.
    pub fn broker_problem(
        &self,
        service: &str,
        broker: &str,
        message: String,
        hint: &str,
    ) -> Option<Problem> {
        let mut drafts = self.written.services.iter();
        let draft = drafts.find(|draft| draft.id == service)?;
        draft.broker_problem(broker, Wrong::new(message).hint(hint))
    }

    /// Where `[server.tls]` was written.
    pub(crate) fn written_tls(&self) -> Option<&TlsMarks> {
        self.written.tls.as_ref()
    }

    /// What the layers said about a source.
    pub(crate) fn parts(&self, source: &str) -> Option<Parts<'_>> {
        let mut drafts = self.written.sources.iter();
        let draft = drafts.find(|draft| draft.id == source)?;
        Some(Parts::new(&self.written.shared, draft))
    }
}

/// Everything wrong with a configuration, errors and warnings, by file and line; nothing if all is
/// well.
pub fn check(options: LoadOptions) -> Vec<Problem> {
    match Configuration::load(options) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    }
}
