//! Moves the bytes of one connection between its socket and its session.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use mainstay_message::{Link, PublishError, PublishErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};

use crate::session::{End, Login, Outgoing, Session};
use crate::shared::Shared;
use crate::waiting::Waiting;
use crate::wire::{Output, split};

/// What is read at once, and how little room for it may be left.
const READ: usize = 64 * 1024;
const READ_MIN: usize = 16 * 1024;
/// Publications are taken on while less than this waits for the socket.
const OUTPUT_MAX: usize = 1 << 20;
/// How long the broker may take to answer our goodbye, and to take the last bytes.
const GOODBYE: Duration = Duration::from_secs(1);
const LAST_BYTES: Duration = Duration::from_millis(200);

/// One connection from its first byte to its end.
pub(crate) struct Connection<'a> {
    shared: &'a Shared,
    login: &'a Login,
    session: Session,
    waiting: Waiting,
    out: Output,
    buffer: BytesMut,
    /// When the broker said something last, and when we did.
    heard: Instant,
    said: Instant,
    /// Until when it has to be up, or to have answered our goodbye.
    due: Option<Instant>,
    closing: bool,
    /// The number that it has if it comes up.
    number: u64,
    /// When it came up.
    since: Option<Instant>,
    /// What the link says of it.
    told: Option<Option<Arc<str>>>,
}

/// How a connection ended.
pub(crate) struct Outcome {
    pub(crate) end: End,
    /// How long it was up; `None`: never.
    pub(crate) stood: Option<Duration>,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(shared: &'a Shared, login: &'a Login, number: u64, due: Instant) -> Self {
        let now = Instant::now();
        Connection {
            session: Session::new(Arc::clone(&shared.settings), Arc::clone(&shared.counters)),
            shared,
            login,
            waiting: Waiting::new(),
            out: Output::default(),
            buffer: BytesMut::with_capacity(READ),
            heard: now,
            said: now,
            due: Some(due),
            closing: false,
            number,
            since: None,
            told: None,
        }
    }

    /// Runs it to its end. Publications that it took on and that were not confirmed are told then.
    pub(crate) async fn run(
        mut self,
        mut stream: TcpStream,
        queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    ) -> Outcome {
        Session::greet(&mut self.out);
        let end = match self.converse(&mut stream, queue).await {
            Ok(()) => End::lost("closed by us"),
            Err(end) => end,
        };
        // The answer to the broker's goodbye.
        let _ = timeout(LAST_BYTES, stream.write_all_buf(&mut self.out)).await;
        let reason: Arc<str> = end.reason.as_str().into();
        while let Some(message) = self.waiting.pop() {
            refuse(message, self.not_connected(Some(Arc::clone(&reason))));
        }
        self.session.end(&self.out, &reason);
        Outcome {
            end,
            stood: self.since.map(|since| since.elapsed()),
        }
    }

    async fn converse(
        &mut self,
        stream: &mut TcpStream,
        queue: &mut mpsc::UnboundedReceiver<Outgoing>,
    ) -> Result<(), End> {
        let (mut read, mut write) = stream.split();
        let mut timer = std::pin::pin!(sleep_until(self.next()));
        loop {
            self.attend(queue);
            if self.session.is_closed() {
                return Ok(());
            }
            self.arm(timer.as_mut());
            self.make_room();
            tokio::select! {
                came = read.read_buf(&mut self.buffer) => match came {
                    Ok(0) => return Err(End::lost("the broker closed the connection")),
                    Ok(_) => self.receive()?,
                    Err(error) => return Err(End::lost(error.to_string())),
                },
                left = write.write_buf(&mut self.out), if self.out.has_remaining() => match left {
                    Ok(_) => self.said = Instant::now(),
                    Err(error) => return Err(End::lost(error.to_string())),
                },
                Some(message) = queue.recv() => self.take(message),
                () = self.shared.wake.notified() => {}
                () = timer.as_mut() => self.tick()?,
            }
        }
    }

    fn has_room(&self) -> bool {
        self.out.remaining() < OUTPUT_MAX
    }

    fn make_room(&mut self) {
        if self.buffer.capacity() - self.buffer.len() < READ_MIN {
            self.buffer.reserve(READ);
        }
    }

