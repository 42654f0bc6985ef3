//! Where RabbitMQ's modules are, as whom it runs, and the data that every private broker begins with.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tokio::time::Instant;

use crate::account::{Account, on_path, run};
use crate::folder::Folder;
use crate::port::PortLease;
use crate::process;
use crate::supervisor::Supervisor;

use super::PATIENCE;
use super::options::RabbitmqOptions;

const INSTALL: &str = "install RabbitMQ 3.10 or later (Debian: apt-get install rabbitmq-server)";

/// Raised when the way the template is made changes, so that an older one is not taken.
const REVISION: u32 = 1;

/// The same for all: the data folder belongs to a node's name, and no two private brokers ever meet.
const NODE: &str = "mainstay@localhost";

/// The folder of the template with the applications that a broker needs.
const LIBRARIES: &str = "libraries";

/// What the broker writes when the template can be stopped.
const READY: &str = "started TCP listener";

/// The virtual machine as small and as quick to start as it gets: one scheduler of each kind, none that spins. It
/// neither starts nor asks an epmd, the machine's own included.
const ARGUMENTS: &str = "-noinput -s rabbit boot -boot start_sasl +W w +S 1:1 +SDcpu 1:1 +SDio 1 +A 1 \
     +sbwt none +sbwtdcpu none +sbwtdio none -syslog logger [] -syslog syslog_error_logger false \
     -kernel prevent_overlapping_partitions false -kernel inet_dist_use_interface {127,0,0,1} \
     -start_epmd false -setcookie private";

/// RabbitMQ on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    plugins: PathBuf,
    version: String,
    account: Account,
}

