//! Where PostgreSQL's programs are and as whom they run.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User, geteuid};

const INSTALL: &str = "install PostgreSQL 14 or later (Debian: apt-get install postgresql)";

/// PostgreSQL on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    bin: PathBuf,
    version: String,
    account: Account,
}

/// The user whom the servers run as: PostgreSQL refuses root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether it is another user than the one we are.
    switch: bool,
}

impl Installation {
    /// Finds the newest installed PostgreSQL.
    pub(crate) fn find() -> Result<Self> {
        let bin = newest_of_debian()
            .or_else(on_path)
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
            account: Account::find()?,
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

    /// A command that runs as the servers' user in a clean environment: `PG…` variables of the
    /// caller would reach into a server through its replication client.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("LC_ALL", "C").current_dir("/");
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.account.switch {
            command.uid(self.account.uid).gid(self.account.gid);
        }
        command
    }
}

impl Account {
    fn find() -> Result<Self> {
        if !geteuid().is_root() {
            let (uid, gid) = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
            return Ok(Self {
                uid,
                gid,
                switch: false,
            });
        }
        let Some(user) = User::from_name("postgres")? else {
            bail!("running as root, and there is no user `postgres` to run servers as: {INSTALL}")
        };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Ok(Self {
            uid,
            gid,
            switch: user.uid != Uid::from_raw(0),
        })
    }

    /// Hands a file or folder to this account.
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        if self.switch {
            std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
                .with_context(|| format!("cannot give {} to the servers' user", path.display()))?;
        }
        Ok(())
    }
}

/// Runs a command to its end; its output is part of the error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let (out, err) = (
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
        );
        bail!("{command:?} ended with {}:\n{out}{err}", output.status);
    }
    Ok(())
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

fn on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}
