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

/// By a file of a name that nobody else has: none that is there is touched.
fn try_writing(folder: &Path) -> std::io::Result<()> {
    tempfile::Builder::new()
        .prefix(".writable-")
        .tempfile_in(folder)?
        .close()
}

fn uses(configuration: &Configuration, file: &Path) -> bool {
    let mut sources = configuration.sources.values();
    sources.any(|source| {
        let mut endpoints = source.endpoints.values();
        source.driver == Driver::Sqlite && endpoints.any(|endpoint| endpoint.path() == Some(file))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trying_to_write_touches_nothing_that_is_there_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let own = format!(".writable-{}", std::process::id());
        let there = [own.as_str(), "runtime.toml", "mainstay.pid"];
        for name in there {
            std::fs::write(folder.path().join(name), "kept").unwrap();
        }
        try_writing(folder.path()).unwrap();
        assert_eq!(folder.path().read_dir().unwrap().count(), there.len());
        for name in there {
            let kept = std::fs::read_to_string(folder.path().join(name)).unwrap();
            assert_eq!(kept, "kept", "{name}");
        }
        assert!(try_writing(&folder.path().join("nowhere")).is_err());
    }
}
