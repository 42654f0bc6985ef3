//! `stop`: ends the server in the background.

use std::time::Duration;

use tokio::time::Instant;

use crate::daemon::{self, Holder, Place};
use crate::exit::Exit;
use crate::output;
use crate::pid_file::{PidFile, Record};

/// How often it looks whether the server has ended.
const EVERY: Duration = Duration::from_millis(50);
/// Two signals within less are taken for one.
const APART: Duration = Duration::from_millis(300);

/// End the server that `start` has started
///
/// No new calls are taken, work in flight is finished within the server's drain_timeout, the audit trail
/// is written. It waits for that and tells what the server said of its end.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay stop
  mainstay stop --config mainstay.toml --wait 120
  mainstay stop --now

Exit codes: 0 it has ended, or none was running; 1 it has not ended in time, work in flight was cut, or it
was killed by somebody else; 2 the configuration has errors (--pid-file does without one).")]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
    /// How long to wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    wait: u64,
    /// Cut what is in flight instead of waiting for it
    #[arg(long)]
    now: bool,
}

/// Ends it.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let path = match arguments.place.pid_file() {
        Ok(path) => path,
        Err(exit) => return Ok(exit),
    };
    let (file, record) = match daemon::holder(&path).await? {
        Holder::Server(file, record) => (file, record),
        Holder::Nobody => {
            output::say(&format!("no server is running ({})", path.display()))?;
            return Ok(Exit::Ok);
        }
        Holder::Unsaid => anyhow::bail!(daemon::unsaid(&path)),
    };
    record.end_process();
    if arguments.now && !ended_within(&file, APART).await? {
        record.end_process();
    }
    let limit = Duration::from_secs(arguments.wait);
    match ended_within(&file, limit).await? {
        true => told(file, &record),
        false => {
            output::complain(&format!(
                "mainstay: the server (pid {}) still finishes what is in flight after {} s; wait for it, or end it at once with `mainstay stop --now`",
                record.pid,
                limit.as_secs()
            ));
            Ok(Exit::Failed)
        }
    }
}

/// Whether the lock was given up in time: it goes with the process, however that ends.
async fn ended_within(file: &PidFile, limit: Duration) -> anyhow::Result<bool> {
    let begun = Instant::now();
    while !file.try_lock()? {
        if begun.elapsed() >= limit {
            return Ok(false);
        }
        tokio::time::sleep(EVERY).await;
    }
    Ok(true)
}

/// What the server said of its end.
fn told(file: PidFile, before: &Record) -> anyhow::Result<Exit> {
    let last = file.read()?.filter(|last| last.pid == 0);
    let Some(last) = last else {
        output::complain(&format!(
            "mainstay: the server (pid {}) is gone without having finished; was it killed? The end of its log {}:\n{}",
            before.pid,
            before.log.display(),
            daemon::tail(&before.log, 0)
        ));
        return Ok(Exit::Failed);
    };
    output::say(&last.told)?;
    Ok(match last.code {
        0 => Exit::Ok,
        _ => Exit::Failed,
    })
}
