//! The machine against a scripted broker.

use bytes::{Buf, Bytes, BytesMut};
use mainstay_engine::Sent;
use mainstay_message::{
    Acknowledge, Delivery, Publication, PublishError, PublishErrorKind, Queue, SubscriptionState,
    Topic,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};

use super::*;
use crate::wire::{split, write_properties};

mod publishing;

type Method = (u16, u16);
type Told = oneshot::Receiver<Result<(), PublishError>>;

const START: Method = (10, 10);
const TUNE: Method = (10, 30);
const CLOSE_CONNECTION: Method = (10, 50);
const CHANNEL_OPEN_OK: Method = (20, 11);
const CHANNEL_CLOSE: Method = (20, 40);
const DECLARE_EXCHANGE_OK: Method = (40, 11);
const DECLARE_QUEUE_OK: Method = (50, 11);
const BIND_OK: Method = (50, 21);
const QOS_OK: Method = (60, 11);
const CONSUME_OK: Method = (60, 21);
const RETURN: Method = (60, 50);
const DELIVER: Method = (60, 60);
const CONFIRM: Method = (60, 80);
const SELECT_OK: Method = (85, 11);

struct Peer {
    session: Session,
    out: Output,
    now: Instant,
}

struct Listener {
    subscription: Arc<Subscribed>,
    deliveries: mpsc::Receiver<Delivery>,
    state: watch::Receiver<SubscriptionState>,
}

impl Peer {
    fn new() -> Self {
        let mut settings = AmqpSettings::new("host", "user");
        settings.prefetch = 4;
        settings.in_flight_max = 3;
        settings.body_max = 1000;
        Peer {
            session: Session::new(Arc::new(settings), Arc::default()),
            out: Output::default(),
            now: Instant::now(),
        }
    }

    /// Logged in, with the exchange declared and confirmations on.
    fn up() -> Self {
        let mut peer = Self::new();
        peer.login();
        peer.open_again();
        assert!(peer.session.is_up());
        peer.heard();
        peer
    }

    /// Answers the steps of the channel that publishes.
    fn open_again(&mut self) {
        for (method, arguments) in [
            (CHANNEL_OPEN_OK, &[0, 0, 0, 0][..]),
            (DECLARE_EXCHANGE_OK, &[]),
            (SELECT_OK, &[]),
        ] {
            self.say(1, method, arguments).unwrap();
        }
    }

    fn login(&mut self) {
        self.say(0, START, &start("AMQPLAIN PLAIN")).unwrap();
        self.say(0, TUNE, &[7, 255, 0, 2, 0, 0, 0, 60]).unwrap();
        self.say(0, (10, 41), &[0]).unwrap();
        assert_eq!(
            self.heard(),
            [(0, (10, 11)), (0, (10, 31)), (0, (10, 40)), (1, (20, 10))]
        );
    }

    fn say(&mut self, channel: u16, (class, method): Method, arguments: &[u8]) -> Result<(), End> {
        let payload = [&class.to_be_bytes()[..], &method.to_be_bytes(), arguments].concat();
        self.frame(Kind::Method, channel, &payload)
    }

    fn frame(&mut self, kind: Kind, channel: u16, payload: &[u8]) -> Result<(), End> {
        let login = Login {
            user: "user".into(),
            password: "secret".into(),
        };
        self.session.receive(
            Frame {
                kind,
                channel,
                payload,
            },
            &login,
            &mut self.out,
            self.now,
        )
    }

    /// The methods that were sent since the last time; other frames have the class 0.
    fn heard(&mut self) -> Vec<(u16, Method)> {
        let bytes = self.out.copy_to_bytes(self.out.remaining());
        let (mut at, mut methods) = (0, vec![]);
        while let Some(frame) = split(&bytes[at..], FRAME_MAX).unwrap() {
            at += frame.length();
            let word = |at: usize| u16::from_be_bytes([frame.payload[at], frame.payload[at + 1]]);
            let method = if frame.kind == Kind::Method {
                (word(0), word(2))
            } else {
                (0, frame.kind.octet().into())
            };
            methods.push((frame.channel, method));
        }
        assert_eq!(at, bytes.len());
        methods
    }

