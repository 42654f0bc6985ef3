//! `serve`: the server in the foreground, until a signal ends it.

#[cfg(unix)]
mod background;
mod greeting;

#[cfg(unix)]
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_config::Flag;
use mainstay_server::{Ended, Running, Server, StartError};

use tokio::time::Instant;

use crate::descriptors;
use crate::exit::Exit;
use crate::logs::{self, LogFormat};
use crate::output;
use crate::settings;
use crate::signals::{Signals, Wish};
#[cfg(unix)]
use background::{Background, notify};

/// A reload waits so long for another change to be over.
const OTHER_CHANGE_MAX: Duration = Duration::from_secs(10);
/// How often it tries.
const AGAIN: Duration = Duration::from_millis(50);
/// Files are read in less, unless something is wrong with them.
const SLOW: Duration = Duration::from_secs(10);

/// Serve sources over HTTP
///
/// Without a configuration it serves `demo`, a sample SQLite database in the data folder. Back ends that
/// are down are no reason not to start: they are used as soon as they answer. Logs go to stderr.
///
/// Ctrl-C or SIGTERM ends it in order: work in flight is finished, the audit trail is written. A second
/// one ends it at once. SIGHUP reads the configuration again, unless stdin is a terminal.
#[derive(Debug, clap::Args)]
#[group(id = "serve")]
#[command(after_help = "Examples:
  mainstay serve
  mainstay serve --listen 127.0.0.1:8080 --data-dir /tmp/mainstay
  mainstay serve --config mainstay.toml
  mainstay serve --config base.toml --config production.toml --log-format json

Any key can be given from outside: MAINSTAY_SERVER__LISTEN=127.0.0.1:8080 mainstay serve
Strongest first: flag, environment, file, default.")]
pub(crate) struct Arguments {
    /// A configuration file; may be given several times, later ones win
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Vec<PathBuf>,
    /// Where to listen: loopback, or with keys any address; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The folder for the program's files
    #[arg(long, value_name = "FOLDER")]
    pub(crate) data_dir: Option<String>,
    /// What is logged: error, warn, info, debug or trace
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "info",
        env = "MAINSTAY_LOG"
    )]
    log: String,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    log_format: LogFormat,
    /// Started by `start`: the pid file, which is stdin as well, and the log
    #[cfg(unix)]
    #[arg(long, hide = true, num_args = 2, value_names = ["PID_FILE", "LOG_FILE"])]
    background: Option<Vec<PathBuf>>,
}

#[cfg(unix)]
impl Arguments {
    /// They again, for another process.
    pub(crate) fn given(&self) -> Vec<OsString> {
        let mut given: Vec<OsString> = Vec::new();
        for file in &self.config {
            given.extend(["--config".into(), file.into()]);
        }
        let texts = [("--listen", &self.listen), ("--data-dir", &self.data_dir)];
        for (name, text) in texts {
            given.extend(text.iter().flat_map(|text| [name.into(), text.into()]));
        }
        let format = self.log_format.name();
        given.extend(["--log", &self.log, "--log-format", format].map(OsString::from));
        given
    }
}

/// Serves until a signal.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    #[cfg(unix)]
    if let Some([pid_file, log]) = arguments.background.as_deref() {
        let background = Background::enter(pid_file, log)?;
        let (told, exit) = serve(&arguments, |running| background.say(&running.url())).await?;
        output::complain(&told);
        background.end(&told, exit);
        return Ok(exit);
    }
    let (told, exit) = serve(&arguments, |_| Ok(())).await?;
    output::complain(&told);
    Ok(exit)
}

