//! The server's side of `start` and of a service manager: who watches is told how it stands.

use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::exit::Exit;
use crate::pid_file::{PidFile, Record};
use crate::process;

/// A server that `start` has started.
pub(super) struct Background {
    file: PidFile,
    log: PathBuf,
}

impl Background {
    /// Leaves the terminal that it was started from, and says its number.
    ///
    /// # Errors
    /// It was not started by `start`.
    pub(super) fn enter(pid_file: &Path, log: &Path) -> anyhow::Result<Self> {
        let file = PidFile::adopt(pid_file)?;
        nix::unistd::setsid().context("the terminal cannot be left")?;
        let log = std::path::absolute(log)?;
        let background = Background { file, log };
        background.say("")?;
        Ok(background)
    }

    /// Says where it listens.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn say(&self, url: &str) -> anyhow::Result<()> {
        let record = self.record(std::process::id(), url, 0);
        self.file.write(&record)
    }

    /// Says how it ended, as the very last.
    pub(super) fn end(self, told: &str, exit: Exit) {
        let told = told.strip_prefix("mainstay: ").unwrap_or(told);
        let record = self.record(0, told, u8::from(exit != Exit::Ok));
        self.file.end(&record);
    }

    fn record(&self, pid: u32, told: &str, code: u8) -> Record {
        Record {
            pid,
            told: told.to_owned(),
            log: self.log.clone(),
            code,
            begun: process::begun(std::process::id()),
        }
    }
}

/// A service manager takes what it is told at once, unless it hangs.
#[cfg(target_os = "linux")]
const TELLING_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Tells the service manager that started it, if one did and wants to know.
pub(super) fn notify(state: &str) {
    let Some(address) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Err(error) = send(&address, state) {
        tracing::warn!(%error, state, "the service manager could not be told");
    }
}

#[cfg(target_os = "linux")]
fn send(address: &std::ffi::OsStr, state: &str) -> std::io::Result<()> {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    let address = match address.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(address)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TELLING_MAX))?;
    socket.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(not(target_os = "linux"))]
fn send(_: &std::ffi::OsStr, _: &str) -> std::io::Result<()> {
    Ok(())
}
