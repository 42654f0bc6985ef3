//! From a name to a connection that the broker has welcomed.

use std::io;

use bytes::BytesMut;
use mainstay_transport::open;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use super::Driver;
use super::pump::{digest, tell, transfer};
use crate::end::End;
use crate::session::Session;
use crate::settings::MqttSettings;

impl Driver {
    /// Connects and is welcomed. Whoever wants to publish meanwhile is told that nothing stands.
    pub(super) async fn connect(&mut self) -> Result<TcpStream, End> {
        let refusal = self.not_connected();
        let dialled = greet(&self.settings, &mut self.session, &mut self.input);
        let mut dialled = std::pin::pin!(dialled);
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Err(End::of("closed")),
                Some(order) = self.orders.recv() => order.refuse(refusal.clone()),
                connected = &mut dialled => return connected,
            }
        }
    }
}

async fn greet(
    settings: &MqttSettings,
    session: &mut Session,
    input: &mut BytesMut,
) -> Result<TcpStream, End> {
    let password = match &settings.password {
        Some(secret) => Some(
            secret
                .read()
                .map_err(|error| End::of(format!("the password cannot be read: {error}")))?,
        ),
        None => None,
    };
    let limit = settings.connect_timeout;
    let mut stream = match timeout(limit, dial(settings)).await {
        Ok(dialled) => dialled.map_err(|error| {
            let (host, port) = (&settings.host, settings.port);
            End::of(format!("cannot connect to {host}:{port}: {error}"))
        })?,
        Err(_) => return Err(End::of(format!("no connection within {limit:?}"))),
    };
    session.greet(password.as_deref());
    let limit = settings.answer_timeout;
    let welcomed = timeout(limit, async {
        while !session.is_up() {
            transfer(&mut stream, session, input).await?;
            digest(session, input, settings.packet_max, Instant::now())?;
        }
        Ok(())
    });
    let late = |_| Err(End::of(format!("no welcome within {limit:?}")));
    match welcomed.await.unwrap_or_else(late) {
        Ok(()) => Ok(stream),
        Err(end) => {
            tell(&mut stream, session, &end).await;
            Err(end)
        }
    }
}

async fn dial(settings: &MqttSettings) -> io::Result<TcpStream> {
    let host = (settings.host.as_str(), settings.port);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in tokio::net::lookup_host(host).await? {
        match open(address, &settings.socket).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
