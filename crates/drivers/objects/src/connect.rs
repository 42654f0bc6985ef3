//! A connection to the store, encrypted or not.

use std::io;

use mainstay_transport::{SocketSettings, Tls, TlsMode, TlsSettings, open};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use url::Url;

use crate::settings::S3Settings;

/// What requests and answers go over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) async fn connect(settings: &S3Settings, url: &Url) -> io::Result<Box<dyn Stream>> {
    let host = url.host_str().unwrap_or_default();
    // An address of the sixth version stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    let stream = reach(host, port).await?;
    if url.scheme() == "http" {
        return Ok(Box::new(stream));
    }
    let tls = TlsSettings {
        mode: TlsMode::VerifyFull,
        ca: settings.authorities(),
        certificate: None,
        key: None,
    };
    match Tls::load(&tls, host).await?.connect(stream) {
        Some(handshake) => Ok(Box::new(handshake.await?)),
        None => Err(io::Error::other("encryption is off")),
    }
}

/// The first address that answers.
async fn reach(host: &str, port: u16) -> io::Result<TcpStream> {
    let settings = SocketSettings::default();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for address in lookup_host((host, port)).await? {
        match open(address, &settings).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
