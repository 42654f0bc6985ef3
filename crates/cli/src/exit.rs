//! How the program ends.

use std::io;
use std::process::ExitCode;

/// What the caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All went well.
    Ok,
    /// It could not be done.
    Failed,
    /// A configuration has errors.
    Problems,
    /// The command line makes no sense.
    Usage,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(match exit {
            Exit::Ok => 0,
            Exit::Failed => 1,
            Exit::Problems => 2,
            Exit::Usage => 64,
        })
    }
}

/// A command line that can be parsed and yet makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadUsage(pub(crate) String);

/// Tells the error on stderr. A reader that closed its end of the pipe has all it wanted.
pub(crate) fn report(error: &anyhow::Error) -> Exit {
    let broken_pipe = error.chain().any(|cause| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    });
    if broken_pipe {
        return Exit::Ok;
    }
    crate::output::complain(&format!("mainstay: {error:#}"));
    if error.is::<BadUsage>() {
        return Exit::Usage;
    }
    Exit::Failed
}
