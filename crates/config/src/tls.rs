//! `[server.tls]`: the certificate that the program shows to its callers.

use std::path::PathBuf;

use crate::configuration::Configuration;
use crate::mark::Mark;
use crate::problem::{Findings, Problem, Wrong};
use crate::scalar;
use crate::source::table;
use crate::tree::{Entry, Node, join};

/// Encryption of the HTTP surface. The files are PEM, read at the start, at a reload and when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTls {
    /// The certificate, then those that lead from it to an authority.
    pub cert: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// Name, example and meaning of each key of `[server.tls]`.
pub(crate) const TLS_KEYS: &[(&str, &str, &str)] = &[
    (
        "cert",
        "\"/etc/mainstay/server.pem\"",
        "file of the certificate and those that lead to its authority (PEM)",
    ),
    (
        "key",
        "\"/etc/mainstay/server.key\"",
        "file of its private key (PEM, without a passphrase)",
    ),
];

/// Where the settings were written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TlsMarks {
    cert: Mark,
    key: Mark,
}

/// Reads `[server.tls]`.
pub(crate) fn read(
    path: &str,
    entry: &Entry,
    findings: &mut Findings,
) -> Option<(ServerTls, TlsMarks)> {
    let own = table(path, entry, findings)?;
    let mut file = |name: &str| {
        let Some(entry) = own.get(name) else {
            let wrong = Wrong::new(format!("has no {name}"));
            let hint = "encryption needs the files of a certificate (cert) and of its key (key)";
            findings.error(&entry.mark, path, wrong.hint(hint));
            return None;
        };
        let file = findings.take(&entry.mark, &join(path, name), path_of(&entry.node))?;
        Some((file, entry.mark.clone()))
    };
    let (cert, key) = (file("cert"), file("key"));
    for (name, entry) in own.iter() {
        let mut known = TLS_KEYS.iter().map(|key| key.0);
        if !known.any(|known| known == name) {
            let known = TLS_KEYS.iter().map(|key| key.0);
            findings.unknown(&entry.mark, join(path, name), name, known);
        }
    }
    let ((cert, cert_mark), (key, key_mark)) = (cert?, key?);
    let marks = TlsMarks {
        cert: cert_mark,
        key: key_mark,
    };
    Some((ServerTls { cert, key }, marks))
}

fn path_of(node: &Node) -> Result<PathBuf, Wrong> {
    let text = scalar::text(node)?;
    match text.trim().is_empty() {
        true => Err(Wrong::new("is empty").hint("name a file")),
        false => Ok(PathBuf::from(text)),
    }
}

impl Configuration {
    /// What is wrong with a file of `[server.tls]`, at the place where `key` (`cert` or `key`) names it.
    /// `None`: there is no encryption.
    pub fn tls_problem(&self, key: &str, message: String, hint: &str) -> Option<Problem> {
        let marks = self.written_tls()?;
        let mark = match key {
            "key" => &marks.key,
            _ => &marks.cert,
        };
        let wrong = Wrong::new(message).hint(hint);
        Some(Problem::error(mark, join("server.tls", key), wrong))
    }
}
