//! Encryption of the surface, with certificates made for the test.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mainstay_server::StartError;
use mainstay_testkit::{TlsFiles, certificates};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::rig::{Rig, eventually, head, source};

/// Far longer than any exchange here takes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder with certificates, and a configuration that names them.
struct Place {
    folder: Arc<tempfile::TempDir>,
    files: TlsFiles,
    config: std::path::PathBuf,
}

impl Place {
    fn new(server: &str) -> Place {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let files = certificates(folder.path()).unwrap();
        let config = folder.path().join("mainstay.toml");
        let place = Place {
            folder,
            files,
            config,
        };
        let (cert, key) = (&place.files.server_certificate, &place.files.server_key);
        place.write(server, cert, key);
        place
    }

    fn write(&self, server: &str, cert: &Path, key: &Path) {
        let text = format!(
            "{}{server}\n[server.tls]\ncert = {cert:?}\nkey = {key:?}\n{}",
            head(self.folder.path()),
            source(self.folder.path()),
        );
        std::fs::write(&self.config, text).unwrap();
    }

    async fn start(&self) -> Result<Rig, StartError> {
        let mut options = super::rig::options(String::new());
        options.files = vec![self.config.clone().into()];
        Rig::from_options(self.folder.clone(), options).await
    }

    /// An encrypted connection; the certificate must come from this authority.
    async fn connect(&self, rig: &Rig, ca: &Path) -> std::io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(ca).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TcpStream::connect(rig.client.address()).await?;
        TlsConnector::from(Arc::new(config))
            .connect(name, stream)
            .await
    }

    async fn ask(&self, rig: &Rig, request: &str) -> String {
        let talk = async {
            let mut stream = self.connect(rig, &self.files.ca).await.unwrap();
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut told = String::new();
            stream.read_to_string(&mut told).await.unwrap();
            told
        };
        tokio::time::timeout(PATIENCE, talk)
            .await
            .expect("an answer in time")
    }
}

fn post(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn calls_are_answered_encrypted_and_by_nobody_else() {
    let place = Place::new("");
    let rig = place.start().await.unwrap();
    assert!(rig.running().url().starts_with("https://127.0.0.1:"));
    let body = json!({"sql": "SELECT hex(zeroblob(500000))"}).to_string();
    let told = place.ask(&rig, &post("/v1/sources/s/query", &body)).await;
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    // More than the buffers of a connection hold, and whole.
    assert!(
        told.len() > 1_000_000 && told.ends_with('}'),
        "{}",
        told.len()
    );
    let told = place.ask(&rig, "rubbish\r\n\r\n").await;
    assert!(
        told.contains(" 400 ") && told.contains("bad_request"),
        "{told}"
    );
    let other = tempfile::tempdir().unwrap();
    let stranger = certificates(other.path()).unwrap();
    let refused = place.connect(&rig, &stranger.ca).await;
    assert!(refused.is_err(), "a stranger's certificate was believed");
    rig.end().await;
}

#[tokio::test]
async fn a_plain_request_to_an_encrypted_port_is_told_so() {
    let place = Place::new("");
    let rig = place.start().await.unwrap();
    let reply = rig.client.get("/healthz").await;
    let problem = reply.bad(400, "bad_request");
    assert!(
        problem["hint"].as_str().unwrap().contains("https://"),
        "{problem}"
    );
    rig.end().await;
}

#[tokio::test]
async fn a_client_that_does_not_shake_hands_or_does_not_read_is_cut() {
    let limits = "header_timeout = \"300ms\"\nrequest_timeout = \"500ms\"";
    let place = Place::new(limits);
    let rig = place.start().await.unwrap();
    for begun in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(rig.client.address()).await.unwrap();
        stream.write_all(begun).await.unwrap();
        let mut rest = Vec::new();
        let read = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest));
        let _ = read.await.expect("a cut in time");
        assert_eq!(rest, b"", "{begun:?}");
    }
    // A head bit by bit, in encrypted form.
    let mut slow = place.connect(&rig, &place.files.ca).await.unwrap();
    slow.write_all(b"GET /healthz HT").await.unwrap();
    let mut told = Vec::new();
    let read = tokio::time::timeout(PATIENCE, slow.read_to_end(&mut told));
    let ended = read.await.expect("a cut in time");
    let told = String::from_utf8(told).unwrap();
    assert!(told.contains(" 408 "), "{ended:?} {told}");
    // An answer that nobody reads.
    let mut idle = place.connect(&rig, &place.files.ca).await.unwrap();
    let body = json!({"sql": "SELECT hex(zeroblob(3900000))"}).to_string();
    let request = post("/v1/sources/s/query", &body);
    idle.write_all(request.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut told = Vec::new();
    let read = tokio::time::timeout(PATIENCE, idle.read_to_end(&mut told));
    let ended = read.await.expect("a cut in time");
    assert!(ended.is_err() && told.len() < 7_800_000, "{}", told.len());
    rig.end().await;
}

