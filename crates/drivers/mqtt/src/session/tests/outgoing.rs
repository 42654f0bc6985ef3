//! What becomes of publications.

use bytes::Buf;
use mainstay_engine::Sent;
use mainstay_message::{Persistence, PublishErrorKind};
use tokio::time::Duration;

use super::bench::{Bench, Greeting, KNOWN, NEW, message};
use crate::wire::{Reason, kind};

#[test]
fn a_publication_is_done_when_the_broker_has_completed_it() {
    let mut bench = Bench::up();
    let mut answer = bench.publish(message("a", "1"));
    let sent = bench.sent();
    assert_eq!(sent[0].0, 0x34, "quality of service 2, the first time");
    bench.give_ack(kind::PUBREC, 1, 0);
    assert_eq!(bench.acks(), [(kind::PUBREL, 1)]);
    assert!(answer.try_recv().is_err(), "not yet");
    assert!(!bench.session.is_settled());
    bench.give_ack(kind::PUBCOMP, 1, 0);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
    assert!(bench.session.is_settled());
}

#[test]
fn a_transient_one_is_done_when_it_is_written() {
    let mut bench = Bench::up();
    let mut transient = message("a", "1");
    transient.persistence = Persistence::Transient;
    let mut answer = bench.publish(transient);
    assert!(answer.try_recv().is_err());
    assert_eq!(bench.sent()[0].0, 0x30);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
}

#[test]
fn a_broker_with_less_service_gets_less() {
    let mut bench = Bench::new();
    bench.connect(Greeting { qos_max: 1, ..NEW });
    let mut answer = bench.publish(message("a", "1"));
    assert_eq!(bench.sent()[0].0, 0x32);
    bench.give_ack(kind::PUBACK, 1, 0);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
    bench.lose();
    bench.connect(Greeting { qos_max: 0, ..NEW });
    let mut answer = bench.publish(message("a", "1"));
    assert_eq!(bench.sent()[0].0, 0x30);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
}

#[test]
fn no_more_is_under_way_than_the_broker_takes() {
    let mut bench = Bench::new();
    bench.connect(Greeting {
        receive_max: 2,
        ..NEW
    });
    let _first = bench.publish(message("a", "1"));
    assert!(bench.session.can_take());
    let _second = bench.publish(message("a", "2"));
    assert!(!bench.session.can_take());
    bench.give_ack(kind::PUBREC, 2, 0);
    assert!(!bench.session.can_take(), "it ends with PUBCOMP");
    bench.give_ack(kind::PUBCOMP, 2, 0);
    assert!(bench.session.can_take());
    let _third = bench.publish(message("a", "3"));
    bench.give_ack(kind::PUBREC, 1, 0x80);
    assert!(bench.session.can_take(), "or with a refusal");
    // Answers to nothing open nothing.
    let _fourth = bench.publish(message("a", "4"));
    for kind in [kind::PUBACK, kind::PUBREC, kind::PUBCOMP] {
        bench.give_ack(kind, 77, 0);
    }
    assert!(!bench.session.can_take());
}

#[test]
fn what_the_broker_says_becomes_an_error_that_tells_what_it_did() {
    let blocked = |kind: &PublishErrorKind| matches!(kind, PublishErrorKind::Blocked { .. });
    let refused = |kind: &PublishErrorKind| matches!(kind, PublishErrorKind::Refused { .. });
    let large = |kind: &PublishErrorKind| matches!(kind, PublishErrorKind::TooLarge { .. });
    type Is = fn(&PublishErrorKind) -> bool;
    for (reason, is) in [
        (0x80, refused as Is),
        (0x87, refused),
        (0x97, blocked),
        (0x95, large),
    ] {
        let mut bench = Bench::up();
        let mut answer = bench.publish(message("a", "1"));
        bench.give_ack(kind::PUBREC, 1, reason);
        let error = answer.try_recv().unwrap().unwrap_err();
        assert!(is(&error.kind), "{error}");
        assert_eq!(error.sent, Sent::YesUnprocessed);
    }
    let mut bench = Bench::up();
    let mut answer = bench.publish(message("a", "1"));
    bench.give_ack(kind::PUBREC, 1, 0);
    bench.give_ack(kind::PUBCOMP, 1, Reason::UNKNOWN_IDENTIFIER.0);
    let error = answer.try_recv().unwrap().unwrap_err();
    assert_eq!(error.sent, Sent::Maybe, "it had it once: {error}");
}

