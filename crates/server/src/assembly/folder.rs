//! The folder in which the program keeps its files.

use std::path::{Path, PathBuf};

use mainstay_config::{Configuration, Driver};

use super::AssemblyError;

/// A file of this name in the data folder holds the sample.
const SAMPLE_FILE: &str = "demo.db";

/// Makes the folder, finds out whether it can be written, and makes the sample where a source uses it.
pub(super) fn prepare(configuration: &Configuration) -> Result<(), AssemblyError> {
    let folder = &configuration.server.data_dir;
    let refused = |source| AssemblyError::DataDir {
        path: folder.clone(),
        source,
    };
    std::fs::create_dir_all(folder).map_err(refused)?;
    try_writing(folder).map_err(refused)?;
    let sample = sample(configuration);
    if uses(configuration, &sample) {
        mainstay_sqlite::create_sample(&sample)?;
    }
    Ok(())
}

/// The file that holds the sample.
pub(super) fn sample(configuration: &Configuration) -> PathBuf {
    configuration.server.data_dir.join(SAMPLE_FILE)
}

fn try_writing(folder: &Path) -> std::io::Result<()> {
    let probe = folder.join(format!(".writable-{}", std::process::id()));
    std::fs::write(&probe, b"")?;
    std::fs::remove_file(&probe)
}

fn uses(configuration: &Configuration, file: &Path) -> bool {
    let mut sources = configuration.sources.values();
    sources.any(|source| {
        let mut endpoints = source.endpoints.values();
        source.driver == Driver::Sqlite && endpoints.any(|endpoint| endpoint.path() == Some(file))
    })
}
