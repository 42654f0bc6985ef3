//! Where PostgreSQL's programs are and as whom they run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::account::{Account, on_path};

const INSTALL: &str = "install PostgreSQL 14 or later (Debian: apt-get install postgresql)";

/// PostgreSQL on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    bin: PathBuf,
    version: String,
    account: Account,
}

impl Installation {
    /// Finds the newest installed PostgreSQL.
    pub(crate) fn find() -> Result<Self> {
        let bin = newest_of_debian()
            .or_else(|| on_path("initdb"))
            .with_context(|| format!("found no `initdb`: {INSTALL}"))?;
        let output = Command::new(bin.join("postgres"))
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}: {INSTALL}", bin.join("postgres").display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = text
            .split_whitespace()
            .nth(2)
            .unwrap_or("unknown")
            .to_owned();
        Ok(Self {
            bin,
            version,
            account: Account::find(&["postgres"], INSTALL)?,
        })
    }

    pub(crate) fn version(&self) -> &str {
        &self.version
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    /// The full path of one of PostgreSQL's programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }

    /// A command that runs as the servers' user.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        self.account.command(program)
    }
}

/// Debian keeps the servers' programs off the path, a folder for each major version.
fn newest_of_debian() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let newest = versions
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .max()?;
    let bin = PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"));
    bin.join("initdb").exists().then_some(bin)
}