#[test]
fn nobody_to_take_it_is_an_error_where_that_was_asked() {
    for (mandatory, fails) in [(true, true), (false, false)] {
        let mut bench = Bench::up();
        let mut sent = message("a", "1");
        sent.mandatory = mandatory;
        let mut answer = bench.publish(sent);
        bench.give_ack(kind::PUBREC, 1, Reason::NOBODY.0);
        assert!(!bench.session.is_settled());
        bench.give_ack(kind::PUBCOMP, 1, 0);
        assert_eq!(answer.try_recv().unwrap().is_err(), fails);
    }
}

#[test]
fn one_that_is_too_large_is_an_error_and_nothing_leaves() {
    let mut bench = Bench::new();
    bench.connect(Greeting {
        packet_max: 100,
        ..NEW
    });
    let mut answer = bench.publish(message("a", &"x".repeat(100)));
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(
        error.kind,
        PublishErrorKind::TooLarge {
            length_max: 100,
            ..
        }
    ));
    assert_eq!(error.sent, Sent::No);
    assert!(bench.sent().is_empty() && bench.session.is_settled());
}

#[test]
fn unfinished_ones_go_again_in_their_order_to_a_broker_that_knows_the_session() {
    let mut bench = Bench::up();
    let mut answers: Vec<_> = (1..=3)
        .map(|n| bench.publish(message("a", &n.to_string())))
        .collect();
    bench.sent();
    bench.give_ack(kind::PUBREC, 2, 0);
    let mut unsent = bench.publish(message("a", "unsent"));
    let mut silent = message("a", "unsent");
    silent.persistence = Persistence::Transient;
    let mut silent = bench.publish(silent);
    bench.lose();
    for unsent in [&mut unsent, &mut silent] {
        let error = unsent.try_recv().unwrap().unwrap_err();
        assert!(matches!(error.kind, PublishErrorKind::Lost { .. }));
        assert_eq!(error.sent, Sent::No);
    }
    assert!(!bench.session.can_take());
    bench.connect(KNOWN);
    let sent = bench.sent();
    let firsts: Vec<u8> = sent.iter().map(|(first, _)| *first).collect();
    assert_eq!(
        firsts,
        [0x3c, 0x62, 0x3c],
        "PUBLISH again, PUBREL, PUBLISH again"
    );
    for id in [1, 3] {
        bench.give_ack(kind::PUBREC, id, 0);
    }
    for id in [2, 1, 3] {
        bench.give_ack(kind::PUBCOMP, id, 0);
    }
    for answer in &mut answers {
        assert_eq!(answer.try_recv().unwrap(), Ok(()));
    }
}

#[test]
fn what_goes_again_is_no_more_than_the_broker_takes() {
    let mut bench = Bench::up();
    let mut answers: Vec<_> = (1..=3)
        .map(|n| bench.publish(message("a", &n.to_string())))
        .collect();
    bench.sent();
    bench.lose();
    bench.connect(Greeting {
        receive_max: 1,
        ..KNOWN
    });
    for id in 1..=3 {
        assert_eq!(bench.sent().len(), 1);
        assert!(!bench.session.can_take(), "first those");
        bench.give_ack(kind::PUBREC, id, 0);
        bench.sent();
        bench.give_ack(kind::PUBCOMP, id, 0);
    }
    assert!(bench.session.can_take());
    for answer in &mut answers {
        assert_eq!(answer.try_recv().unwrap(), Ok(()));
    }
}

#[test]
fn what_was_released_on_an_earlier_connection_gives_no_room_on_this_one() {
    let mut bench = Bench::up();
    let mut old = bench.publish(message("a", "old"));
    bench.sent();
    bench.give_ack(kind::PUBREC, 1, 0);
    bench.sent();
    bench.lose();
    bench.connect(Greeting {
        receive_max: 1,
        ..KNOWN
    });
    let _new = bench.publish(message("a", "new"));
    assert!(!bench.session.can_take());
    bench.give_ack(kind::PUBCOMP, 1, 0);
    assert_eq!(old.try_recv().unwrap(), Ok(()));
    assert!(!bench.session.can_take(), "the new one is under way");
    bench.give_ack(kind::PUBREC, 2, 0);
    bench.give_ack(kind::PUBCOMP, 2, 0);
    assert!(bench.session.can_take());
}

