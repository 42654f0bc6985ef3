//! One connection carried between a client and the server, with the faults that the plan orders.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::conversation::{Pending, Piece, Statement, Unit};
use super::ledger::Place;
use super::plan::{Action, Cut, Fault, Moment, Point};
use super::talk::Talk;
use super::{Control, Shared};

/// How long the server is listened to after the client is gone, and a client that was told of the
/// end is waited for.
const LINGER: Duration = Duration::from_secs(5);

/// Why a connection ends.
#[derive(Debug, Clone, Copy)]
enum End {
    Client,
    /// The server ended it, in the form the client is to see.
    Server(Cut),
    Fault(Fault, Cut),
}

/// Carries one connection to its end.
pub(super) async fn carry(
    shared: Arc<Shared>,
    number: u64,
    client: TcpStream,
    mut control: watch::Receiver<Control>,
) {
    passable(&mut control).await;
    let Ok(server) = TcpStream::connect(("127.0.0.1", shared.upstream)).await else {
        return cut(client, Cut::Rst).await;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let conversation = Mutex::new(Talk::new(shared.protocol));
    let relay = Relay {
        shared: &shared,
        number,
        conversation,
        silence: Mutex::default(),
        struck: Mutex::default(),
    };
    relay.run(client, server, control).await;
}

struct Relay<'a> {
    shared: &'a Shared,
    number: u64,
    conversation: Mutex<Talk>,
    /// The fault from which on nothing passes.
    silence: Mutex<Option<Fault>>,
    /// Its statements in the ledger.
    struck: Mutex<Vec<Place>>,
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        let mut ledger = self.shared.ledger();
        for place in self.struck().drain(..) {
            ledger.close(place);
        }
    }
}

