//! Whose certificates are believed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use mainstay_transport::{Tls, TlsMode, TlsSettings};
use parking_lot::Mutex;

use crate::settings::S3Settings;

/// Authorities as they were read last. A system has some hundred of them, and a call opens a connection of its own:
/// they are read again when their file has changed.
#[derive(Default)]
pub(crate) struct Trust {
    read: Mutex<Option<(Version, Tls)>>,
}

/// A file as it was at some time.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version {
    path: PathBuf,
    changed: SystemTime,
    length: u64,
}

impl Version {
    async fn of(path: &Path) -> Option<Self> {
        let found = tokio::fs::metadata(path).await.ok()?;
        Some(Version {
            path: path.to_owned(),
            changed: found.modified().ok()?,
            length: found.len(),
        })
    }
}

impl Trust {
    /// What is needed to encrypt connections to a host.
    pub(crate) async fn tls(&self, settings: &S3Settings, host: &str) -> io::Result<Tls> {
        let ca = settings.authorities();
        let version = match &ca {
            Some(path) => Version::of(path).await,
            None => None,
        };
        let known = self.read.lock().clone();
        if let Some((read, tls)) = known
            && version.as_ref() == Some(&read)
        {
            return Ok(tls);
        }
        let settings = TlsSettings {
            mode: TlsMode::VerifyFull,
            ca,
            certificate: None,
            key: None,
        };
        let tls = Tls::load(&settings, host).await?;
        *self.read.lock() = version.map(|version| (version, tls.clone()));
        Ok(tls)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[tokio::test]
    async fn authorities_are_read_again_when_their_file_has_changed() {
        let folder = tempfile::tempdir().unwrap();
        let files = mainstay_testkit::certificates(folder.path()).unwrap();
        let path = folder.path().join("authorities.pem");
        fs::copy(&files.ca, &path).unwrap();
        let settings = S3Settings::new("https://store", "access", "secret").ca(&path);
        let trust = Trust::default();
        trust.tls(&settings, "store").await.unwrap();
        // Other content that looks the same from outside is not even read.
        let found = fs::metadata(&path).unwrap();
        fs::write(&path, vec![b' '; found.len() as usize]).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(found.modified().unwrap()).unwrap();
        trust.tls(&settings, "store").await.unwrap();
        fs::write(&path, "").unwrap();
        assert!(trust.tls(&settings, "store").await.is_err());
        fs::copy(&files.ca, &path).unwrap();
        trust.tls(&settings, "store").await.unwrap();
        fs::remove_file(&path).unwrap();
        assert!(trust.tls(&settings, "store").await.is_err());
    }
}