impl Installation {
    /// Finds the installed RabbitMQ.
    pub(crate) fn find() -> Result<Self> {
        let plugins = plugins().with_context(|| format!("found no RabbitMQ: {INSTALL}"))?;
        on_path("erl").with_context(|| format!("found no `erl` on the path: {INSTALL}"))?;
        let version = named(&plugins, "rabbit-")?;
        Ok(Self {
            plugins,
            version,
            account: Account::find(&["rabbitmq", "nobody"], INSTALL)?,
        })
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    /// The program of a broker with its data in this folder.
    pub(crate) fn program(&self, base: &Path, folder: &Path, node_port: u16) -> Vec<OsString> {
        program(&self.template_path(base).join(LIBRARIES), folder, node_port)
    }

    /// Writes a file into a broker's folder.
    pub(crate) fn write(&self, folder: &Path, name: &str, text: &str) -> Result<()> {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        self.account.own(&path)
    }

    /// Copies the template, which is made if it is not there yet, into a new broker's folder. Blocks; safe against
    /// other processes.
    pub(crate) fn copy_template(&self, base: &Path, folder: &Path) -> Result<()> {
        let template = self.template(base)?;
        self.write(folder, "env.conf", "")?;
        self.write(folder, "plugins", "[].\n")?;
        run(self
            .account
            .command("cp")
            .arg("-Rp")
            .arg(template.join("data"))
            .arg(folder))
    }

    fn template_path(&self, base: &Path) -> PathBuf {
        base.join(format!("rabbitmq-template-{}-{REVISION}", self.version))
    }

    fn template(&self, base: &Path) -> Result<PathBuf> {
        let ready = self.template_path(base);
        if ready.is_dir() {
            return Ok(ready);
        }
        let lock = File::create(base.join("rabbitmq-template.lock"))?;
        lock.lock().context("cannot lock the template")?;
        if ready.is_dir() {
            return Ok(ready);
        }
        let template = Folder::make(base, "rabbitmq-building-")?;
        self.account.own(template.path())?;
        self.link_libraries(&template.path().join(LIBRARIES))?;
        self.make_data(base, template.path())?;
        // Only a whole template ever gets the name: a killed build leaves nothing that looks ready.
        let whole = base.join(format!("rabbitmq-whole-{}", std::process::id()));
        std::fs::create_dir(&whole)?;
        for part in [LIBRARIES, "data"] {
            std::fs::rename(template.path().join(part), whole.join(part))?;
        }
        std::fs::rename(&whole, &ready)?;
        Ok(ready)
    }

    /// A folder with the broker's own applications and none of its plugins: each module is looked for in every one,
    /// which takes a third of the time of a start.
    fn link_libraries(&self, libraries: &Path) -> Result<()> {
        std::fs::create_dir(libraries)?;
        for entry in std::fs::read_dir(&self.plugins)? {
            let name = entry?.file_name();
            let text = name.to_string_lossy();
            if !text.starts_with("rabbitmq_") || text.starts_with("rabbitmq_prelaunch") {
                std::os::unix::fs::symlink(self.plugins.join(&name), libraries.join(&name))?;
            }
        }
        Ok(())
    }

    /// Lets a broker make its tables and its user, and stops it.
    #[allow(
        clippy::disallowed_methods,
        reason = "the template is made once on a machine, where nothing can be awaited"
    )]
    fn make_data(&self, base: &Path, folder: &Path) -> Result<()> {
        let (port, node_port) = (PortLease::take()?, PortLease::take()?);
        let configuration = RabbitmqOptions::new().configuration(port.port(), folder);
        self.write(folder, "rabbitmq.conf", &configuration)?;
        self.write(folder, "env.conf", "")?;
        self.write(folder, "plugins", "[].\n")?;
        let program = program(&folder.join(LIBRARIES), folder, node_port.port());
        let supervised = Folder::make(base, "rabbitmq-maker-")?;
        self.account.own(supervised.path())?;
        let mut supervisor = Supervisor::start(self.account, supervised.path(), "KILL", &program)?;
        let pid = supervisor.launch()?;
        let (end, mut asked) = (Instant::now() + PATIENCE, false);
        while process::running(pid) {
            let log = std::fs::read_to_string(supervised.path().join("log")).unwrap_or_default();
            if Instant::now() > end {
                bail!("the template was not made within {PATIENCE:?}\n{log}");
            }
            if !asked && log.contains(READY) {
                process::signal(pid, Signal::SIGTERM);
                asked = true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        supervisor.reap()?;
        if !asked {
            let log = std::fs::read_to_string(supervised.path().join("log")).unwrap_or_default();
            bail!("the broker that makes the template ended by itself\n{log}");
        }
        Ok(())
    }
}

/// A broker's program. `env` sets what the broker's own script would, without the machine's configuration.
fn program(libraries: &Path, folder: &Path, node_port: u16) -> Vec<OsString> {
    let inside = |name: &str, file: &str| {
        let mut word = OsString::from(format!("{name}="));
        word.push(folder.join(file));
        word
    };
    let mut libraries_word = OsString::from("ERL_LIBS=");
    libraries_word.push(libraries);
    let mut program: Vec<OsString> = vec![
        "env".into(),
        libraries_word,
        "ERL_CRASH_DUMP_BYTES=0".into(),
        "ERL_MAX_ETS_TABLES=50000".into(),
        "ERL_MAX_PORTS=4096".into(),
        format!("RABBITMQ_NODENAME={NODE}").into(),
        "RABBITMQ_LOGS=-".into(),
        inside("HOME", ""),
        inside("RABBITMQ_CONF_ENV_FILE", "env.conf"),
        inside("RABBITMQ_MNESIA_BASE", "data"),
        inside("RABBITMQ_LOG_BASE", "logs"),
        inside("RABBITMQ_CONFIG_FILE", "rabbitmq"),
        inside("RABBITMQ_ADVANCED_CONFIG_FILE", "advanced"),
        inside("RABBITMQ_GENERATED_CONFIG_DIR", "generated"),
        inside("RABBITMQ_ENABLED_PLUGINS_FILE", "plugins"),
        "erl".into(),
    ];
    program.extend(ARGUMENTS.split_whitespace().map(OsString::from));
    // The port that the node itself listens at, which others would ask epmd for.
    program.extend(["-sname", NODE, "-erl_epmd_port"].map(OsString::from));
    program.push(node_port.to_string().into());
    program
}

/// The folder with the broker's applications: beside the program, or where Debian puts it.
fn plugins() -> Option<PathBuf> {
    let beside = on_path("rabbitmq-server")
        .and_then(|folder| folder.join("rabbitmq-server").canonicalize().ok())
        .and_then(|program| Some(program.parent()?.parent()?.to_owned()));
    let homes = beside.into_iter().chain([
        PathBuf::from("/usr/lib/rabbitmq"),
        PathBuf::from("/opt/rabbitmq"),
    ]);
    homes.into_iter().find_map(|home| {
        let versions = std::fs::read_dir(home.join("lib"))
            .into_iter()
            .flatten()
            .flatten();
        let mut folders = versions.map(|entry| entry.path().join("plugins"));
        let own = home.join("plugins");
        folders
            .find(|folder| named(folder, "rabbit-").is_ok())
            .or_else(|| named(&own, "rabbit-").is_ok().then_some(own))
    })
}

/// What follows `prefix` in the name of a folder's first entry that begins so.
fn named(folder: &Path, prefix: &str) -> Result<String> {
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(prefix)) {
            return Ok(rest.to_owned());
        }
    }
    bail!("nothing in {} begins with {prefix}", folder.display())
}
