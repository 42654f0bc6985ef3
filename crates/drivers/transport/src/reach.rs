//! A name with several addresses.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout};

use crate::settings::SocketSettings;
use crate::socket::open;

/// A connection to the first address of a host that answers, all within `limit`. The time that is left is shared by
/// the addresses that are left, so that one that swallows packets does not hide the others.
///
/// Cancel safe: a connection that was begun is dropped.
///
/// # Errors
/// What the resolver said, or what the network said of the last address; it names the address.
pub async fn reach(
    host: &str,
    port: u16,
    limit: Duration,
    settings: &SocketSettings,
) -> io::Result<TcpStream> {
    let until = Instant::now() + limit;
    let Ok(found) = timeout(limit, lookup_host((host, port))).await else {
        let message = format!("the name was not resolved within {limit:?}");
        return Err(io::Error::new(io::ErrorKind::TimedOut, message));
    };
    let found = found.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("the host {host} was not found: {error}"),
        )
    })?;
    first(&found.collect::<Vec<_>>(), until, |address| {
        open(address, settings)
    })
    .await
}

/// The first connection that comes about.
async fn first<C, F: Future<Output = io::Result<C>>>(
    addresses: &[SocketAddr],
    until: Instant,
    open: impl Fn(SocketAddr) -> F,
) -> io::Result<C> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let remaining = (addresses.len() - tried) as u32;
        let share = until.saturating_duration_since(Instant::now()) / remaining;
        last = match timeout(share, open(*address)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => io::Error::new(error.kind(), format!("{address}: {error}")),
            Err(_) => {
                let message = format!("{address} did not answer within {share:?}");
                io::Error::new(io::ErrorKind::TimedOut, message)
            }
        };
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_address_that_swallows_packets_does_not_hide_the_next() {
        let addresses: Vec<SocketAddr> = (1..=3)
            .map(|last| SocketAddr::from(([10, 0, 0, last], 1)))
            .collect();
        let begin = Instant::now();
        let until = begin + Duration::from_secs(9);
        let open = |address: SocketAddr| async move {
            match address == SocketAddr::from(([10, 0, 0, 3], 1)) {
                true => Ok(address),
                false => std::future::pending().await,
            }
        };
        assert_eq!(first(&addresses, until, open).await.unwrap(), addresses[2]);
        assert_eq!(begin.elapsed(), Duration::from_secs(6));
        let until = Instant::now() + Duration::from_secs(9);
        let error = first(&addresses[..2], until, open).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("10.0.0.2:1"), "{error}");
        assert_eq!(Instant::now(), until);
    }
}