impl Relay<'_> {
    async fn run(
        &self,
        mut client: TcpStream,
        mut server: TcpStream,
        control: watch::Receiver<Control>,
    ) {
        // Outside the two directions: what they have not looked at yet is looked at when one ends.
        let (mut asked, mut said) = (BytesMut::new(), BytesMut::new());
        let end = {
            let (client_reads, client_writes) = client.split();
            let (server_reads, server_writes) = server.split();
            tokio::select! {
                end = self.upward(client_reads, server_writes, &mut asked, control.clone()) => end,
                end = self.downward(server_reads, client_writes, &mut said, control.clone()) => end,
                end = cut_from_outside(control) => end,
            }
        };
        match end {
            End::Client => {
                // One that only ended its own half, as after a cancel request, still waits for the
                // server's end.
                self.listen(server, said).await;
                drop(client);
            }
            End::Server(form) => cut(client, form).await,
            End::Fault(fault, form) => {
                self.sweep(fault, &mut asked);
                tokio::join!(cut(client, form), self.listen(server, said));
            }
        }
    }

    /// From the client to the server.
    async fn upward(
        &self,
        mut client: ReadHalf<'_>,
        mut server: WriteHalf<'_>,
        asked: &mut BytesMut,
        mut control: watch::Receiver<Control>,
    ) -> End {
        loop {
            if !matches!(client.read_buf(asked).await, Ok(1..)) {
                return End::Client;
            }
            passable(&mut control).await;
            loop {
                let unit = match self.conversation().take(asked) {
                    Ok(Some(unit)) => unit,
                    Ok(None) => break,
                    Err(_) => return End::Server(Cut::Rst),
                };
                if let Some(end) = self.send(unit, &mut server).await {
                    return end;
                }
            }
        }
    }

    /// Hands one unit to the server, unless its fault comes first.
    async fn send(&self, unit: Unit, server: &mut WriteHalf<'_>) -> Option<End> {
        let silence = *self.silence();
        if let Some(fault) = silence {
            self.sweep_unit(unit, fault);
            return None;
        }
        let mut pending = self.decide(&unit);
        let fault = pending.fault;
        let strikes = |point| fault.filter(|fault| fault.point == point);
        if let Some(fault) = strikes(Point::BeforeSend) {
            match fault.action {
                Action::Cut(form) => return Some(End::Fault(fault, form)),
                Action::Hang => {
                    self.fall_silent(fault);
                    return None;
                }
                Action::Delay(delay) => sleep(delay).await,
            }
        }
        self.note_forwarded(&pending);
        if let Some(Action::Delay(delay)) = strikes(Point::AfterSend).map(|fault| fault.action) {
            pending.not_before = Some(Instant::now() + delay);
        }
        // Noted before it is written: the answer may be here before the writing returns.
        self.conversation().sent(pending);
        if server.write_all(&unit.bytes).await.is_err() {
            // The other direction passes on the server's last words and then ends.
            return std::future::pending().await;
        }
        let fault = strikes(Point::AfterSend)?;
        match fault.action {
            Action::Cut(form) => return Some(End::Fault(fault, form)),
            Action::Hang => self.fall_silent(fault),
            Action::Delay(_) => {}
        }
        None
    }

    /// Asks the plan about each statement of a unit; the first fault is the unit's.
    fn decide(&self, unit: &Unit) -> Pending {
        let mut pending = Pending::new(unit.awaits);
        for moment in self.moments(unit) {
            let fault = match pending.fault {
                Some(_) => None,
                None => self.shared.plan().decide(&moment),
            };
            let place = fault.and_then(|fault| self.shared.ledger().plan(moment.clone(), fault));
            self.struck().extend(place.map(Some));
            pending.fault = pending.fault.or(fault);
            pending.moments.push((moment, place));
        }
        pending
    }

    fn moments(&self, unit: &Unit) -> Vec<Moment> {
        let moment = |statement: &Statement| Moment {
            connection: self.number,
            number: self.shared.count_statement(),
            kind: statement.kind,
            text: statement.text.clone(),
            parameters: statement.parameters.clone(),
        };
        unit.statements.iter().map(moment).collect()
    }

    fn note_forwarded(&self, pending: &Pending) {
        let mut ledger = self.shared.ledger();
        for (_, place) in &pending.moments {
            ledger.forwarded(*place);
        }
    }

    /// From the server to the client.
    async fn downward(
        &self,
        mut server: ReadHalf<'_>,
        mut client: WriteHalf<'_>,
        said: &mut BytesMut,
        mut control: watch::Receiver<Control>,
    ) -> End {
        loop {
            let ended = match server.read_buf(said).await {
                Ok(0) => Some(Cut::Fin),
                Ok(_) => None,
                Err(_) => Some(Cut::Rst),
            };
            passable(&mut control).await;
            match ended {
                // After a hang the client is told of nothing, not even of the end.
                Some(_) if self.silence().is_some() => std::future::pending().await,
                Some(form) => return End::Server(form),
                None => {}
            }
            match self.pass(said, &mut client).await {
                Ok(None) => {}
                Ok(Some(end)) => return end,
                Err(_) => return End::Client,
            }
        }
    }

    /// Passes on what the server said, up to a fault.
    async fn pass(&self, said: &mut BytesMut, client: &mut WriteHalf<'_>) -> Result<Option<End>> {
        let mut out = BytesMut::new();
        while let Some(piece) = self.next_piece(said)? {
            let mut held = piece.not_before;
            match piece
                .fault
                .filter(|fault| fault.point == Point::BeforeAnswer)
            {
                None => {}
                Some(Fault {
                    action: Action::Delay(delay),
                    ..
                }) => held = Some(Instant::now() + delay),
                // Its answer is swallowed, and nothing else is done until it has run.
                Some(_) if !piece.ran => continue,
                Some(fault) => {
                    self.write(&mut out, client).await?;
                    if let Action::Cut(form) = fault.action {
                        return Ok(Some(End::Fault(fault, form)));
                    }
                    self.fall_silent(fault);
                    continue;
                }
            }
            if let Some(until) = held.filter(|_| piece.first) {
                self.write(&mut out, client).await?;
                sleep_until(until).await;
            }
            out.extend_from_slice(&piece.bytes);
        }
        self.write(&mut out, client).await?;
        Ok(None)
    }

    async fn write(&self, out: &mut BytesMut, client: &mut WriteHalf<'_>) -> io::Result<()> {
        let bytes = out.split();
        let silent = self.silence().is_some();
        if silent {
            Ok(())
        } else {
            client.write_all(&bytes).await
        }
    }

    /// The next piece, with its answer entered in the ledger.
    fn next_piece(&self, said: &mut BytesMut) -> Result<Option<Piece>> {
        let piece = self.conversation().piece(said)?;
        if let Some((units, answer)) = piece.as_ref().and_then(|piece| piece.answered.as_ref()) {
            let mut ledger = self.shared.ledger();
            for (_, place) in units.iter().flat_map(|unit| &unit.moments) {
                ledger.answered(*place, answer);
            }
        }
        Ok(piece)
    }

    /// Tells the server that nothing more comes, and notes what it still answers.
    async fn listen(&self, mut server: TcpStream, mut said: BytesMut) {
        let end = Instant::now() + LINGER;
        let _ = server.shutdown().await;
        loop {
            while let Ok(Some(_)) = self.next_piece(&mut said) {}
            match timeout_at(end, server.read_buf(&mut said)).await {
                Ok(Ok(1..)) => {}
                _ => return,
            }
        }
    }

    fn fall_silent(&self, fault: Fault) {
        *self.silence() = Some(fault);
        self.sweep_pending(fault);
    }

    /// Enters every statement that shares the fate of a struck one.
    fn sweep(&self, fault: Fault, asked: &mut BytesMut) {
        self.sweep_pending(fault);
        loop {
            let unit = self.conversation().take(asked);
            match unit {
                Ok(Some(unit)) => self.sweep_unit(unit, fault),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Those that were handed over and are not answered.
    fn sweep_pending(&self, fault: Fault) {
        let mut conversation = self.conversation();
        let mut ledger = self.shared.ledger();
        for (moment, place) in conversation.pending().flat_map(|unit| &mut unit.moments) {
            if place.is_none() {
                *place = ledger.sweep(moment.clone(), fault, true);
                self.struck().push(*place);
            }
        }
    }

    /// Those that were not handed over.
    fn sweep_unit(&self, unit: Unit, fault: Fault) {
        for moment in self.moments(&unit) {
            let place = self.shared.ledger().sweep(moment, fault, false);
            self.struck().push(place);
        }
    }

    fn conversation(&self) -> MutexGuard<'_, Talk> {
        self.conversation
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn struck(&self) -> MutexGuard<'_, Vec<Place>> {
        self.struck.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn silence(&self) -> MutexGuard<'_, Option<Fault>> {
        self.silence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until bytes may pass: not in a black hole.
async fn passable(control: &mut watch::Receiver<Control>) {
    // The proxy is gone: the connection is ended from outside.
    let _ = control.wait_for(|control| !control.black_hole).await;
}

async fn cut_from_outside(mut control: watch::Receiver<Control>) -> End {
    let seen = control.borrow().cut.0;
    let ordered = control
        .wait_for(|control| control.cut.0 != seen)
        .await
        .map(|control| control.cut.1);
    match ordered {
        Ok(form) => End::Fault(Fault::new(Point::AfterSend, Action::Cut(form)), form),
        // The proxy is gone: the connection is ended from outside.
        Err(_) => std::future::pending().await,
    }
}

/// Ends a client's connection in this form.
async fn cut(mut client: TcpStream, form: Cut) {
    match form {
        Cut::Rst => {
            let _ = client.set_zero_linger();
        }
        Cut::Fin => {
            let _ = client.shutdown().await;
            // Closing a socket with unread bytes resets it: read them until the client closes.
            let (end, mut rest) = (Instant::now() + LINGER, [0; 4096]);
            while let Ok(Ok(1..)) = timeout_at(end, client.read(&mut rest)).await {}
        }
    }
}
