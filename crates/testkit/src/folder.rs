//! The folder that all users of the testkit on this machine share: templates, port locks, servers.

use std::path::PathBuf;

use anyhow::{Context, Result};

/// Makes and names the shared folder of the account with this user id.
pub(crate) fn base(uid: u32) -> Result<PathBuf> {
    let base = std::env::temp_dir().join(format!("mainstay-testkit-{uid}"));
    std::fs::create_dir_all(&base).with_context(|| format!("cannot make {}", base.display()))?;
    Ok(base)
}
