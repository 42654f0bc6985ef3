//! Where MariaDB's programs are, as whom they run, and the data that every private server begins with.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::options;
use crate::account::{Account, on_path, run};
use crate::folder::Folder;

const INSTALL: &str = "install MariaDB 10.6 or later (Debian: apt-get install mariadb-server-core mariadb-client-core)";

/// Raised when the way the template is made changes, so that an older one is not taken.
const REVISION: u32 = 1;

/// MariaDB on this machine.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    server: PathBuf,
    version: String,
    account: Account,
}

impl Installation {
    /// Finds the installed MariaDB.
    pub(crate) fn find() -> Result<Self> {
        // Debian keeps it off the path of ordinary users.
        let debian = PathBuf::from("/usr/sbin/mariadbd");
        let server = match debian.exists() {
            true => Some(debian),
            false => on_path("mariadbd").map(|folder| folder.join("mariadbd")),
        };
        let server = server.with_context(|| format!("found no `mariadbd`: {INSTALL}"))?;
        let output = Command::new(&server)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}: {INSTALL}", server.display()))?;
        Ok(Self {
            server,
            version: version(&String::from_utf8_lossy(&output.stdout)).to_owned(),
            // The package of the programs alone makes no user.
            account: Account::find(&["mysql", "nobody"], INSTALL)?,
        })
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    /// The server's program.
    pub(crate) fn server(&self) -> PathBuf {
        self.server.clone()
    }

    /// Copies the template, which is made if it is not there yet, to a new data folder. Blocks; safe
    /// against other processes.
    pub(crate) fn copy_template(&self, base: &Path, data: &Path) -> Result<()> {
        let template = self.template(base)?;
        run(self
            .account
            .command("cp")
            .arg("-Rp")
            .arg(template)
            .arg(data))
    }

    fn template(&self, base: &Path) -> Result<PathBuf> {
        let ready = base.join(format!("mariadb-template-{}-{REVISION}", self.version));
        if ready.is_dir() {
            return Ok(ready);
        }
        let lock = File::create(base.join("mariadb-template.lock"))?;
        lock.lock().context("cannot lock the template")?;
        if ready.is_dir() {
            return Ok(ready);
        }
        let building = Folder::make(base, "mariadb-building-")?;
        self.account.own(building.path())?;
        let (data, temporary) = (
            building.path().join("data"),
            building.path().join("temporary"),
        );
        std::fs::create_dir(&temporary)?;
        self.account.own(&temporary)?;
        self.install(&data, &temporary)?;
        // Only a whole template ever gets the name: a killed build leaves nothing that looks ready.
        std::fs::rename(&data, &ready)?;
        Ok(ready)
    }

    fn install(&self, data: &Path, temporary: &Path) -> Result<()> {
        let mut command = self.account.command("mariadb-install-db");
        command
            .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", temporary.display()));
        for (name, value) in options::FILES {
            command.arg(format!("--{}={value}", name.replace('_', "-")));
        }
        run(&mut command)?;
        let test = data.join("test");
        std::fs::create_dir(&test)?;
        let charset = test.join("db.opt");
        std::fs::write(&charset, options::DATABASE)?;
        self.account.own(&charset)?;
        self.account.own(&test)
    }
}

/// The first word that begins with a digit: `mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for …`.
fn version(text: &str) -> &str {
    text.split_whitespace()
        .find(|word| word.starts_with(|c: char| c.is_ascii_digit()))
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_the_servers_own_words() {
        let text =
            "/usr/sbin/mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert_eq!(version(text), "10.11.19-MariaDB-0+deb12u1");
        assert_eq!(version("mariadbd"), "unknown");
    }
}
