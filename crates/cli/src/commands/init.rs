//! `init`: a commented file to start from.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Exit;
use crate::output;
use crate::own_name::own_name;

/// Write a commented configuration file to start from
///
/// Every key is there with its default and what it does; a line becomes active when the # before it
/// is taken away.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay init
  mainstay init config/mainstay.toml
  mainstay init - | less")]
pub(crate) struct Arguments {
    /// Where to write; - is stdout
    #[arg(default_value = "mainstay.toml")]
    path: PathBuf,
    /// Overwrite the file if there is one
    #[arg(long)]
    force: bool,
}

/// Writes the file.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let text = mainstay_config::init_text();
    let path = arguments.path.display();
    if arguments.path.as_os_str() == "-" {
        output::say(&text)?;
        return Ok(Exit::Ok);
    }
    let mut options = OpenOptions::new();
    if arguments.force {
        options.write(true).create(true).truncate(true);
    } else {
        options.write(true).create_new(true);
    }
    let mut file = options
        .open(&arguments.path)
        .with_context(|| why_not(&arguments.path, arguments.force))?;
    write(&mut file, &text)
        .with_context(|| format!("{path} cannot be written; is the disk full?"))?;
    let program = own_name();
    output::say(&format!(
        "Wrote {path}. Next:\n  {program} check {path}\n  {program} serve --config {path}"
    ))?;
    Ok(Exit::Ok)
}

/// Why a file cannot be opened for writing and what to do.
fn why_not(path: &Path, force: bool) -> String {
    let shown = path.display();
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.exists()) {
        _ if path.exists() && !force => {
            format!("{shown} is there already; choose another path, or overwrite it with --force")
        }
        Some(folder) => {
            let folder = folder.display();
            format!("the folder {folder} is missing; make it with `mkdir -p {folder}`")
        }
        None => format!("{shown} cannot be written; check the folder and its permissions"),
    }
}

fn write(file: &mut std::fs::File, text: &str) -> io::Result<()> {
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
