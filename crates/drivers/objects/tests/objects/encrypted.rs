//! A store behind TLS.

use std::sync::Arc;

use mainstay_engine::Sent;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{ObjectError, ObjectStore};
use mainstay_objects::{S3Settings, S3Store};
use mainstay_testkit::{TlsFiles, certificates};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::scripted::{Say, answer, serve};

#[tokio::test]
async fn an_encrypted_store_is_believed_only_with_a_certificate_of_a_known_authority() {
    let folder = tempfile::tempdir().unwrap();
    let files = certificates(folder.path()).unwrap();
    let other = tempfile::tempdir().unwrap();
    let others = certificates(other.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let acceptor = acceptor(&files);
    let tasks = Tasks::new();
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client that does not believe us ends the handshake.
            if let Ok(stream) = acceptor.accept(stream).await {
                serve(stream, |_| {
                    Say::Bytes(answer("200 OK", "hidden").into_bytes())
                })
                .await;
            }
        }
    });
    let settings =
        |host: &str| S3Settings::new(format!("https://{host}:{port}"), "access", "secret");
    for host in ["localhost", "127.0.0.1"] {
        let store = S3Store::new(settings(host).ca(&files.ca)).unwrap();
        assert_eq!(
            store.get("bucket", "a", 10).await.unwrap().content,
            "hidden"
        );
        for settings in [settings(host).ca(&others.ca), settings(host)] {
            let store = S3Store::new(settings).unwrap();
            let error = store.get("bucket", "a", 10).await.unwrap_err();
            assert!(
                matches!(error, ObjectError::Failed { sent: Sent::No, .. }),
                "{error:?}"
            );
        }
    }
    tasks.stop();
}

fn acceptor(files: &TlsFiles) -> TlsAcceptor {
    let certificate = CertificateDer::from_pem_file(&files.server_certificate).unwrap();
    let key = PrivateKeyDer::from_pem_file(&files.server_key).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}
