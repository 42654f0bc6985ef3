//! From files, environment, flags and changes at run time to one checked [`Configuration`].

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::connection::{ConnectionLayer, Held, Reading};
use crate::environment::{self, Flag};
use crate::mark::{Mark, Origin};
use crate::policy::{Layered, PolicyLayer};
use crate::problem::{Findings, Problem, Wrong};
use crate::secret::{ProcessSecrets, SecretReader};
use crate::server::ServerSettings;
use crate::source::{Address, Parts, Shared, SourceDraft, SourceSettings, assemble, table};
use crate::tree::{self, Entry, Format, Node, Tree, Value, join};

/// More sources than this in one process are a mistake.
const SOURCES_MAX: usize = 1000;

/// Everything that the program is told, complete and checked. Two are equal if the same is in
/// effect, wherever it was written.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// The program itself.
    pub server: ServerSettings,
    /// Databases by id.
    pub sources: BTreeMap<String, SourceSettings>,
    written: Written,
}

/// What the layers said, for `explain`.
#[derive(Debug, Clone)]
struct Written {
    shared: Shared,
    sources: Vec<SourceDraft>,
}

impl PartialEq for Configuration {
    fn eq(&self, other: &Self) -> bool {
        self.server == other.server && self.sources == other.sources
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
    /// Changes by the admin API, parsed with [`Origin::Runtime`].
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

/// The embedded source: one file in the data folder, one endpoint that writes and two that read.
const EMBEDDED: &str = r#"
[sources.demo]
driver = "sqlite"
[sources.demo.endpoints.writer]
role = "primary"
[sources.demo.endpoints.reader_1]
role = "replica"
[sources.demo.endpoints.reader_2]
role = "replica"
"#;

/// The file of the embedded source, in the data folder.
const EMBEDDED_FILE: &str = "demo.db";

impl Configuration {
    /// Reads and checks everything. Errors: all problems at once, errors and warnings, by file and
    /// line. Reading files blocks.
    pub fn load(options: LoadOptions) -> Result<Loaded, Vec<Problem>> {
        let mut findings = Findings::default();
        let Some(tree) = merged(&options, &mut findings) else {
            return Err(findings.into_sorted());
        };
        let configuration = walk(&tree, &options.secrets, &mut findings);
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
        let path = configuration.server.data_dir.join(EMBEDDED_FILE);
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

/// All layers as one tree; `None` if a text could not be read.
fn merged(options: &LoadOptions, findings: &mut Findings) -> Option<Tree> {
    let mut merged = Tree::default();
    let mut broken = false;
    for input in &options.files {
        let parsed = match input {
            Input::File(path) => read(path),
            Input::Text { name, text } => parse(Path::new(name), text),
        };
        findings.extend(parsed.problems);
        match parsed.tree {
            Some(tree) => merged.merge(tree),
            None => broken = true,
        }
    }
    environment::overlay(&mut merged, options.environment.iter().cloned(), findings);
    environment::flags(&mut merged, options.flags.clone(), findings);
    if let Some(runtime) = &options.runtime {
        merged.merge(runtime.clone());
    }
    if options.files.is_empty() {
        let mut tree = embedded(&merged);
        tree.merge(merged);
        merged = tree;
    }
    (!broken).then_some(merged)
}

fn read(path: &Path) -> tree::Parsed {
    match read_bounded(path) {
        Ok(text) => parse(path, &text),
        Err(error) => {
            let mark = Mark::whole(Origin::file(path.display().to_string()));
            let wrong = Wrong::new(format!("cannot be read: {error}"));
            let wrong = match error.kind() {
                std::io::ErrorKind::InvalidData => wrong.hint("write it as UTF-8"),
                _ => wrong.hint("check the path and its permissions"),
            };
            tree::Parsed::failed(Problem::error(&mark, "", wrong))
        }
    }
}

/// The text, or as much of it as shows that it is too long.
fn read_bounded(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path)?;
    file.take(tree::TEXT_MAX as u64 + 1)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> tree::Parsed {
    let origin = Origin::file(path.display().to_string());
    match Format::of(path) {
        Some(format) => tree::parse(origin, format, text),
        None => {
            let wrong = Wrong::new("the extension tells no format")
                .hint("name it .toml, .yaml, .yml or .json");
            tree::Parsed::failed(Problem::error(&Mark::whole(origin), "", wrong))
        }
    }
}

/// The tree of the embedded source, with its file in the data folder that the other layers name.
fn embedded(above: &Tree) -> Tree {
    let mut tree = tree::parse(Origin::BuiltIn, Format::Toml, EMBEDDED)
        .tree
        .unwrap_or_default();
    let mut ignored = Findings::default();
    let server = match above.root.get("server").map(|entry| &entry.node.value) {
        Some(Value::Table(table)) => ServerSettings::read(table, &mut ignored),
        _ => ServerSettings::default(),
    };
    let mark = Mark::whole(Origin::BuiltIn);
    let path = server.data_dir.join(EMBEDDED_FILE);
    let entry = Entry {
        mark: mark.clone(),
        node: Node {
            value: Value::Text(path.display().to_string()),
            mark: mark.clone(),
        },
    };
    let sources = tree.root.table_mut("sources", &mark);
    if let Some(demo) = sources.and_then(|sources| sources.table_mut("demo", &mark)) {
        // The text above names no path.
        let _ = demo.insert("path".to_owned(), entry);
    }
    tree
}

/// Tables at the top.
const TABLES: &[&str] = &["server", "policy", "connection", "data", "sources"];

/// Tables of later versions.
const TABLES_LATER: &[&str] = &["shard_sets", "contexts", "services", "search", "message"];

/// Stage two: the whole tree once, with everything that is wrong noted on the way.
fn walk(tree: &Tree, secrets: &Arc<dyn SecretReader>, findings: &mut Findings) -> Configuration {
    let mut server = ServerSettings::default();
    let mut shared = Shared {
        policies: vec![
            PolicyLayer::empty("policy"),
            PolicyLayer::empty("data.policy"),
        ],
        connections: vec![
            ConnectionLayer::empty("connection"),
            ConnectionLayer::empty("data.connection"),
        ],
    };
    let mut drafts = Vec::new();
    for (name, entry) in tree.root.iter() {
        let mut reading = Reading { secrets, findings };
        match name {
            "server" => {
                if let Some(table) = table(name, entry, findings) {
                    server = ServerSettings::read(table, findings);
                }
            }
            "policy" => shared.policies[0] = policy(name, entry, findings),
            "connection" => connection(name, entry, &mut shared.connections[0], &mut reading),
            "data" => data(entry, &mut shared, &mut reading),
            "sources" => drafts = sources(entry, &mut reading),
            _ if TABLES_LATER.contains(&name) => {
                findings.error(&entry.mark, name, Wrong::unavailable(name));
            }
            _ => findings.unknown(&entry.mark, name.to_owned(), name, TABLES.iter().copied()),
        }
    }
    if drafts.is_empty() {
        nothing_to_serve(tree, &shared, findings);
    }
    let mut sources = BTreeMap::new();
    for draft in &drafts {
        if let Some(settings) = assemble(&shared, draft, findings) {
            sources.insert(draft.id.clone(), settings);
        }
    }
    Configuration {
        server,
        sources,
        written: Written {
            shared,
            sources: drafts,
        },
    }
}

fn policy(path: &str, entry: &Entry, findings: &mut Findings) -> PolicyLayer {
    match table(path, entry, findings) {
        Some(table) => PolicyLayer::read(path, table, findings),
        None => PolicyLayer::empty(path),
    }
}

fn connection(path: &str, entry: &Entry, layer: &mut ConnectionLayer, reading: &mut Reading<'_>) {
    if let Some(table) = table(path, entry, reading.findings) {
        layer.read_table(path, table, reading);
    }
}

/// `[data]`: what all databases share.
fn data(entry: &Entry, shared: &mut Shared, reading: &mut Reading<'_>) {
    let Some(table) = table("data", entry, reading.findings) else {
        return;
    };
    if let Some(entry) = table.get("policy") {
        shared.policies[1] = policy("data.policy", entry, reading.findings);
    }
    for (name, entry) in table.iter() {
        let path = join("data", name);
        match name {
            "policy" => {}
            "preset" => shared.policies[1].preset(&path, entry, reading.findings),
            "connection" => connection(&path, entry, &mut shared.connections[1], reading),
            _ => {
                let known = ["policy", "connection", "preset"];
                reading.findings.unknown(&entry.mark, path, name, known);
            }
        }
    }
}

fn sources(entry: &Entry, reading: &mut Reading<'_>) -> Vec<SourceDraft> {
    let Some(table) = table("sources", entry, reading.findings) else {
        return Vec::new();
    };
    if table.iter().count() > SOURCES_MAX {
        let wrong = format!("more than {SOURCES_MAX} sources");
        reading.findings.error(&entry.mark, "sources", wrong);
        return Vec::new();
    }
    table
        .iter()
        .map(|(id, entry)| SourceDraft::read(id, entry, reading))
        .collect()
}

/// No source: nothing to do, but the shared policy is still checked.
fn nothing_to_serve(tree: &Tree, shared: &Shared, findings: &mut Findings) {
    let mark = Mark::whole(Origin::BuiltIn);
    let layers: Vec<&PolicyLayer> = shared.policies.iter().collect();
    Layered::new(&layers).policy((&mark, "policy"), findings);
    let said = tree.root.get("sources").map(|entry| &entry.node.value);
    if matches!(said, None | Some(Value::Empty | Value::Table(_))) {
        let wrong = Wrong::new("there is no source, so there is nothing to serve");
        findings.warning(&mark, "sources", wrong.hint("add [sources.orders]"));
    }
}
