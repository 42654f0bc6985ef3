//! Certificates for one server: a private authority, the server's, and a client's.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::account::{Account, run};

/// Certificate files (PEM) of a private server with TLS.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The private authority that signed the others.
    pub ca: PathBuf,
    /// The server's certificate, for `localhost` and 127.0.0.1.
    pub server_certificate: PathBuf,
    /// The server's key.
    pub server_key: PathBuf,
    /// A client's certificate; its common name is the superuser's name.
    pub client_certificate: PathBuf,
    /// The client's key (PKCS 8).
    pub client_key: PathBuf,
}

/// Makes certificates in `folder`, which is there, with the `openssl` program: for a listener of our own.
///
/// # Errors
/// The program is missing, or cannot write there.
pub fn certificates(folder: &Path) -> Result<TlsFiles> {
    make(Account::ourselves(), folder, "client")
}

/// Makes all files in `folder` with the `openssl` program. `client` is the client's common name.
pub(crate) fn make(account: Account, folder: &Path, client: &'static str) -> Result<TlsFiles> {
    let path = |name: &str| folder.join(name);
    let files = TlsFiles {
        ca: path("ca.crt"),
        server_certificate: path("server.crt"),
        server_key: path("server.key"),
        client_certificate: path("client.crt"),
        client_key: path("client.key"),
    };
    let authority = Certificate {
        name: "mainstay test authority",
        purpose: "basicConstraints=critical,CA:TRUE",
    };
    authority.make(account, None, &path("ca.key"), &files.ca)?;
    let signer = (files.ca.as_path(), path("ca.key"));
    let server = Certificate {
        name: "localhost",
        purpose: "subjectAltName=DNS:localhost,IP:127.0.0.1",
    };
    server.make(
        account,
        Some(&signer),
        &files.server_key,
        &files.server_certificate,
    )?;
    let client = Certificate {
        name: client,
        purpose: "extendedKeyUsage=clientAuth",
    };
    client.make(
        account,
        Some(&signer),
        &files.client_key,
        &files.client_certificate,
    )?;
    Ok(files)
}

struct Certificate {
    name: &'static str,
    /// The extension that tells what it is for.
    purpose: &'static str,
}

impl Certificate {
    fn make(
        &self,
        account: Account,
        signer: Option<&(&Path, PathBuf)>,
        key: &Path,
        certificate: &Path,
    ) -> Result<()> {
        let mut openssl = account.command("openssl");
        openssl.args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ]);
        openssl.args([
            "-noenc",
            "-days",
            "30",
            "-subj",
            &format!("/CN={}", self.name),
        ]);
        openssl.args(["-addext", self.purpose]);
        if let Some((ca, ca_key)) = signer {
            openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
            openssl.arg("-CA").arg(ca).arg("-CAkey").arg(ca_key);
        }
        run(openssl.arg("-keyout").arg(key).arg("-out").arg(certificate))
    }
}
