//! A connection that stands.

use std::future::{pending, poll_fn};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use mainstay_message::Delivery;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::io::poll_read_buf;

use super::Driver;
use crate::end::End;
use crate::session::Session;
use crate::wire::{Packet, Reason, frame};

/// Room for reading: many small packets at once.
const READ: usize = 64 * 1024;
/// How much is read ahead of a large packet's end: memory is taken as bytes come, not as they are
/// announced.
const READ_AHEAD: usize = 1024 * 1024;
/// Parts of the output that are written at once.
const PARTS: usize = 32;
/// The whole of a close: what is under way may end, then goodbye.
const CLOSE_MAX: Duration = Duration::from_millis(900);

impl Driver {
    /// Works until the connection ends. `None`: by us.
    pub(super) async fn pump<S>(&mut self, mut stream: S) -> Option<End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        match self.work(&mut stream).await {
            Ok(()) => {
                let _ = timeout(CLOSE_MAX, self.part(&mut stream)).await;
                None
            }
            Err(end) => {
                tell(&mut stream, &mut self.session, &end).await;
                Some(end)
            }
        }
    }

    /// `Ok`: we are to close.
    async fn work<S>(&mut self, stream: &mut S) -> Result<(), End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let mut alarm = std::pin::pin!(sleep_until(Instant::now()));
        loop {
            let now = Instant::now();
            self.take_in(now);
            digest(
                &mut self.session,
                &mut self.input,
                self.settings.packet_max,
                now,
            )?;
            if self.session.is_due(now) {
                self.session.tick(now)?;
            }
            set(&mut alarm, self.session.next_tick(), now);
            let can_take = self.session.can_take();
            let stalled = self.session.stalled_at();
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return Ok(()),
                number = self.closed.next() => self.session.unsubscribe(number, now),
                moved = transfer(stream, &mut self.session, &mut self.input) => moved?,
                Some(order) = self.orders.recv(), if can_take => self.publish(order, Instant::now()),
                () = self.returns.come() => {}
                () = room(stalled) => self.session.unstall(Instant::now()),
                Some(slot) = self.slots.recv() => self.subscribe(slot),
                () = &mut alarm => {}
            }
        }
    }

    /// Takes everything that waits in this program, so that it leaves together.
    fn take_in(&mut self, now: Instant) {
        self.settle();
        while let Ok(slot) = self.slots.try_recv() {
            self.subscribe(slot);
        }
        while self.session.can_take() {
            match self.orders.try_recv() {
                Ok(order) => self.publish(order, now),
                Err(_) => break,
            }
        }
    }

    /// Lets what is under way end, then says goodbye.
    async fn part<S>(&mut self, stream: &mut S) -> Result<(), End>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send,
    {
        let grace = timeout(CLOSE_MAX / 2, async {
            loop {
                let now = Instant::now();
                self.take_in(now);
                digest(
                    &mut self.session,
                    &mut self.input,
                    self.settings.packet_max,
                    now,
                )?;
                if self.session.is_settled() {
                    return Ok::<(), End>(());
                }
                transfer(stream, &mut self.session, &mut self.input).await?;
            }
        });
        // Whatever it came to, we go.
        let _ = grace.await;
        self.session.leave(Reason::SUCCESS);
        flush(stream, &mut self.session).await.map_err(broken)
    }
}

/// Tells the broker why we leave it, where there is something to tell.
pub(super) async fn tell<S>(stream: &mut S, session: &mut Session, end: &End)
where
    S: AsyncWrite + Unpin,
{
    if let Some(reason) = end.tell {
        session.leave(reason);
        // It may listen no more.
        let _ = timeout(CLOSE_MAX, flush(stream, session)).await;
    }
}

async fn flush<S>(stream: &mut S, session: &mut Session) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    stream.write_all_buf(&mut session.out).await?;
    session.wrote(Instant::now());
    stream.shutdown().await
}

/// Takes every whole packet that has come.
pub(super) fn digest(
    session: &mut Session,
    input: &mut BytesMut,
    packet_max: usize,
    now: Instant,
) -> Result<(), End> {
    while session.can_read() {
        match frame(input, packet_max)? {
            Ok(frame) => frame.take(input, |content, keep| {
                let packet = Packet::read(frame.first, content, keep)?;
                session.packet(packet, now)
            })?,
            Err(missing) => {
                input.reserve(missing.clamp(READ, READ_AHEAD));
                break;
            }
        }
    }
    Ok(())
}

/// Sets the alarm where it would come too late. One that comes too early looks and is set again.
fn set(alarm: &mut Pin<&mut Sleep>, next: Option<Instant>, now: Instant) {
    const FAR: Duration = Duration::from_secs(3600);
    let next = next.unwrap_or(now + FAR);
    if alarm.is_elapsed() || next < alarm.deadline() {
        alarm.as_mut().reset(next);
    }
}

/// Waits until a receiver has room, or is gone.
async fn room(stalled: Option<mpsc::Sender<Delivery>>) {
    match stalled {
        // A permit that is given back at once.
        Some(deliveries) => drop(deliveries.reserve().await),
        None => pending().await,
    }
}

/// Writes what waits and reads what has come, whichever goes, without waiting for the other. Cancel safe:
/// what has moved is accounted for at once.
pub(super) async fn transfer<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut S,
    session: &mut Session,
    input: &mut BytesMut,
) -> Result<(), End> {
    poll_fn(|context| {
        let wrote = poll_write(stream, session, context)?;
        let read = match session.can_read() {
            true => poll_read(stream, session, input, context)?,
            false => Poll::Pending,
        };
        match (wrote, read) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    })
    .await
}

/// Writes as much as the socket takes. Ready: something was written.
fn poll_write<S: AsyncWrite + Unpin>(
    stream: &mut S,
    session: &mut Session,
    context: &mut Context<'_>,
) -> Result<Poll<()>, End> {
    let mut has_moved = false;
    while session.out.has_remaining() {
        let mut slices = [IoSlice::new(&[]); PARTS];
        let count = session.out.chunks_vectored(&mut slices);
        match Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count]) {
            Poll::Ready(Ok(0)) => return Err(broken(io::ErrorKind::WriteZero.into())),
            Poll::Ready(Ok(count)) => {
                session.out.advance(count);
                session.wrote(Instant::now());
                has_moved = true;
            }
            Poll::Ready(Err(error)) => return Err(broken(error)),
            Poll::Pending => break,
        }
    }
    Ok(if has_moved {
        Poll::Ready(())
    } else {
        Poll::Pending
    })
}

/// Reads once.
fn poll_read<S: AsyncRead + Unpin>(
    stream: &mut S,
    session: &mut Session,
    input: &mut BytesMut,
    context: &mut Context<'_>,
) -> Result<Poll<()>, End> {
    match poll_read_buf(Pin::new(stream), context, input) {
        Poll::Ready(Ok(0)) => Err(End::of(
            "the broker closed the connection without a reason; where that happens again and again, \
             another client may use the same client id",
        )),
        Poll::Ready(Ok(_)) => {
            session.heard(Instant::now());
            Ok(Poll::Ready(()))
        }
        Poll::Ready(Err(error)) => Err(broken(error)),
        Poll::Pending => Ok(Poll::Pending),
    }
}

fn broken(error: io::Error) -> End {
    End::of(format!("the connection broke: {error}"))
}
