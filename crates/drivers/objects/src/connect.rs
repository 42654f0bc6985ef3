//! A connection to the store, encrypted or not.

use std::io;

use mainstay_transport::{SocketSettings, reach};
use tokio::io::{AsyncRead, AsyncWrite};
use url::Url;

use crate::settings::S3Settings;
use crate::trust::Trust;

/// What requests and answers go over.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

pub(crate) async fn connect(
    settings: &S3Settings,
    trust: &Trust,
    url: &Url,
) -> io::Result<Box<dyn Stream>> {
    let host = url.host_str().unwrap_or_default();
    // An address of the sixth version stands in brackets.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = url.port_or_known_default().unwrap_or_default();
    let limit = settings.connect_timeout;
    let stream = reach(host, port, limit, &SocketSettings::default()).await?;
    if url.scheme() == "http" {
        return Ok(Box::new(stream));
    }
    match trust.tls(settings, host).await?.connect(stream) {
        Some(handshake) => Ok(Box::new(handshake.await?)),
        None => Err(io::Error::other("encryption is off")),
    }
}
