//! From a name to a connection that the broker has welcomed.

use bytes::BytesMut;
use mainstay_transport::reach;
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
    let (host, port) = (&settings.host, settings.port);
    let reached = reach(host, port, limit, &settings.socket).await;
    let mut stream =
        reached.map_err(|error| End::of(format!("cannot connect to {host}:{port}: {error}")))?;
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
