//! `serve`: the server in the foreground, until a signal ends it.

mod greeting;

use std::path::PathBuf;
use std::time::Duration;

use mainstay_config::Flag;
use mainstay_server::{Ended, Running, Server, StartError};

use crate::exit::Exit;
use crate::logs::{self, LogFormat};
use crate::output;
use crate::settings;
use crate::signals::Signals;

/// Serve sources over HTTP
///
/// Without a configuration it serves `demo`, a sample SQLite database in the data folder. Back ends that
/// are down are no reason not to start: they are used as soon as they answer. Logs go to stderr.
///
/// Ctrl-C or SIGTERM ends it in order: work in flight is finished, the audit trail is written. A second
/// one ends it at once.
#[derive(Debug, clap::Args)]
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
    config: Vec<PathBuf>,
    /// Where to listen: loopback, or with keys any address; port 0 takes any free one
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// The folder for the program's files
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<String>,
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
}

/// Serves until a signal.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    logs::start(&arguments.log, arguments.log_format)?;
    let mut signals = Signals::new()?;
    let options = settings::options(&arguments.config, flags(&arguments));
    let running = tokio::select! {
        started = Server::start(options) => match started {
            Ok(running) => running,
            Err(StartError::Configuration(problems)) => return Ok(settings::refuse(&problems)),
            Err(error) => return Err(refused(error)),
        },
        () = signals.next() => return Ok(Exit::Ok),
    };
    settings::tell(running.warnings());
    output::say(&greeting::text(&running))?;
    signals.next().await;
    end(running, &mut signals).await
}

async fn end(running: Running, signals: &mut Signals) -> anyhow::Result<Exit> {
    let limit = running.drain_timeout();
    output::complain(&format!(
        "mainstay: finishing what is in flight, at most {} s; once more to end at once",
        limit.as_secs()
    ));
    tokio::select! {
        ended = running.shutdown(limit) => {
            let (told, exit) = told(&ended, limit);
            output::complain(&told);
            Ok(exit)
        }
        () = signals.next() => {
            output::complain("mainstay: ended at once; work in flight was cut");
            Ok(Exit::Failed)
        }
    }
}

/// How it ended, and with what.
fn told(ended: &Ended, limit: Duration) -> (String, Exit) {
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
            let limit = limit.as_secs();
            let told = format!(
                "mainstay: ended after {limit} s, {cut}; see the log for what hung, or raise server.drain_timeout"
            );
            (told, Exit::Failed)
        }
    }
}

fn flags(arguments: &Arguments) -> Vec<Flag> {
    let flag = |name: &str, path: &str, value: &Option<String>| {
        value.clone().map(|value| Flag {
            name: name.to_owned(),
            path: path.to_owned(),
            value,
        })
    };
    [
        flag("--listen", "server.listen", &arguments.listen),
        flag("--data-dir", "server.data_dir", &arguments.data_dir),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Why the server did not start. Its messages carry their causes themselves.
pub(crate) fn refused(error: StartError) -> anyhow::Error {
    anyhow::anyhow!(error.to_string())
}
