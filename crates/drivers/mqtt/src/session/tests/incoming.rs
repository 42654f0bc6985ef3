//! What becomes of messages that come.

use mainstay_message::{Queue, SubscriptionState};
use tokio::time::Duration;

use super::bench::{Bench, KNOWN, NEW, acknowledge, bodies};
use crate::wire::{Qos, kind};

#[test]
fn a_message_is_acknowledged_when_its_receiver_does() {
    for (qos, answer) in [(Qos::One, kind::PUBACK), (Qos::Two, kind::PUBREC)] {
        let mut bench = Bench::up();
        let mut inbox = bench.durable();
        bench.sent();
        for id in 1..=3 {
            bench.give_message(id, qos, false, &id.to_string());
        }
        let mut got = inbox.take();
        assert_eq!(bodies(&got), ["1", "2", "3"]);
        bench.settle();
        assert!(bench.sent().is_empty());
        for (place, id) in [(2, 3), (0, 1), (0, 2)] {
            acknowledge(got.remove(place));
            bench.settle();
            assert_eq!(bench.acks(), [(answer, id)]);
        }
        bench.give(&[0x62, 2, 0, 2]).unwrap();
        assert_eq!(bench.sent()[0].0, kind::PUBCOMP << 4);
    }
}

#[test]
fn a_message_that_comes_again_is_given_once() {
    let mut bench = Bench::up();
    let mut inbox = bench.durable();
    for (id, body) in [(1, "held"), (2, "answered"), (3, "late"), (4, "dropped")] {
        bench.give_message(id, Qos::Two, false, body);
    }
    let mut got = inbox.take();
    drop(got.remove(3));
    let late = got.remove(2);
    acknowledge(got.remove(1));
    bench.settle();
    bench.lose();
    // Acknowledged between two connections.
    acknowledge(late);
    bench.settle();
    bench.connect(KNOWN);
    bench.sent();
    for (id, body) in [(1, "held"), (2, "answered"), (3, "late"), (4, "dropped")] {
        bench.give_message(id, Qos::Two, true, body);
    }
    let again = inbox.take();
    assert_eq!(bodies(&again), ["dropped"]);
    assert!(again[0].redelivered);
    assert_eq!(bench.acks(), [(kind::PUBREC, 2), (kind::PUBREC, 3)]);
    acknowledge(got.remove(0));
    bench.settle();
    assert_eq!(bench.acks(), [(kind::PUBREC, 1)]);
}

#[test]
fn an_identifier_that_a_broker_uses_again_is_another_message() {
    let mut bench = Bench::up();
    let mut inbox = bench.durable();
    bench.give_message(1, Qos::Two, false, "old");
    let mut old = inbox.take();
    bench.lose();
    bench.connect(KNOWN);
    bench.sent();
    bench.give_message(1, Qos::Two, false, "new");
    let mut new = inbox.take();
    assert_eq!(bodies(&new), ["new"]);
    acknowledge(old.remove(0));
    bench.settle();
    assert!(bench.sent().is_empty(), "the old one is nothing to it");
    acknowledge(new.remove(0));
    bench.settle();
    assert_eq!(bench.acks(), [(kind::PUBREC, 1)]);
}

#[test]
fn a_new_session_knows_nothing_of_the_old() {
    let mut bench = Bench::up();
    let mut inbox = bench.durable();
    bench.give_message(1, Qos::Two, false, "same");
    let mut old = inbox.take();
    bench.lose();
    bench.connect(NEW);
    bench.sent();
    acknowledge(old.remove(0));
    bench.settle();
    assert!(bench.sent().is_empty());
    bench.give_message(1, Qos::Two, false, "same");
    assert_eq!(bodies(&inbox.take()), ["same"]);
}

