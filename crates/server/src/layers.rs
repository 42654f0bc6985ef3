//! The configuration while the program runs: what was read at the start or at the last reload, and above
//! it what the admin API has changed, which is kept in `data_dir/runtime.toml`.

mod overrides;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use mainstay_config::{
    Configuration, Format, Input, KeyRole, KeySettings, LoadOptions, Loaded, Origin, Problem,
    ServerSettings, Tree,
};
use parking_lot::Mutex;

pub(crate) use overrides::{Overrides, replace};

/// The file that keeps changes, in the data folder.
const RUNTIME_FILE: &str = "runtime.toml";

/// Why a configuration cannot be used; the former one stays.
#[derive(Debug)]
pub(crate) enum LayersError {
    /// It has problems.
    Problems(Vec<Problem>),
    /// The file of changes cannot be read or written.
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// All layers and what they come to.
pub(crate) struct Layers {
    path: PathBuf,
    inputs: Vec<Input>,
    state: Mutex<State>,
    configuration: ArcSwap<Configuration>,
    server: ArcSwap<ServerSettings>,
    changing: Arc<AtomicBool>,
}

#[derive(Clone)]
struct State {
    /// With the texts of files as they were read last, so that a change by the API does not take over
    /// half of an edit.
    options: LoadOptions,
    overrides: Overrides,
}

/// The right to make the one change at a time.
pub(crate) struct Changing(Arc<AtomicBool>);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A configuration that is checked and not in force yet.
pub(crate) struct Candidate {
    pub(crate) configuration: Configuration,
    pub(crate) warnings: Vec<Problem>,
    state: State,
}

impl Layers {
    /// Reads everything.
    pub(crate) async fn load(options: LoadOptions) -> Result<(Self, Vec<Problem>), LayersError> {
        let inputs = options.files.clone();
        let options = on_disk(move || read_texts(options)).await?;
        // The data folder is part of what is read, and holds what is laid above it.
        let first = check(options.clone(), None).await?;
        let path = first.configuration.server.data_dir.join(RUNTIME_FILE);
        let from = path.clone();
        let overrides = on_disk(move || Overrides::read(&from)).await?;
        let loaded = match overrides.is_empty() {
            true => first,
            false => check(options.clone(), Some(overrides.tree(&path)?)).await?,
        };
        let layers = Layers {
            path,
            inputs,
            state: Mutex::new(State { options, overrides }),
            server: ArcSwap::from_pointee(loaded.configuration.server.clone()),
            configuration: ArcSwap::from_pointee(loaded.configuration),
            changing: Arc::default(),
        };
        Ok((layers, loaded.warnings))
    }

    /// In plain HTTP, and for the holder of one key that may read and write, whatever the files say. They are
    /// not read again: that is for administrators.
    pub(crate) fn private_to(self, sha256: [u8; 32]) -> Self {
        let mut configuration = Configuration::clone(&self.configuration());
        let only = KeySettings {
            sha256,
            role: KeyRole::Write,
            sources: vec!["*".to_owned()],
            rate: None,
        };
        configuration.server.tls = None;
        configuration.server.keys = [("private".to_owned(), only)].into();
        self.server.store(Arc::new(configuration.server.clone()));
        self.configuration.store(Arc::new(configuration));
        self
    }

    /// What is in force.
    pub(crate) fn configuration(&self) -> Arc<Configuration> {
        self.configuration.load_full()
    }

    /// The settings of the program itself.
    pub(crate) fn server_settings(&self) -> Arc<ServerSettings> {
        self.server.load_full()
    }

    /// The changes that are laid above the files.
    pub(crate) fn overrides(&self) -> Overrides {
        self.state.lock().overrides.clone()
    }

    /// Begins a change; `None` while another one is under way.
    pub(crate) fn begin_change(&self) -> Option<Changing> {
        let begun = self.changing.swap(true, Ordering::AcqRel);
        (!begun).then(|| Changing(Arc::clone(&self.changing)))
    }

    /// What would be in force with other changes above the same files.
    pub(crate) async fn with_overrides(
        &self,
        overrides: Overrides,
    ) -> Result<Candidate, LayersError> {
        let options = self.state.lock().options.clone();
        self.candidate(State { options, overrides }).await
    }

    /// What would be in force if the files were read again.
    pub(crate) async fn reread(&self) -> Result<Candidate, LayersError> {
        let mut state = self.state.lock().clone();
        state.options.files = self.inputs.clone();
        let options = state.options;
        state.options = on_disk(move || read_texts(options)).await?;
        self.candidate(state).await
    }

    async fn candidate(&self, state: State) -> Result<Candidate, LayersError> {
        let tree = match state.overrides.is_empty() {
            true => None,
            false => Some(state.overrides.tree(&self.path)?),
        };
        let Loaded {
            configuration,
            warnings,
        } = check(state.options.clone(), tree).await?;
        Ok(Candidate {
            configuration,
            warnings,
            state,
        })
    }

    /// Keeps the changes on disk, then puts the candidate in force. On an error nothing has changed.
    pub(crate) async fn commit(&self, candidate: Candidate) -> Result<(), LayersError> {
        let Candidate {
            configuration,
            state,
            ..
        } = candidate;
        if state.overrides != self.overrides() {
            let (path, overrides) = (self.path.clone(), state.overrides.clone());
            on_disk(move || overrides.write(&path)).await?;
        }
        *self.state.lock() = state;
        self.server.store(Arc::new(configuration.server.clone()));
        self.configuration.store(Arc::new(configuration));
        Ok(())
    }
}

/// Reading and checking may touch files that hold secrets.
async fn check(mut options: LoadOptions, runtime: Option<Tree>) -> Result<Loaded, LayersError> {
    options.runtime = runtime;
    on_disk(move || Configuration::load(options).map_err(LayersError::Problems)).await
}

/// Runs work that blocks on the disk.
async fn on_disk<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, LayersError> + Send + 'static,
) -> Result<T, LayersError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(LayersError::File {
            path: PathBuf::new(),
            source: std::io::Error::other(error),
        }),
    }
}

/// The same options with the texts of files in their place. One that cannot be read stays, so that
/// loading tells its problem.
fn read_texts(mut options: LoadOptions) -> Result<LoadOptions, LayersError> {
    for input in &mut options.files {
        if let Input::File(path) = input
            && let Ok(text) = std::fs::read_to_string(&*path)
        {
            *input = Input::Text {
                name: path.display().to_string(),
                text,
            };
        }
    }
    Ok(options)
}

impl Overrides {
    /// As a layer whose problems name lines of the file.
    fn tree(&self, path: &std::path::Path) -> Result<Tree, LayersError> {
        let origin = Origin::Runtime(path.display().to_string().into());
        Tree::parse(origin, Format::Toml, &self.text()).map_err(LayersError::Problems)
    }
}