/// What it says at its end, and with what.
async fn serve(
    arguments: &Arguments,
    listening: impl FnOnce(&Running) -> anyhow::Result<()>,
) -> anyhow::Result<(String, Exit)> {
    logs::start(&arguments.log, arguments.log_format)?;
    let mut signals = Signals::of_a_service()?;
    let descriptors = descriptors::raise();
    let options = settings::options(&arguments.config, flags(arguments));
    let running = tokio::select! {
        started = Server::start(options) => match started {
            Ok(running) => running,
            Err(StartError::Configuration(problems)) => {
                let exit = settings::refuse(&problems);
                return Ok(("mainstay: not started".to_owned(), exit));
            }
            Err(error) => return Err(refused(error)),
        },
        () = signals.next() => return Ok(("mainstay: ended before it had started".to_owned(), Exit::Ok)),
    };
    settings::tell(running.warnings());
    if let Some(warning) = descriptors::too_few(descriptors, running.connections_max()) {
        output::complain(&format!("mainstay: warning: {warning}"));
    }
    output::say(&greeting::text(&running))?;
    listening(&running)?;
    notify("READY=1");
    while signals.next_or_reload().await == Wish::Reload {
        tokio::select! {
            () = reload(&running) => {}
            () = signals.next() => {
                tracing::warn!("ended while the configuration was being read; it may be in force or not");
                break;
            }
        }
    }
    notify("STOPPING=1");
    Ok(end(running, &mut signals).await)
}

#[cfg(not(unix))]
fn notify(_: &str) {}

/// Reads the configuration again, also where a change by the admin API stands in the way for a moment. Cancel
/// safe: what was begun is done.
async fn reload(running: &Running) {
    let end = Instant::now() + OTHER_CHANGE_MAX;
    let mut is_told = false;
    let reloaded = loop {
        match told_if_slow(running.reload()).await {
            Err(problem) if problem.code() == "conflict" && Instant::now() < end => {
                if !is_told {
                    tracing::info!(
                        "another change is under way; the configuration is read after it"
                    );
                    is_told = true;
                }
                tokio::time::sleep(AGAIN).await;
            }
            reloaded => break reloaded,
        }
    };
    match reloaded {
        Ok(()) => tracing::info!("the configuration was read again and is in force"),
        Err(problem) => tracing::error!(%problem, "the configuration was not reloaded"),
    }
}

/// Says so where it takes long. It goes on: what is half read cannot be given up.
async fn told_if_slow<T>(reading: impl Future<Output = T>) -> T {
    let mut reading = std::pin::pin!(reading);
    tokio::select! {
        read = &mut reading => return read,
        () = tokio::time::sleep(SLOW) => {}
    }
    tracing::warn!(
        "the configuration is still being read; is one of its files a pipe, or on a file system that does not answer?"
    );
    reading.await
}

async fn end(running: Running, signals: &mut Signals) -> (String, Exit) {
    let limit = running.drain_timeout();
    output::complain(&format!(
        "mainstay: finishing what is in flight, at most {} s; once more to end at once",
        limit.as_secs()
    ));
    let begun = Instant::now();
    tokio::select! {
        ended = running.shutdown(limit) => told(&ended, begun.elapsed()),
        () = signals.next() => {
            ("mainstay: ended at once; work in flight was cut".to_owned(), Exit::Failed)
        }
    }
}

/// How it ended, and with what.
fn told(ended: &Ended, took: Duration) -> (String, Exit) {
    let mut cut = Vec::new();
    if ended.transactions > 0 {
        let open = settings::counted(ended.transactions, "open transaction");
        cut.push(format!("{open} rolled back"));
    }
    if ended.requests > 0 {
        let requests = settings::counted(ended.requests, "request");
        cut.push(format!("{requests} in flight cut"));
    }
    let cut = cut.join(", ");
    match (ended.drained && ended.left == 0, cut.is_empty()) {
        (true, true) => ("mainstay: ended, nothing was left".to_owned(), Exit::Ok),
        (true, false) => (format!("mainstay: ended, {cut}"), Exit::Ok),
        (false, _) => {
            let cut = if cut.is_empty() { "work left" } else { &cut };
            let took = took.as_secs();
            let told = format!(
                "mainstay: ended after {took} s, {cut}; see the log for what hung, or raise server.drain_timeout"
            );
            (told, Exit::Failed)
        }
    }
}

fn flags(arguments: &Arguments) -> Vec<Flag> {
    settings::flags([
        ("--listen", "server.listen", &arguments.listen),
        ("--data-dir", "server.data_dir", &arguments.data_dir),
    ])
}

/// Why the server did not start. Its messages carry their causes themselves.
pub(crate) fn refused(error: StartError) -> anyhow::Error {
    anyhow::anyhow!(error.to_string())
}