    fn publish(&mut self, number: Option<u64>) -> Told {
        let (reply, told) = oneshot::channel();
        let message = Publication::new(Topic::parse("a/b").unwrap(), Bytes::from_static(b"body"));
        let mut head = BytesMut::new();
        write_properties(&mut head, 1, &message, number);
        let outgoing = Outgoing {
            properties: 0,
            expires: None,
            head,
            body: message.body,
            topic: message.topic,
            number,
            reply,
        };
        self.session.publish(outgoing, &mut self.out, self.now);
        told
    }

    fn confirm(&mut self, tag: u64, multiple: bool) -> Result<(), End> {
        let arguments = [&tag.to_be_bytes()[..], &[multiple.into()]].concat();
        self.say(1, CONFIRM, &arguments)
    }

    fn subscribe(&mut self, queue: Queue, room: usize) -> Listener {
        let (sender, deliveries) = mpsc::channel(room);
        let (sent, state) = watch::channel(SubscriptionState::Pending);
        let subscription = Arc::new(Subscribed {
            key: "a.b".into(),
            topic: Some(Topic::parse("a/b").unwrap()),
            queue,
            sender,
            state: sent,
            wake: Arc::new(Notify::new()),
        });
        self.session
            .follow(&[Arc::clone(&subscription)], &mut self.out);
        Listener {
            subscription,
            deliveries,
            state,
        }
    }

    /// Answers the steps of a subscription on channel 2.
    fn activate(&mut self) {
        for (method, arguments) in [
            (CHANNEL_OPEN_OK, &[0, 0, 0, 0][..]),
            (DECLARE_QUEUE_OK, b"\x05queue\0\0\0\0\0\0\0\0"),
            (BIND_OK, &[]),
            (QOS_OK, &[]),
            (CONSUME_OK, b"\x03tag"),
        ] {
            self.say(2, method, arguments).unwrap();
        }
        self.heard();
    }

    fn deliver(&mut self, tag: u64, key: &str) -> Result<(), End> {
        let mut arguments = b"\x03tag".to_vec();
        arguments.extend(tag.to_be_bytes());
        arguments.extend([0, 0, key.len() as u8]);
        arguments.extend(key.as_bytes());
        self.say(2, DELIVER, &arguments)?;
        self.frame(Kind::Header, 2, &head(4))?;
        self.frame(Kind::Body, 2, b"bo")?;
        self.frame(Kind::Body, 2, b"dy")
    }

    fn tend(&mut self) -> Vec<(u16, Method)> {
        self.session.tend(&mut self.out, self.now);
        self.heard()
    }
}

fn durable() -> Queue {
    Queue::Durable("queue".into())
}

fn start(mechanisms: &str) -> Vec<u8> {
    let mut bytes = vec![0, 9, 0, 0, 0, 0];
    bytes.extend((mechanisms.len() as u32).to_be_bytes());
    bytes.extend(mechanisms.as_bytes());
    bytes
}

fn head(size: u64) -> Vec<u8> {
    let mut bytes = vec![0, 60, 0, 0];
    bytes.extend(size.to_be_bytes());
    bytes.extend([0, 0]);
    bytes
}