#[test]
fn far_more_than_the_window_ends_the_connection() {
    let mut bench = Bench::with(|settings| settings.receive_max = 2);
    bench.connect(NEW);
    let mut inbox = bench.durable();
    for id in 1..=4 {
        bench.give_message(id, Qos::Two, false, "in time");
    }
    let end = bench.try_message(5, Qos::Two, false, "too many");
    assert_eq!(end.unwrap_err().tell.unwrap().0, 0x93);
    // What is answered makes room.
    bench.lose();
    bench.connect(KNOWN);
    for delivery in inbox.take() {
        acknowledge(delivery);
    }
    bench.settle();
    for id in 1..=4 {
        bench.give_message(id, Qos::Two, true, "in time");
    }
    for id in 5..=8 {
        bench.give_message(id, Qos::Two, false, "room again");
    }
    assert!(bench.try_message(9, Qos::Two, false, "too many").is_err());
    assert_eq!(inbox.take().len(), 4);
    // What is dropped does not, until the next connection.
    bench.settle();
    bench.lose();
    bench.connect(KNOWN);
    for id in 5..=8 {
        bench.give_message(id, Qos::Two, true, "again");
    }
    assert_eq!(inbox.take().len(), 4);
}

#[test]
fn dropped_messages_that_take_up_half_the_window_come_again_with_a_new_connection() {
    for (window, bound) in [(1, 1), (10, 5), (1000, 10)] {
        let mut bench = Bench::with(|settings| settings.receive_max = window);
        bench.connect(NEW);
        let mut inbox = bench.durable();
        for id in 1..=bound {
            assert!(!bench.session.is_due(bench.now), "{id} of {bound}");
            bench.give_message(id, Qos::Two, false, "again and again");
            drop(inbox.take());
            bench.settle();
        }
        assert!(bench.session.is_due(bench.now));
        let end = bench.session.tick(bench.now).unwrap_err();
        assert!(end.reason.contains("come again"), "{}", end.reason);
        bench.lose();
        bench.connect(KNOWN);
        assert!(!bench.session.is_due(bench.now));
        bench.give_message(1, Qos::Two, true, "again and again");
        assert_eq!(inbox.take().len(), 1);
    }
}

#[test]
fn what_a_program_drops_on_its_way_out_ends_no_connection() {
    let mut bench = Bench::up();
    let inbox = bench.durable();
    for id in 1..=10 {
        bench.give_message(id, Qos::Two, false, "for the next run");
    }
    let number = inbox.number;
    drop(inbox);
    bench.settle();
    assert!(!bench.session.is_due(bench.now));
    bench.session.unsubscribe(number, bench.now);
    assert!(!bench.session.is_due(bench.now));
}

#[test]
fn a_message_that_mqtt_forbids_is_refused_and_the_connection_stands() {
    for content in [
        // Topic `in`, identifier 1, properties: a name, a value and a content type with a NUL.
        &b"\0\x02in\0\x01\x07\x26\0\x01\0\0\x01a"[..],
        b"\0\x02in\0\x01\x07\x26\0\x01a\0\x01\0",
        b"\0\x02in\0\x01\x04\x03\0\x01\0",
        // Two content types.
        b"\0\x02in\0\x01\x08\x03\0\x01a\x03\0\x01a",
        // A topic with a NUL.
        b"\0\x02i\0\0\x01\0",
    ] {
        let mut bench = Bench::up();
        let mut inbox = bench.durable();
        bench.sent();
        let packet = |first: u8| [&[first, content.len() as u8], content].concat();
        bench.give(&packet(0x34)).unwrap();
        assert_eq!(bench.sent(), [(kind::PUBREC << 4, vec![0, 1, 0x83])]);
        bench.give(&packet(0x32)).unwrap();
        assert_eq!(bench.sent(), [(kind::PUBACK << 4, vec![0, 1, 0x83])]);
        assert!(inbox.take().is_empty());
    }
    // Headers may stand more than once.
    let mut bench = Bench::up();
    let mut inbox = bench.durable();
    let twice = b"\0\x02in\0\x01\x0e\x26\0\x01a\0\x01a\x26\0\x01a\0\x01a";
    let packet = [&[0x34, twice.len() as u8], &twice[..]].concat();
    bench.give(&packet).unwrap();
    assert_eq!(inbox.take().len(), 1);
}

