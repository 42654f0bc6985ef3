//! TCP connections to a server.

use std::io;
use std::net::SocketAddr;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

use crate::settings::SocketSettings;

/// A connection to one address, without delay of small packets.
///
/// # Errors
/// What the network said, or an option that the kernel refuses.
pub async fn open(address: SocketAddr, settings: &SocketSettings) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let socket = SockRef::from(&stream);
    #[cfg(target_os = "linux")]
    if let Some(limit) = settings.user_timeout {
        socket.set_tcp_user_timeout(Some(limit))?;
    }
    if let Some(keepalive) = settings.keepalive {
        let wish = TcpKeepalive::new()
            .with_time(keepalive.idle)
            .with_interval(keepalive.interval)
            .with_retries(keepalive.retries);
        socket.set_tcp_keepalive(&wish)?;
    }
    Ok(stream)
}
