//! Keeps a connection up, for ever.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use mainstay_message::{Link, PublishErrorKind};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection::{Connection, Outcome, refuse};
use crate::session::{End, Login, Outgoing};
use crate::settings::AmqpSettings;
use crate::shared::Shared;

/// A connection that stood so long begins the waits anew when it ends.
const STOOD: Duration = Duration::from_secs(10);

/// Tells everybody when the task is over, also when it is dropped.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.ended();
    }
}

/// Connects, and connects again, until it is closed.
pub(crate) async fn keep(
    shared: Arc<Shared>,
    mut queue: mpsc::UnboundedReceiver<Outgoing>,
    rng: fastrand::Rng,
) {
    let _farewell = Farewell(Arc::clone(&shared));
    let mut waits = Waits::new(&shared.settings, rng);
    let (mut number, mut attempts) = (1, 0);
    while !shared.is_closing() {
        let Outcome { end, stood } = attempt(&shared, &mut queue, number).await;
        if shared.is_closing() {
            break;
        }
        (number, attempts) = match stood {
            Some(_) => (number + 1, 0),
            None => (number, attempts + 1),
        };
        waits.stood(stood.unwrap_or_default());
        tracing::warn!(host = %shared.settings.host, attempts, "no connection to the broker: {}", end.reason);
        let reason: Arc<str> = end.reason.into();
        shared.link.send_replace(Link::Down {
            attempts,
            reason: Some(Arc::clone(&reason)),
            refused: end.refused,
        });
        let wait = sleep(waits.next());
        refusing(&shared, &mut queue, Some(&reason), wait).await;
    }
    queue.close();
    while let Ok(message) = queue.try_recv() {
        refuse(message, PublishErrorKind::Closed);
    }
}

/// One connection from its name to its end.
async fn attempt(
    shared: &Shared,
    queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    number: u64,
) -> Outcome {
    let due = Instant::now() + shared.settings.connect_timeout;
    let settings = &shared.settings;
    let connecting = async {
        match timeout_at(due, connect(settings, due)).await {
            Ok(connected) => connected,
            Err(_) => {
                let (host, port, limit) = (&settings.host, settings.port, settings.connect_timeout);
                Err(End::lost(format!(
                    "{host}:{port} did not answer within {limit:?}"
                )))
            }
        }
    };
    match refusing(shared, queue, None, connecting).await {
        Some(Ok((stream, login))) => {
            Connection::new(shared, &login, number, due)
                .run(stream, queue)
                .await
        }
        Some(Err(end)) => Outcome { end, stood: None },
        None => Outcome {
            end: End::lost("closed by us"),
            stood: None,
        },
    }
}

async fn connect(settings: &AmqpSettings, due: Instant) -> Result<(TcpStream, Login), End> {
    let password = match &settings.password {
        None => String::new(),
        Some(secret) => {
            let read = secret.read();
            read.map_err(|error| End {
                reason: format!("the password cannot be read: {error}"),
                refused: true,
            })?
        }
    };
    let login = Login {
        user: settings.user.clone(),
        password,
    };
    let (host, port) = (settings.host.as_str(), settings.port);
    let limit = due.saturating_duration_since(Instant::now());
    match mainstay_transport::reach(host, port, limit, &settings.socket).await {
        Ok(stream) => Ok((stream, login)),
        Err(error) => Err(End::lost(format!(
            "cannot connect to {host}:{port}: {error}"
        ))),
    }
}

/// Waits for something while there is no connection: publications are given back at once. `None`: closed meanwhile.
async fn refusing<T>(
    shared: &Shared,
    queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    reason: Option<&Arc<str>>,
    waited: impl Future<Output = T>,
) -> Option<T> {
    let mut waited = std::pin::pin!(waited);
    loop {
        if shared.is_closing() {
            return None;
        }
        tokio::select! {
            biased;
            done = waited.as_mut() => return Some(done),
            Some(message) = queue.recv() => {
                refuse(message, PublishErrorKind::NotConnected { reason: reason.cloned() });
            }
            () = shared.wake.notified() => {}
        }
    }
}

/// The waits between connections.
struct Waits {
    min: Duration,
    max: Duration,
    next: Duration,
    rng: fastrand::Rng,
}

impl Waits {
    fn new(settings: &AmqpSettings, rng: fastrand::Rng) -> Self {
        let (min, max) = (
            settings.backoff_min,
            settings.backoff_max.max(settings.backoff_min),
        );
        Waits {
            min,
            max,
            next: min,
            rng,
        }
    }

    /// What comes up and ends at once, again and again, is no better than what does not come up.
    fn stood(&mut self, stood: Duration) {
        if stood >= STOOD {
            self.next = self.min;
        }
    }

    fn next(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.max);
        wait.mul_f64(1.0 - self.rng.f64() / 5.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_again_once_a_connection_stood() {
        let settings = AmqpSettings::new("host", "user");
        let mut waits = Waits::new(&settings, fastrand::Rng::with_seed(1));
        let mut expected = 100;
        for _ in 0..9 {
            let wait = waits.next().as_millis();
            assert!(
                (expected * 4 / 5..=expected).contains(&wait),
                "{wait} of {expected}"
            );
            expected = (expected * 2).min(5000);
        }
        waits.stood(STOOD - Duration::from_millis(1));
        assert!(waits.next() > settings.backoff_min);
        waits.stood(STOOD);
        assert!(waits.next() <= settings.backoff_min);
    }
}