#[test]
fn a_message_before_its_subscription_waits_for_it() {
    let mut bench = Bench::new();
    bench.connect(KNOWN);
    bench.give_message(1, Qos::Two, false, "early");
    bench.give_message(0, Qos::Zero, false, "for nobody");
    let mut inbox = bench.durable();
    let mut got = inbox.take();
    assert_eq!(bodies(&got), ["early"]);
    bench.sent();
    acknowledge(got.remove(0));
    bench.settle();
    assert_eq!(bench.acks(), [(kind::PUBREC, 1)]);
}

#[test]
fn one_that_nobody_subscribes_to_is_refused_in_the_end() {
    let mut bench = Bench::new();
    bench.connect(KNOWN);
    bench.give_message(1, Qos::Two, false, "lonely");
    bench.pass(Duration::from_secs(29));
    bench.session.tick(bench.now).unwrap();
    bench.settle();
    assert!(!bench.acks().contains(&(kind::PUBREC, 1)));
    bench.pass(Duration::from_secs(1));
    bench.give(&[0xd0, 0]).unwrap();
    bench.session.tick(bench.now).unwrap();
    let refused = (kind::PUBREC << 4, vec![0, 1, 0x83]);
    assert!(bench.sent().contains(&refused));
    bench.settle();
    bench.give_message(1, Qos::Two, false, "another");
}

#[test]
fn a_transient_message_without_room_is_lost_and_holds_nothing_up() {
    let mut bench = Bench::up();
    let mut inbox = bench.subscribe(Queue::Transient, 2);
    for body in ["1", "2", "lost"] {
        bench.give_message(0, Qos::Zero, false, body);
        assert!(bench.session.can_read());
    }
    assert_eq!(bodies(&inbox.take()), ["1", "2"]);
    bench.give_message(0, Qos::Zero, false, "3");
    assert_eq!(bodies(&inbox.take()), ["3"]);
}

#[test]
fn transient_messages_leave_the_window_of_a_durable_subscription_free() {
    let mut bench = Bench::up();
    // One beside the window, which is of ten.
    let mut inbox = bench.subscribe(Queue::Durable("in".into()), 11);
    for body in ["1", "lost"] {
        bench.give_message(0, Qos::Zero, false, body);
    }
    for id in 1..=10 {
        bench.give_message(id, Qos::Two, false, "kept");
    }
    assert!(bench.session.can_read());
    let got = inbox.take();
    assert_eq!((got.len(), bodies(&got)[1]), (11, "kept"));
}

#[test]
fn a_message_that_must_not_be_lost_waits_for_room() {
    let mut bench = Bench::up();
    let mut inbox = bench.subscribe(Queue::Durable("in".into()), 1);
    bench.give_message(1, Qos::Two, false, "1");
    assert!(bench.session.can_read());
    bench.give_message(2, Qos::Two, false, "2");
    assert!(!bench.session.can_read() && bench.session.stalled_at().is_some());
    bench.session.unstall(bench.now);
    assert!(!bench.session.can_read(), "no room yet");
    assert_eq!(bodies(&inbox.take()), ["1"]);
    bench.session.unstall(bench.now);
    assert!(bench.session.can_read());
    assert_eq!(bodies(&inbox.take()), ["2"]);
}

#[test]
fn what_held_the_reading_back_does_not_outlive_its_receiver_or_its_connection() {
    let stalled = |bench: &mut Bench| {
        let inbox = bench.subscribe(Queue::Durable("in".into()), 1);
        for (id, body) in [(1, "1"), (2, "2")] {
            bench.give_message(id, Qos::Two, false, body);
        }
        assert!(!bench.session.can_read());
        inbox
    };
    let mut bench = Bench::up();
    let inbox = stalled(&mut bench);
    let number = inbox.number;
    drop(inbox);
    bench.session.unsubscribe(number, bench.now);
    assert!(bench.session.can_read());
    let mut bench = Bench::up();
    let _inbox = stalled(&mut bench);
    bench.lose();
    bench.sent();
    bench.connect(KNOWN);
    assert!(bench.session.is_up() && bench.session.can_read());
}

