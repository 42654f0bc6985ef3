//! The user whom private servers run as, and commands that run as that user.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User, geteuid};

/// The user whom the servers run as: they refuse root.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether it is another user than the one we are.
    switch: bool,
}

impl Account {
    /// Ourselves, or the first of these users that there is where we are root. `install` says how to get
    /// them.
    pub(crate) fn find(names: &[&str], install: &str) -> Result<Self> {
        if !geteuid().is_root() {
            let (uid, gid) = (geteuid().as_raw(), nix::unistd::getegid().as_raw());
            return Ok(Self {
                uid,
                gid,
                switch: false,
            });
        }
        let mut users = names.iter().filter_map(|name| User::from_name(name).ok()?);
        let Some(user) = users.next() else {
            bail!("running as root, and there is no user {names:?} to run servers as: {install}")
        };
        let (uid, gid) = (user.uid.as_raw(), user.gid.as_raw());
        Ok(Self {
            uid,
            gid,
            switch: user.uid != Uid::from_raw(0),
        })
    }

    /// The one that we are.
    pub(crate) fn ourselves() -> Self {
        Self {
            uid: geteuid().as_raw(),
            gid: nix::unistd::getegid().as_raw(),
            switch: false,
        }
    }

    /// Hands a file or folder to this account.
    pub(crate) fn own(self, path: &Path) -> Result<()> {
        if self.switch {
            std::os::unix::fs::chown(path, Some(self.uid), Some(self.gid))
                .with_context(|| format!("cannot give {} to the servers' user", path.display()))?;
        }
        Ok(())
    }

    /// A command that runs as the servers' user in a clean environment: variables of the caller
    /// (`PG…`, `MYSQL…`) would reach into a server.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env_clear().env("LC_ALL", "C").current_dir("/");
        for name in ["PATH", "TMPDIR"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        if self.switch {
            command.uid(self.uid).gid(self.gid);
        }
        command
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

/// The first folder of the path that holds this program.
pub(crate) fn on_path(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join(program).exists())
}
