//! `inject`: faults for workers that look for them, in demonstrations and tests.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::{BadUsage, Exit};
use crate::output;

/// Where the workers look, and under which other name.
const FOLDERS: [&str; 2] = ["MAINSTAY_FAULT_DIR", "PROXY_DEMO_FAULT_DIR"];

/// What a worker is to do with every call.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Fault {
    /// Answer nothing until told otherwise
    Hang,
    /// Answer with an error
    Error,
    /// Work as usual
    None,
}

/// Make a worker hang or fail, or work again
///
/// Writes a file that a worker of `examples/intersect` reads at each call, named like the target, into the
/// folder of MAINSTAY_FAULT_DIR. Workers that were started without that variable never look.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  MAINSTAY_FAULT_DIR=/tmp/faults mainstay inject primary-a hang
  MAINSTAY_FAULT_DIR=/tmp/faults mainstay inject primary-a none")]
pub(crate) struct Arguments {
    /// The target
    target: String,
    /// What it is to do
    #[arg(value_enum)]
    fault: Fault,
}

/// Writes the file.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let folder = FOLDERS
        .iter()
        .find_map(std::env::var_os)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
        .ok_or_else(|| {
            BadUsage("set MAINSTAY_FAULT_DIR to the folder in which the workers look".to_owned())
        })?;
    let target = &arguments.target;
    if target.is_empty() || target.starts_with('.') || target.contains(['/', '\\', '\0']) {
        let text = format!("{target:?} is no name of a target that a file can have");
        return Err(BadUsage(text).into());
    }
    let word = match arguments.fault {
        Fault::Hang => "hang",
        Fault::Error => "error",
        Fault::None => "none",
    };
    write(&folder, target, word)?;
    output::say(&format!("{target}: {word}"))?;
    Ok(Exit::Ok)
}

/// In one step, so that no worker reads half of it.
fn write(folder: &Path, target: &str, word: &str) -> anyhow::Result<()> {
    let what = || {
        format!(
            "{} cannot be written; check MAINSTAY_FAULT_DIR",
            folder.display()
        )
    };
    let path = folder.join(target);
    let fresh = folder.join(format!(".{target}.{}", std::process::id()));
    std::fs::write(&fresh, format!("{word}\n")).with_context(what)?;
    std::fs::rename(&fresh, &path).with_context(what)
}