#[test]
fn subscriptions_are_asked_for_again_with_each_connection_and_say_what_came_of_it() {
    let mut bench = Bench::new();
    let inbox = bench.durable();
    let answer = |bench: &mut Bench, reason: u8| {
        let (first, content) = bench.sent().pop().unwrap();
        assert_eq!(first >> 4, kind::SUBSCRIBE);
        bench
            .give(&[0x90, 4, content[0], content[1], 0, reason])
            .unwrap();
    };
    for greeting in [NEW, KNOWN] {
        bench.connect(greeting);
        assert_eq!(*inbox.state.borrow(), SubscriptionState::Pending);
        answer(&mut bench, 0x87);
        assert!(
            matches!(&*inbox.state.borrow(), SubscriptionState::Refused(why) if why.contains("not authorized"))
        );
        bench.lose();
        bench.connect(greeting);
        answer(&mut bench, 1);
        assert_eq!(*inbox.state.borrow(), SubscriptionState::Active);
        bench.lose();
    }
}

#[test]
fn a_dropped_subscription_ends_a_durable_one_after_a_while() {
    for (queue, grace) in [
        (Queue::Transient, Duration::ZERO),
        (Queue::Durable("in".into()), Duration::from_secs(600)),
    ] {
        let mut bench = Bench::up();
        let inbox = bench.subscribe(queue, 1);
        bench.sent();
        let number = inbox.number;
        drop(inbox);
        bench.session.unsubscribe(number, bench.now);
        if let Some(before) = grace.checked_sub(Duration::from_millis(1)) {
            // The broker lives.
            bench.pass(before);
            bench.give(&[0xd0, 0]).unwrap();
            bench.session.tick(bench.now).unwrap();
            assert!(
                bench
                    .sent()
                    .iter()
                    .all(|(first, _)| first >> 4 != kind::UNSUBSCRIBE)
            );
            bench.pass(Duration::from_millis(1));
        }
        bench.give(&[0xd0, 0]).unwrap();
        bench.session.tick(bench.now).unwrap();
        let sent = bench.sent();
        assert!(
            sent.iter()
                .any(|(first, _)| first >> 4 == kind::UNSUBSCRIBE)
        );
    }
}

#[test]
fn messages_of_a_durable_subscription_are_kept_for_the_next_run_while_the_program_stops() {
    let mut bench = Bench::up();
    let inbox = bench.durable();
    let id = bench.sent()[0].1[..2].to_vec();
    bench.give(&[0x90, 4, id[0], id[1], 0, 2]).unwrap();
    let number = inbox.number;
    drop(inbox);
    bench.session.unsubscribe(number, bench.now);
    bench.give_message(1, Qos::Two, false, "kept");
    for _ in 0..19 {
        bench.pass(Duration::from_secs(30));
        bench.give(&[0xd0, 0]).unwrap();
        bench.session.tick(bench.now).unwrap();
        let sent = bench.sent();
        assert!(sent.iter().all(|(first, _)| first >> 4 == kind::PINGREQ));
    }
    // It has gone on for so long that it was not a stop.
    for _ in 0..3 {
        bench.pass(Duration::from_secs(30));
        bench.give(&[0xd0, 0]).unwrap();
        bench.session.tick(bench.now).unwrap();
    }
    assert!(bench.acks().contains(&(kind::PUBREC, 1)), "refused");
}

#[test]
fn a_broker_that_refuses_or_leaves_says_why() {
    for (packet, refused, taken_over, words) in [
        (&[0x20, 3, 0, 0x87, 0][..], true, false, "not authorized"),
        (&[0x20, 3, 0, 0x88, 0], false, false, "unavailable"),
        // What a broker of MQTT 3.1.1 says to a version that it does not know.
        (&[0x20, 2, 0, 0x84], true, false, "speaks no MQTT 5"),
    ] {
        let mut bench = Bench::new();
        bench.session.greet(None);
        let end = bench.give(packet).unwrap_err();
        assert_eq!((end.refused, end.taken_over), (refused, taken_over));
        assert!(end.reason.contains(words), "{}", end.reason);
    }
    let mut bench = Bench::up();
    let end = bench.give(&[0xe0, 1, 0x8e]).unwrap_err();
    assert!(end.taken_over && end.reason.contains("taken over"));
    let mut bench = Bench::new();
    bench.session.greet(None);
    let end = bench.give(&[0xd0, 0]).unwrap_err();
    assert!(end.reason.contains("before CONNACK"));
}
