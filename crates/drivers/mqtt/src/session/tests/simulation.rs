//! The session against a model of a broker that keeps everything, over connections that break at any byte.

use std::collections::{BTreeMap, HashSet, VecDeque};

use bytes::{Buf, BytesMut};
use tokio::time::Duration;

use super::bench::{Answer, Bench, Inbox, acknowledge, message};
use crate::wire::{Outgoing, Output, Packet, Qos, Reason, frame, kind, write_ack};

/// A broker with one client, that it sends messages to and takes messages from, each once.
#[derive(Default)]
struct Model {
    /// Identifiers of messages that came and were not released.
    came: HashSet<u16>,
    /// What it has taken.
    taken: Vec<String>,
    /// What it sends: released ones are waited for to be completed.
    sending: BTreeMap<u16, (String, bool)>,
    waiting: VecDeque<String>,
    next: u16,
    out: Output,
}

impl Model {
    const WINDOW: usize = 5;

    fn greet(&mut self, is_known: bool) {
        self.out.clear();
        self.out
            .slice(&[0x20, 6, u8::from(is_known), 0, 3, 0x21, 0, 4]);
        for (id, (body, released)) in &self.sending {
            match released {
                true => write_ack(&mut self.out, kind::PUBREL, *id, Reason::SUCCESS),
                false => send(&mut self.out, *id, body, true),
            }
        }
    }

    fn pump(&mut self) {
        while self.sending.len() < Self::WINDOW
            && let Some(body) = self.waiting.pop_front()
        {
            self.next = self.next % 9 + 1;
            while self.sending.contains_key(&self.next) {
                self.next = self.next % 9 + 1;
            }
            send(&mut self.out, self.next, &body, false);
            self.sending.insert(self.next, (body, false));
        }
    }

    /// Takes every whole packet.
    fn take(&mut self, input: &mut BytesMut) {
        while let Ok(Ok(found)) = frame(input, usize::MAX) {
            found.take(input, |content, keep| match found.first >> 4 {
                kind::CONNECT => {}
                kind::SUBSCRIBE => {
                    self.out.slice(&[0x90, 4, content[0], content[1], 0, 2]);
                }
                kind::PINGREQ => self.out.slice(&[0xd0, 0]),
                _ => self.packet(Packet::read(found.first, content, keep).unwrap()),
            });
        }
        self.pump();
    }

    fn packet(&mut self, packet: Packet<'_>) {
        match packet {
            Packet::Publish(message) => {
                if self.came.insert(message.id) {
                    let body = std::str::from_utf8(&message.body).unwrap();
                    self.taken.push(body.to_owned());
                } else {
                    assert!(message.again, "an identifier in use: {message:?}");
                }
                write_ack(&mut self.out, kind::PUBREC, message.id, Reason::SUCCESS);
            }
            Packet::Ack(kind::PUBREL, ack) => {
                self.came.remove(&ack.id);
                write_ack(&mut self.out, kind::PUBCOMP, ack.id, Reason::SUCCESS);
            }
            Packet::Ack(kind::PUBREC, ack) => {
                if let Some((_, released)) = self.sending.get_mut(&ack.id) {
                    *released = true;
                }
                write_ack(&mut self.out, kind::PUBREL, ack.id, Reason::SUCCESS);
            }
            Packet::Ack(kind::PUBCOMP, ack) => {
                self.sending.remove(&ack.id);
            }
            other => panic!("{other:?}"),
        }
    }
}

fn send(out: &mut Output, id: u16, body: &str, again: bool) {
    let message = message("in", body);
    let packet = Outgoing {
        message: &message,
        qos: Qos::Two,
        id,
        again,
        expiry: None,
    };
    packet.write(out, usize::MAX).unwrap();
}

/// Moves a part of what waits.
fn some(from: &mut Output, to: &mut BytesMut, chance: &mut fastrand::Rng) {
    let count = chance.usize(..=from.remaining());
    to.extend_from_slice(&from.copy_to_bytes(count));
}

