//! Loopback ports that nobody else takes while they are held.

use std::fs::File;
use std::net::TcpListener;

use anyhow::{Context, Result, bail};
use nix::unistd::geteuid;

use crate::folder;

/// Below the kernel's usual range for outgoing connections, so that no client takes the port of a
/// server that is down for a moment.
const PORTS: std::ops::Range<u16> = 15_000..32_000;

/// A port reserved among all users of the testkit on this machine, also while nothing listens on
/// it. The reservation is a file lock: it ends with this value or with its process.
#[derive(Debug)]
pub(crate) struct PortLease {
    port: u16,
    _lock: File,
}

impl PortLease {
    /// Reserves a free port.
    pub(crate) fn take() -> Result<Self> {
        let folder = folder::base(geteuid().as_raw())?.join("ports");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {folder:?}"))?;
        for _ in 0..1000 {
            let port = fastrand::u16(PORTS);
            let lock = File::create(folder.join(port.to_string()))?;
            if lock.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(Self { port, _lock: lock });
            }
        }
        bail!("no free loopback port found in {PORTS:?}")
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}