    /// Does what there is to do without waiting.
    fn attend(&mut self, queue: &mut mpsc::UnboundedReceiver<Outgoing>) {
        let now = Instant::now();
        self.tell();
        if self.shared.is_closing() {
            self.say_goodbye(now);
        }
        let Connection {
            shared,
            session,
            out,
            ..
        } = self;
        session.tend(out, now);
        shared.with_subscriptions(|subscriptions| session.follow(subscriptions, out));
        while let Ok(message) = queue.try_recv() {
            self.take(message);
        }
        while self.session.can_publish() && self.has_room() {
            let Some(message) = self.waiting.pop() else {
                break;
            };
            self.session.publish(message, &mut self.out, now);
        }
    }

    fn take(&mut self, message: Outgoing) {
        match self.session.is_up() {
            true => self.waiting.push(message),
            false => refuse(message, self.not_connected(None)),
        }
    }

    fn not_connected(&self, reason: Option<Arc<str>>) -> PublishErrorKind {
        match self.closing {
            true => PublishErrorKind::Closed,
            false => PublishErrorKind::NotConnected { reason },
        }
    }

    fn receive(&mut self) -> Result<(), End> {
        let now = Instant::now();
        self.heard = now;
        let mut at = 0;
        while let Some(frame) = split(&self.buffer[at..], self.session.frame_max())
            .map_err(|error| End::lost(error.to_string()))?
        {
            at += frame.length();
            self.session
                .receive(frame, self.login, &mut self.out, now)?;
        }
        self.buffer.advance(at);
        Ok(())
    }

    /// Tells the link's state where it has changed.
    fn tell(&mut self) {
        if !self.session.is_up() {
            return;
        }
        let blocked = self.session.blocked().cloned();
        if self.told.as_ref() != Some(&blocked) {
            self.due = None;
            self.since.get_or_insert_with(Instant::now);
            self.told = Some(blocked.clone());
            self.shared.link.send_replace(Link::Up {
                number: self.number,
                blocked,
            });
        }
    }

    fn say_goodbye(&mut self, now: Instant) {
        if !self.closing {
            self.closing = true;
            self.due = Some(now + GOODBYE);
            self.session.close(&mut self.out);
        }
    }

    /// When something has to be done although nothing happens.
    fn next(&self) -> Instant {
        let beat = self.session.beat();
        let mut next = self.heard + 4 * beat;
        // Before and after that nothing is said by itself, and a time in the past would never be left.
        if self.session.is_up() {
            next = next.min(self.said + beat);
        }
        if let Some(due) = self.due {
            next = next.min(due);
        }
        if let Some(after) = self.session.tend_after() {
            next = next.min(Instant::now() + after);
        }
        next
    }

    /// A timer that is too early does no harm; one that is too late does.
    fn arm(&self, timer: Pin<&mut Sleep>) {
        let next = self.next();
        if timer.is_elapsed() || timer.deadline() > next {
            timer.reset(next);
        }
    }

    fn tick(&mut self) -> Result<(), End> {
        let now = Instant::now();
        let beat = self.session.beat();
        if self.due.is_some_and(|due| now >= due) {
            return match self.closing {
                true => Err(End::lost("closed by us")),
                false => Err(End::lost("the broker did not answer the login in time")),
            };
        }
        if now >= self.heard + 4 * beat {
            let silence = (now - self.heard).as_secs();
            return Err(End::lost(format!(
                "the broker said nothing for {silence} s"
            )));
        }
        if self.session.is_up() && now >= self.said + beat {
            Session::heartbeat(&mut self.out);
            self.said = now;
        }
        Ok(())
    }
}

/// Gives a publication back of which nothing left.
pub(crate) fn refuse(message: Outgoing, why: PublishErrorKind) {
    let _ = message.reply.send(Err(PublishError::unsent(why)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::AmqpSettings;

    #[tokio::test(start_paused = true)]
    async fn a_slow_login_is_waited_for_and_not_watched() {
        let mut settings = AmqpSettings::new("host", "user");
        settings.heartbeat = Duration::from_secs(2);
        let shared = Shared::new(settings);
        let login = Login {
            user: "user".into(),
            password: String::new(),
        };
        let due = Instant::now() + Duration::from_secs(10);
        let mut connection = Connection::new(&shared, &login, 1, due);
        tokio::time::advance(Duration::from_secs(3)).await;
        connection.tick().unwrap();
        assert!(connection.next() > Instant::now());
    }
}