struct Run {
    bench: Bench,
    model: Model,
    inbox: Inbox,
    /// Under way to the broker and to us.
    there: BytesMut,
    here: BytesMut,
    held: Vec<mainstay_message::Delivery>,
    got: Vec<String>,
    published: Vec<(String, Answer)>,
    unsent: HashSet<String>,
    confirmed: HashSet<String>,
    chance: fastrand::Rng,
}

impl Run {
    fn step(&mut self) {
        let now = self.bench.now;
        some(
            &mut self.bench.session.out,
            &mut self.there,
            &mut self.chance,
        );
        self.bench.session.wrote(now);
        self.model.take(&mut self.there);
        some(&mut self.model.out, &mut self.here, &mut self.chance);
        while let Ok(Ok(found)) = frame(&self.here, usize::MAX) {
            let session = &mut self.bench.session;
            found.take(&mut self.here, |content, keep| {
                let packet = Packet::read(found.first, content, keep).unwrap();
                session.packet(packet, now).unwrap();
            });
        }
        for delivery in self.inbox.take() {
            self.got
                .push(String::from_utf8(delivery.body.to_vec()).unwrap());
            self.held.push(delivery);
        }
        if !self.held.is_empty() && self.chance.bool() {
            let place = self.chance.usize(..self.held.len());
            acknowledge(self.held.swap_remove(place));
        }
        self.bench.settle();
        self.published
            .retain_mut(|(body, answer)| match answer.try_recv() {
                Ok(Ok(())) => {
                    assert!(self.confirmed.insert(body.clone()));
                    false
                }
                Ok(Err(error)) => {
                    assert_eq!(error.sent, mainstay_engine::Sent::No, "{error}");
                    self.unsent.insert(body.clone());
                    false
                }
                Err(_) => true,
            });
    }

    fn cut(&mut self) {
        self.bench.lose();
        self.there.clear();
        self.here.clear();
        self.bench.session.greet(None);
        self.model.greet(true);
        self.bench.pass(Duration::from_millis(1));
    }
}

fn run(seed: u64) {
    const COUNT: usize = 120;
    let mut bench = Bench::new();
    let inbox = bench.durable();
    let mut model = Model::default();
    bench.session.greet(None);
    model.greet(false);
    let mut run = Run {
        bench,
        model,
        inbox,
        there: BytesMut::new(),
        here: BytesMut::new(),
        held: Vec::new(),
        got: Vec::new(),
        published: Vec::new(),
        unsent: HashSet::new(),
        confirmed: HashSet::new(),
        chance: fastrand::Rng::with_seed(seed),
    };
    let (mut to_publish, mut to_send) = (0, 0);
    for step in 0..20_000 {
        if to_publish < COUNT && run.bench.session.can_take() {
            let body = format!("out-{to_publish}");
            let answer = run.bench.publish(message("a", &body));
            run.published.push((body, answer));
            to_publish += 1;
        }
        if to_send < COUNT {
            run.model.waiting.push_back(format!("in-{to_send}"));
            to_send += 1;
        }
        run.step();
        let is_done = to_publish == COUNT && run.published.is_empty() && run.got.len() == COUNT;
        if is_done && run.held.is_empty() && run.model.sending.is_empty() {
            break;
        }
        assert!(
            step < 19_999,
            "seed {seed}: {} {}",
            run.published.len(),
            run.got.len()
        );
        // Seldom enough that something gets through.
        if run.chance.u8(..) < 12 {
            run.cut();
        }
    }
    let once: HashSet<_> = run.got.iter().collect();
    assert_eq!((run.got.len(), once.len()), (COUNT, COUNT), "seed {seed}");
    let taken: HashSet<_> = run.model.taken.iter().cloned().collect();
    assert_eq!(
        taken.len(),
        run.model.taken.len(),
        "seed {seed}: taken twice"
    );
    assert_eq!(taken, run.confirmed, "seed {seed}");
    assert_eq!(run.confirmed.len() + run.unsent.len(), COUNT, "seed {seed}");
}

#[test]
fn every_message_crosses_once_over_connections_that_break_anywhere() {
    let from = mainstay_testkit::seed();
    for seed in 0..mainstay_testkit::cases(200, 20_000) as u64 {
        run(from.wrapping_add(seed));
    }
}