#[test]
fn of_unfinished_ones_in_a_lost_session_nobody_knows() {
    let mut bench = Bench::up();
    let mut answer = bench.publish(message("a", "1"));
    bench.sent();
    bench.lose();
    assert!(answer.try_recv().is_err(), "it waits");
    bench.connect(NEW);
    assert!(bench.sent().is_empty());
    let error = answer.try_recv().unwrap().unwrap_err();
    assert!(matches!(error.kind, PublishErrorKind::Lost { .. }));
    assert_eq!(error.sent, Sent::Maybe);
}

#[test]
fn an_expiry_is_rounded_up_and_shortened_by_what_has_passed() {
    let mut bench = Bench::up();
    let expiry = |content: &[u8]| {
        // Topic `a`, identifier, length of the properties, then 0x02.
        assert_eq!(content[6], 0x02);
        u32::from_be_bytes(content[7..11].try_into().unwrap())
    };
    let mut short = message("a", "1");
    short.expiry = Some(Duration::from_millis(1100));
    let mut long = message("a", "2");
    long.expiry = Some(Duration::from_secs(100));
    let mut none = message("a", "3");
    none.expiry = Some(Duration::ZERO);
    let late = long.clone();
    let mut answers = Vec::from([short, long, none].map(|message| bench.publish(message)));
    answers.push(bench.publish_late(late, Duration::from_secs(30)));
    let sent = bench.sent();
    assert_eq!(expiry(&sent[3].1), 70);
    assert_eq!([0, 1, 2].map(|n| expiry(&sent[n].1)), [2, 100, 1]);
    bench.lose();
    bench.pass(Duration::from_secs(40));
    bench.connect(KNOWN);
    let sent = bench.sent();
    assert_eq!([0, 1, 3].map(|n| expiry(&sent[n].1)), [1, 60, 30]);
}

#[test]
fn what_its_caller_gave_up_before_it_was_taken_does_not_leave() {
    let mut bench = Bench::up();
    let (reply, answer) = tokio::sync::oneshot::channel();
    drop(answer);
    let now = bench.now;
    bench.session.publish(message("a", "1"), reply, now, now);
    assert!(bench.sent().is_empty() && bench.session.is_settled());
}

#[test]
fn a_large_one_on_a_slow_link_neither_stops_the_reading_nor_ends_the_connection() {
    let mut bench = Bench::new();
    bench.connect(Greeting {
        packet_max: 100 << 20,
        ..NEW
    });
    let mut answer = bench.publish(message("a", &"x".repeat(50 << 20)));
    assert!(!bench.session.can_take() && bench.session.can_read());
    for _ in 0..50 {
        bench.session.out.advance(1 << 20);
        bench.session.wrote(bench.now);
        bench.pass(Duration::from_secs(5));
        bench.session.tick(bench.now).unwrap();
    }
    let length = bench.session.out.remaining();
    bench.session.out.advance(length);
    bench.session.wrote(bench.now);
    bench.give(&[0xd0, 0]).unwrap();
    bench.give_ack(kind::PUBREC, 1, 0);
    bench.give_ack(kind::PUBCOMP, 1, 0);
    assert_eq!(answer.try_recv().unwrap(), Ok(()));
}

#[test]
fn answers_that_are_not_written_stop_the_reading() {
    let mut bench = Bench::up();
    let _large = bench.publish(message("a", &"x".repeat(1 << 19)));
    while bench.session.can_read() {
        bench.give(&[0x62, 2, 0, 1].repeat(1000)).unwrap();
    }
    assert!(bench.session.out.waiting_besides() >= 1 << 20);
    let length = bench.session.out.remaining();
    bench.session.out.advance(length);
    assert_eq!(bench.session.out.waiting_besides(), 0);
    assert!(bench.session.can_read());
}

#[test]
fn without_a_connection_to_come_they_end() {
    let mut bench = Bench::up();
    let mut answer = bench.publish(message("a", "1"));
    bench.sent();
    bench.lose();
    bench.session.give_up("closed");
    assert_eq!(answer.try_recv().unwrap().unwrap_err().sent, Sent::Maybe);
    assert!(bench.session.is_settled());
}

#[test]
fn a_keep_alive_that_the_broker_sets_is_kept() {
    let mut bench = Bench::new();
    bench.session.greet(None);
    bench.sent();
    bench.give(&[0x20, 6, 0, 0, 3, 0x13, 0, 4]).unwrap();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.session.next_tick(), Some(bench.now));
    bench.session.tick(bench.now).unwrap();
    assert_eq!(bench.sent(), [(kind::PINGREQ << 4, vec![])]);
}
