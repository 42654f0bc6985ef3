//! Log lines, on stderr.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;

use crate::exit::BadUsage;
use crate::output;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

#[cfg(unix)]
impl LogFormat {
    /// As it stands on a command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            LogFormat::Text => "text",
            LogFormat::Json => "json",
        }
    }
}

/// Starts logging for the whole process.
///
/// # Errors
/// The filter cannot be read.
pub(crate) fn start(filter: &str, format: LogFormat) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        BadUsage(format!(
            "--log {filter:?}: {error}; write error, warn, info, debug or trace"
        ))
    })?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr);
    let started = match format {
        LogFormat::Text => logs
            .with_ansi(io::stderr().is_terminal() && !output::no_color())
            .with_target(false)
            .try_init(),
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("logs cannot be started: {error}"))
}