fn closed(code: u16, text: &str) -> Vec<u8> {
    let mut bytes = code.to_be_bytes().to_vec();
    bytes.push(text.len() as u8);
    bytes.extend(text.as_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn failed(told: &mut Told) -> PublishError {
    told.try_recv().unwrap().unwrap_err()
}

#[test]
fn a_refused_login_says_the_brokers_words_and_that_somebody_must_act() {
    for (code, refused) in [(403, true), (530, true), (320, false), (541, false)] {
        let mut peer = Peer::new();
        peer.say(0, START, &start("PLAIN")).unwrap();
        let end = peer
            .say(0, CLOSE_CONNECTION, &closed(code, "because"))
            .unwrap_err();
        assert_eq!(end.refused, refused, "{code}");
        assert!(
            end.reason.contains(&format!("{code} because")),
            "{}",
            end.reason
        );
        assert_eq!(peer.heard().last(), Some(&(0, (10, 51))));
    }
    let end = Peer::new().say(0, START, &start("EXTERNAL")).unwrap_err();
    assert!(
        end.refused && end.reason.contains("EXTERNAL"),
        "{}",
        end.reason
    );
}

#[test]
fn deliveries_are_acknowledged_together_and_never_late() {
    let mut peer = Peer::up();
    let mut listener = peer.subscribe(durable(), 4);
    peer.activate();
    assert_eq!(*listener.state.borrow(), SubscriptionState::Active);
    (1..=4).for_each(|tag| peer.deliver(tag, "a.b").unwrap());
    let mut acks: Vec<Box<dyn Acknowledge>> = vec![];
    while let Ok(delivery) = listener.deliveries.try_recv() {
        assert_eq!(
            (delivery.topic.as_str(), &delivery.body[..]),
            ("a/b", &b"body"[..])
        );
        acks.push(delivery.acknowledgement.unwrap());
    }
    assert_eq!(acks.len(), 4);
    acks.drain(..3).for_each(Acknowledge::acknowledge);
    assert_eq!(peer.tend(), [(2, (60, 80))]);
    // The channel is over, and so are the numbers of its messages.
    peer.say(2, CHANNEL_CLOSE, &closed(404, "queue gone"))
        .unwrap();
    peer.heard();
    acks.remove(0).acknowledge();
    assert_eq!(peer.tend(), []);
    assert_eq!(
        *listener.state.borrow(),
        SubscriptionState::Refused("404 queue gone".into())
    );
    peer.now += Duration::from_secs(2);
    assert_eq!(peer.tend(), [(2, (20, 10))]);
}

#[test]
fn what_a_transient_subscription_has_no_room_for_waits_without_an_acknowledgement() {
    let mut peer = Peer::up();
    let mut listener = peer.subscribe(Queue::Transient, 1);
    peer.activate();
    (1..=3).for_each(|tag| peer.deliver(tag, "a.b").unwrap());
    assert_eq!(peer.tend(), [(2, (60, 80))], "the first is taken");
    assert_eq!(peer.tend(), []);
    assert_eq!(peer.session.tend_after(), Some(PUMP_AGAIN));
    for _ in 0..2 {
        assert!(
            listener
                .deliveries
                .try_recv()
                .unwrap()
                .acknowledgement
                .is_none()
        );
        assert_eq!(peer.tend(), [(2, (60, 80))]);
    }
    drop(listener.deliveries);
    assert_eq!(peer.tend(), [(2, (20, 40))], "nobody reads it");
    assert!(listener.subscription.is_left());
    peer.say(2, (20, 41), &[]).unwrap();
    assert_eq!(peer.session.tend_after(), None);
}

#[test]
fn a_queue_that_may_not_be_declared_is_looked_for_and_one_that_is_deleted_is_made_again() {
    let mut peer = Peer::up();
    let listener = peer.subscribe(durable(), 1);
    peer.say(2, CHANNEL_OPEN_OK, &[0; 4]).unwrap();
    peer.say(2, CHANNEL_CLOSE, &closed(406, "other arguments"))
        .unwrap();
    peer.heard();
    peer.activate();
    assert_eq!(*listener.state.borrow(), SubscriptionState::Active);
    peer.say(2, (60, 30), b"\x03tag\x01").unwrap();
    assert_eq!(*listener.state.borrow(), SubscriptionState::Pending);
    peer.say(2, (20, 41), &[]).unwrap();
    peer.heard();
    peer.session
        .follow(&[Arc::clone(&listener.subscription)], &mut peer.out);
    peer.activate();
    assert_eq!(*listener.state.borrow(), SubscriptionState::Active);
}

#[test]
fn what_was_taken_from_a_channel_that_closed_is_acknowledged_nowhere() {
    let mut peer = Peer::up();
    let mut listener = peer.subscribe(Queue::Transient, 4);
    peer.activate();
    peer.deliver(1, "a.b").unwrap();
    assert!(listener.deliveries.try_recv().is_ok());
    peer.say(2, CHANNEL_CLOSE, &closed(404, "queue gone"))
        .unwrap();
    assert_eq!(peer.tend(), [(2, (20, 41))]);
    peer.now += Duration::from_secs(2);
    assert_eq!(peer.tend(), [(2, (20, 10))]);
    peer.activate();
    peer.deliver(1, "a..b").unwrap();
    assert_eq!(peer.tend(), [(2, (60, 80))], "the new one's own");
    assert_eq!(peer.tend(), []);
}

#[test]
fn a_channel_that_both_sides_close_at_once_takes_nothing_down() {
    let mut peer = Peer::up();
    let listener = peer.subscribe(durable(), 1);
    peer.activate();
    drop(listener.deliveries);
    assert_eq!(peer.tend(), [(2, (20, 40))]);
    peer.say(2, CHANNEL_CLOSE, &closed(404, "queue gone"))
        .unwrap();
    assert_eq!(peer.tend(), [(2, (20, 41))]);
    peer.say(2, (20, 41), &[]).unwrap();
    assert_eq!(peer.session.tend_after(), None);
}

#[test]
fn a_queue_of_our_own_says_how_long_it_may_be_unused_and_is_taken_as_it_is_otherwise() {
    let mut peer = Peer::up();
    let own = Queue::Own {
        name: "queue".into(),
        unused_for: Duration::from_secs(2),
    };
    let listener = peer.subscribe(own, 1);
    peer.heard();
    peer.say(2, CHANNEL_OPEN_OK, &[0; 4]).unwrap();
    let declared = peer.out.chunk().to_vec();
    let arguments = b"\x05queue\x02\0\0\0\x13\x09x-expiresl\0\0\0\0\0\0\x07\xd0\xce";
    assert!(declared.ends_with(arguments), "{declared:?}");
    peer.say(2, CHANNEL_CLOSE, &closed(406, "without x-expires"))
        .unwrap();
    peer.heard();
    peer.activate();
    assert_eq!(*listener.state.borrow(), SubscriptionState::Active);
}

#[test]
fn a_message_of_no_topic_is_acknowledged_and_counted() {
    let mut peer = Peer::up();
    let _listener = peer.subscribe(durable(), 4);
    peer.activate();
    peer.deliver(1, "a..b").unwrap();
    assert_eq!(peer.tend(), [(2, (60, 80))]);
    assert_eq!(peer.session.counters.read().topics_dropped, 1);
}

#[test]
fn a_message_that_is_too_large_is_read_off_acknowledged_and_counted() {
    let mut peer = Peer::up();
    let mut listener = peer.subscribe(durable(), 4);
    peer.activate();
    peer.say(2, DELIVER, b"\x03tag\0\0\0\0\0\0\0\x01\0\0\x03a.b")
        .unwrap();
    peer.frame(Kind::Header, 2, &head(1001)).unwrap();
    peer.frame(Kind::Body, 2, &[7; 1000]).unwrap();
    assert_eq!(peer.tend(), []);
    peer.frame(Kind::Body, 2, &[7]).unwrap();
    assert_eq!(peer.tend(), [(2, (60, 80))]);
    assert_eq!(peer.session.counters.read().bodies_dropped, 1);
    peer.deliver(2, "a.b").unwrap();
    assert_eq!(&listener.deliveries.try_recv().unwrap().body[..], b"body");
}

#[test]
fn a_broker_that_breaks_the_rules_ends_the_connection() {
    type Break = fn(&mut Peer) -> Result<(), End>;
    let breaks: [(&str, Break); 8] = [
        ("never published", |peer| peer.confirm(5, false)),
        ("out of order", |peer| peer.deliver(7, "a.b")),
        ("more messages", |peer| {
            (1..=5).try_for_each(|tag| peer.deliver(tag, "a.b"))
        }),
        ("none was due", |peer| peer.frame(Kind::Body, 2, b"x")),
        ("not open", |peer| peer.frame(Kind::Header, 9, &head(0))),
        ("cut short", |peer| peer.say(1, CONFIRM, &[0])),
        ("in the phase", |peer| peer.say(0, TUNE, &[0; 8])),
        ("within another", |peer| {
            peer.say(2, DELIVER, b"\x03tag\0\0\0\0\0\0\0\x01\0\0\x03a.b")?;
            peer.say(2, DELIVER, b"\x03tag\0\0\0\0\0\0\0\x02\0\0\x03a.b")
        }),
    ];
    for (expected, act) in breaks {
        let mut peer = Peer::up();
        let _listener = peer.subscribe(durable(), 8);
        peer.activate();
        let end = act(&mut peer).unwrap_err();
        assert!(end.reason.contains(expected), "{expected}: {}", end.reason);
        assert!(!end.refused);
    }
}

#[test]
fn an_alarm_holds_publications_back_and_nothing_else() {
    let mut peer = Peer::up();
    peer.say(0, (10, 60), b"\x03low").unwrap();
    assert!(!peer.session.can_publish() && peer.session.is_up());
    assert_eq!(peer.session.blocked().map(|reason| &**reason), Some("low"));
    peer.say(0, (10, 61), &[]).unwrap();
    assert!(peer.session.can_publish());
}
