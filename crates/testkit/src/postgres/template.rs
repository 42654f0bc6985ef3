//! One `initdb` for a machine: its result is kept and copied for each server.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::installation::Installation;
use crate::account::run;
use crate::folder::Folder;

/// Raised when the arguments of `initdb` change, so that an older template is not taken.
const REVISION: u32 = 2;

/// The template's folder, made if it is not there yet. Blocks; safe against other processes.
pub(crate) fn template(installation: &Installation, base: &Path) -> Result<PathBuf> {
    let ready = base.join(format!("template-{}-{REVISION}", installation.version()));
    if ready.is_dir() {
        return Ok(ready);
    }
    let lock = File::create(base.join("template.lock"))?;
    lock.lock().context("cannot lock the template")?;
    if ready.is_dir() {
        return Ok(ready);
    }
    let building = Folder::make(base, "building-")?;
    installation.account().own(building.path())?;
    let data = building.path().join("data");
    init(installation, &data)?;
    // Only a whole template ever gets the name: a killed build leaves nothing that looks ready.
    std::fs::rename(&data, &ready)?;
    Ok(ready)
}

/// Runs `initdb`: a new cluster with its own system identifier.
pub(crate) fn init(installation: &Installation, data: &Path) -> Result<()> {
    run(installation
        .command(installation.program("initdb"))
        .args([
            "--username=postgres",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
        ])
        .args(["--no-sync", "--no-instructions", "--wal-segsize=1"])
        .arg("--pgdata")
        .arg(data))
}

/// Copies the template to a new data folder.
pub(crate) fn copy(installation: &Installation, template: &Path, data: &Path) -> Result<()> {
    run(installation
        .command("cp")
        .arg("-Rp")
        .arg(template)
        .arg(data))
}