#[tokio::test]
async fn the_end_of_the_program_cuts_a_handshake_that_hangs() {
    let place = Place::new("header_timeout = \"60s\"");
    let rig = place.start().await.unwrap();
    let _hangs = TcpStream::connect(rig.client.address()).await.unwrap();
    let _talks = place.connect(&rig, &place.files.ca).await.unwrap();
    let begun = tokio::time::Instant::now();
    rig.end().await;
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_stops_the_start_and_says_why() {
    let place = Place::new("");
    let other = tempfile::tempdir().unwrap();
    let stranger = certificates(other.path()).unwrap();
    let locked = other.path().join("locked.key");
    std::fs::write(
        &locked,
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
    )
    .unwrap();
    let (cert, key) = (
        place.files.server_certificate.clone(),
        place.files.server_key.clone(),
    );
    let missing = other.path().join("missing.pem");
    let table = [
        (&missing, &key, "server.tls.cert", "cannot be read"),
        (&cert, &missing, "server.tls.key", "cannot be read"),
        (
            &other.path().to_path_buf(),
            &key,
            "server.tls.cert",
            "it is no file",
        ),
        (&key, &key, "server.tls.cert", "holds no certificate"),
        (&cert, &cert, "server.tls.key", "holds no private key"),
        (&cert, &locked, "server.tls.key", "has a passphrase"),
        (
            &cert,
            &stranger.server_key,
            "server.tls.key",
            "is not the key of",
        ),
    ];
    for (cert, key, at, what) in table {
        place.write("", cert, key);
        let refused = place.start().await.err().expect("a refusal");
        let told = refused.to_string();
        assert!(told.contains(at) && told.contains(what), "{told}");
    }
}

/// The certificate that the server shows.
async fn shown(place: &Place, rig: &Rig, ca: &Path) -> Option<Vec<u8>> {
    let stream = place.connect(rig, ca).await.ok()?;
    let (_, session) = stream.get_ref();
    Some(session.peer_certificates()?[0].to_vec())
}

#[tokio::test]
async fn files_that_change_are_read_again_and_broken_ones_leave_the_former_in_force() {
    let place = Place::new("");
    let rig = place.start().await.unwrap();
    let ca = place.files.ca.clone();
    let first = shown(&place, &rig, &ca).await.unwrap();
    let mut open = place.connect(&rig, &ca).await.unwrap();
    let reload = async || place.ask(&rig, &post("/v1/admin/reload", "")).await;

    let key = std::fs::read(&place.files.server_key).unwrap();
    std::fs::write(&place.files.server_key, "no key").unwrap();
    let told = reload().await;
    assert!(
        told.contains(" 422 ") && told.contains("server.tls.key"),
        "{told}"
    );
    assert_eq!(shown(&place, &rig, &ca).await.unwrap(), first);
    std::fs::write(&place.files.server_key, key).unwrap();

    // The same authority signs anew: other files under the same names.
    let folder = place.folder.path();
    let next = tempfile::tempdir().unwrap();
    let files = certificates(next.path()).unwrap();
    std::fs::copy(&files.server_key, folder.join("server.key")).unwrap();
    std::fs::copy(&files.server_certificate, folder.join("server.crt")).unwrap();
    eventually("the other certificate is shown", async || {
        let now = shown(&place, &rig, &files.ca).await;
        now.is_some_and(|now| now != first)
    })
    .await;
    // Connections that are open stay as they are.
    open.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut told = String::new();
    open.read_to_string(&mut told).await.unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    rig.end().await;
}
