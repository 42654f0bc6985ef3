//! The one environment of Python programs beside what is built.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// An environment with all that `scripts/python.txt` names. It is made once for all tests of a target folder, which
/// takes half a minute; later it is only looked at.
#[derive(Debug, Clone)]
pub struct PythonEnvironment {
    programs: PathBuf,
}

impl PythonEnvironment {
    /// Finds the environment, or makes it. Of several test programs that come at once one makes it, the others wait.
    ///
    /// # Errors
    /// Python is not there, or a package could not be had; the message says what was said of it.
    pub async fn find() -> Result<Self> {
        tokio::task::spawn_blocking(Self::find_blocking).await?
    }

    fn find_blocking() -> Result<Self> {
        let mut command = Command::new(root().join("scripts/python-environment"));
        if let Some(target) = target_folder() {
            command.env("CARGO_TARGET_DIR", target);
        }
        let output = command
            .output()
            .context("cannot run scripts/python-environment: it needs bash")?;
        if !output.status.success() {
            bail!(
                "the environment for Python could not be made (Debian: apt-get install python3 python3-venv):\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let programs = String::from_utf8(output.stdout)?;
        Ok(Self {
            programs: PathBuf::from(programs.trim_end()),
        })
    }

    /// The path of a program in the environment: `python`, `moto_server`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }
}

/// The root of the repository, where scripts and examples are.
pub(super) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap_or(root)
}

/// The folder that holds the running test, which cargo marks by a file.
fn target_folder() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let mut folders = program.ancestors();
    folders
        .find(|folder| folder.join("CACHEDIR.TAG").exists())
        .map(Path::to_path_buf)
}
