//! Packets against captured ones, and against what no broker should send.

use bytes::{Bytes, BytesMut};
use mainstay_message::{Headers, Publication, Topic};

use super::packet::Retained;
use super::*;

const CONNECTS: &str = include_str!("../../tests/captured/mqtt5_connect_connack.hex");
const SUBSCRIBES: &str = include_str!("../../tests/captured/mqtt5_subscribe_suback.hex");
const MESSAGES: [&str; 3] = [
    include_str!("../../tests/captured/mqtt5_event_publish.hex"),
    include_str!("../../tests/captured/mqtt5_request_publish.hex"),
    include_str!("../../tests/captured/mqtt5_response_publish.hex"),
];

fn bytes(hex: &str) -> BytesMut {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    let pairs = digits.chunks(2);
    pairs.map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Reads one packet and does something with it.
fn read<T>(buffer: &mut BytesMut, with: impl FnOnce(Packet<'_>) -> T) -> Result<T, Fault> {
    let frame = frame(buffer, usize::MAX)?.expect("it is all there");
    frame.take(buffer, |content, keep| {
        Packet::read(frame.first, content, keep).map(with)
    })
}

fn written(write: impl FnOnce(&mut Output)) -> Bytes {
    use bytes::Buf;
    let mut out = Output::default();
    write(&mut out);
    let length = out.remaining();
    out.copy_to_bytes(length)
}

fn owned(message: &Incoming<'_>) -> Publication {
    Publication {
        content_type: message.content_type.clone(),
        headers: message.headers.clone(),
        ..Publication::new(Topic::parse(message.topic).unwrap(), message.body.clone())
    }
}

fn publish(out: &mut Output, message: &Publication, id: u16) -> Result<(), Unfit> {
    let outgoing = Outgoing {
        message,
        qos: if id == 0 { Qos::Zero } else { Qos::Two },
        id,
        again: false,
        expiry: None,
    };
    outgoing.write(out, usize::MAX)
}

#[test]
fn captured_messages_are_read_and_written_the_same() {
    for hex in MESSAGES {
        let mut buffer = bytes(hex);
        let original = buffer.clone();
        let (id, message) = read(&mut buffer, |packet| match packet {
            Packet::Publish(message) => {
                assert!(message.headers.get("message_id").is_some());
                assert_eq!(message.content_type.as_deref(), Some("application/json"));
                assert!(!message.again);
                (message.id, owned(&message))
            }
            other => panic!("{other:?}"),
        })
        .unwrap();
        assert!(buffer.is_empty());
        let again = written(|out| publish(out, &message, id).unwrap());
        assert_eq!(again, original);
    }
}

#[test]
fn a_captured_connect_and_its_answer_are_ours() {
    let mut buffer = bytes(CONNECTS);
    let length = frame(&buffer, usize::MAX)
        .unwrap()
        .unwrap()
        .take(&mut buffer.clone(), |content, _| content.len());
    let connect = buffer.split_to(length + 2);
    let ours = Connect {
        client_id: "51a6610b-7b16-4577-8eed-5ce8afc7467e",
        user: Some("intersect_username"),
        password: Some("intersect_password"),
        keep_alive: 60,
        clean_start: false,
        session_expiry: 0,
        receive_max: u16::MAX,
        packet_max: None,
    };
    assert_eq!(written(|out| ours.write(out)), connect);
    let welcome = read(&mut buffer, |packet| match packet {
        Packet::Welcome(welcome) => welcome,
        other => panic!("{other:?}"),
    });
    let welcome = welcome.unwrap();
    assert_eq!(welcome.reason, Reason::SUCCESS);
    assert!(!welcome.session_present);
    assert_eq!(welcome.receive_max, 20);
    assert_eq!(welcome.qos_max, Qos::Two);
}

#[test]
fn a_captured_subscription_and_its_answer_are_ours() {
    let mut buffer = bytes(SUBSCRIBES);
    let ours = written(|out| {
        let filter = "org/fac/sys/sub/worker/request";
        subscribe(out, 1, filter, Qos::Two, Retained::Always);
    });
    assert_eq!(ours, buffer.split_to(ours.len()));
    read(&mut buffer, |packet| match packet {
        Packet::Subscribed(verdicts) => assert_eq!((verdicts.id, verdicts.reasons), (1, &[2][..])),
        other => panic!("{other:?}"),
    })
    .unwrap();
}

#[test]
fn every_limit_of_a_welcome_is_read() {
    let mut buffer = bytes(
        "20 1b 01 00 18 21 0001 24 01 27 00001000 13 001e 11 00000e10 1f 0002 6f6b 22 0000 25 00",
    );
    buffer[1] = (buffer.len() - 2) as u8;
    buffer[4] = (buffer.len() - 5) as u8;
    let welcome = read(&mut buffer, |packet| match packet {
        Packet::Welcome(welcome) => welcome,
        other => panic!("{other:?}"),
    });
    let expected = Welcome {
        session_present: true,
        reason: Reason::SUCCESS,
        words: Some("ok".to_owned()),
        receive_max: 1,
        qos_max: Qos::One,
        packet_max: Some(4096),
        keep_alive: Some(30),
        session_expiry: Some(3600),
    };
    assert_eq!(welcome, Ok(expected));
}

#[test]
fn answers_with_and_without_reason_and_words_are_read() {
    for (hex, reason, words) in [
        ("50 02 0007", 0, None),
        ("50 03 0007 10", 0x10, None),
        ("50 04 0007 97 00", 0x97, None),
        ("50 09 0007 97 05 1f 0002 6e6f", 0x97, Some("no")),
    ] {
        read(&mut bytes(hex), |packet| match packet {
            Packet::Ack(kind::PUBREC, ack) => {
                assert_eq!((ack.id, ack.reason, ack.words), (7, Reason(reason), words));
            }
            other => panic!("{other:?}"),
        })
        .unwrap();
    }
    for (hex, reason) in [("e0 00", 0), ("e0 01 8e", 0x8e), ("e0 02 8b 00", 0x8b)] {
        read(&mut bytes(hex), |packet| match packet {
            Packet::Goodbye(goodbye) => assert_eq!(goodbye.reason, Reason(reason)),
            other => panic!("{other:?}"),
        })
        .unwrap();
    }
}

#[test]
fn what_no_broker_may_send_is_a_fault() {
    for hex in [
        "00 00",                       // no such packet
        "10 00",                       // CONNECT
        "82 02 0001",                  // SUBSCRIBE
        "f0 00",                       // AUTH
        "21 02 00 00",                 // flags in CONNACK
        "20 02 02 00",                 // flags within CONNACK
        "20 06 00 00 03 21 00 00",     // receive maximum 0
        "20 01 00",                    // it ends within
        "36 05 0001 61 0001",          // quality of service 3
        "34 05 0001 61 0000",          // packet identifier 0
        "34 05 0001 61 0001",          // no properties
        "30 04 0001 ff 00",            // a topic that is not UTF-8
        "30 03 0000 00",               // no topic
        "30 04 0009 61 00",            // a topic longer than its packet
        "30 07 0001 61 03 23 0001",    // a topic alias
        "30 06 0001 61 02 7f 00",      // an unknown property
        "30 05 0001 61 09 26",         // properties longer than their packet
        "30 08 0001 61 03 26 0001 61", // a property longer than its section
        "50 01 00",                    // half an identifier
        "50 02 0000",                  // identifier 0
        "60 02 0001",                  // PUBREL without its flags
    ] {
        let result = read(&mut bytes(hex), |packet| format!("{packet:?}"));
        assert!(result.is_err(), "{hex}: {result:?}");
    }
}

#[test]
fn heads_are_read_as_they_come() {
    for (hex, max, expected) in [
        ("", 100, Ok(Err(2))),
        ("d0", 100, Ok(Err(1))),
        ("30 05 0001", 100, Ok(Err(3))),
        ("30 ff", 1000, Ok(Err(1))),
        ("30 ff ff ff", 1000, Ok(Err(1))),
        ("30 ff ff ff ff", 1000, Err(true)),
        ("30 ff ff ff 7f", 1000, Err(false)),
        ("30 80 01", 100, Err(false)),
    ] {
        let result = frame(&bytes(hex), max);
        let result = result
            .map(|found| found.map(|_| ()))
            .map_err(|fault| matches!(fault, Fault::Malformed(_)));
        assert_eq!(result, expected, "{hex}");
    }
}

#[test]
fn packets_cut_or_changed_anywhere_never_panic() {
    let mut chance = fastrand::Rng::with_seed(7);
    let all = [CONNECTS, SUBSCRIBES].into_iter().chain(MESSAGES);
    for hex in all {
        let original = bytes(hex);
        for cut in 0..original.len() {
            let _ = frame(&original[..cut], 4096).map(|whole| whole.is_ok());
            for first in (0..=255).step_by(if cut < 8 { 1 } else { 16 }) {
                let _ = Packet::read(first, &original[..cut], &super::frame::Keep::nothing());
            }
        }
        for _ in 0..20_000 {
            let mut changed = original.clone();
            for _ in 0..chance.usize(1..4) {
                let place = chance.usize(..changed.len());
                changed[place] = chance.u8(..);
            }
            while let Ok(Ok(frame)) = frame(&changed, 4096) {
                frame.take(&mut changed, |content, keep| {
                    let _ = Packet::read(frame.first, content, keep);
                });
            }
        }
    }
}

#[test]
fn random_messages_come_back_the_same() {
    let mut chance = fastrand::Rng::with_seed(11);
    for round in 0..500 {
        let text = |chance: &mut fastrand::Rng| -> String {
            let length = chance.usize(..40);
            std::iter::repeat_with(|| chance.char('\u{1}'..))
                .take(length)
                .collect()
        };
        let body_length = match round % 20 {
            0 => chance.usize(15_000..200_000),
            _ => chance.usize(..300),
        };
        let mut message = Publication::new(
            Topic::parse("a/b").unwrap(),
            Bytes::from(vec![round as u8; body_length]),
        );
        message.content_type = chance.bool().then(|| text(&mut chance).into());
        // Names stand more than once.
        message.headers = (0..chance.usize(..20))
            .map(|n| (format!("h{}", n % 7), text(&mut chance)))
            .collect::<Headers>();
        let mut buffer = BytesMut::from(&written(|out| publish(out, &message, 9).unwrap())[..]);
        buffer.extend_from_slice(b"\xd0\x00");
        let got = read(&mut buffer, |packet| match packet {
            Packet::Publish(got) => owned(&got),
            other => panic!("{other:?}"),
        })
        .unwrap();
        assert_eq!(got.body, message.body);
        assert_eq!(got.content_type, message.content_type);
        assert_eq!(got.headers, message.headers);
        assert_eq!(buffer[..], *b"\xd0\x00");
    }
}

#[test]
fn large_bodies_are_not_copied() {
    let body = Bytes::from(vec![1; 100_000]);
    let message = Publication::new(Topic::parse("a").unwrap(), body.clone());
    let mut out = Output::default();
    publish(&mut out, &message, 1).unwrap();
    let mut slices = [std::io::IoSlice::new(&[]); 4];
    let count = bytes::Buf::chunks_vectored(&out, &mut slices);
    assert!(
        slices[..count]
            .iter()
            .any(|slice| slice.as_ptr() == body.as_ptr())
    );
    let mut buffer = BytesMut::from(&written(|out| publish(out, &message, 1).unwrap())[..]);
    let range = buffer.as_ptr_range();
    read(&mut buffer, |packet| match packet {
        Packet::Publish(got) => assert!(range.contains(&got.body.as_ptr())),
        other => panic!("{other:?}"),
    })
    .unwrap();
}

#[test]
fn of_a_flood_of_headers_one_more_is_read_than_a_message_may_have() {
    let mut message = Publication::new(Topic::parse("a").unwrap(), "");
    message.headers = (0..5000).map(|n| (format!("{n}"), "")).collect();
    let mut buffer = BytesMut::from(&written(|out| publish(out, &message, 1).unwrap())[..]);
    read(&mut buffer, |packet| match packet {
        Packet::Publish(got) => assert_eq!(got.headers.len(), 1001),
        other => panic!("{other:?}"),
    })
    .unwrap();
}

#[test]
fn what_does_not_fit_is_not_begun() {
    let plain =
        |body: &[u8]| Publication::new(Topic::parse("a").unwrap(), Bytes::copy_from_slice(body));
    let with = |name: &str, value: &str| {
        let mut message = plain(b"");
        message.headers.push(name, value);
        message
    };
    let long = "x".repeat(70_000);
    for (message, max, expected) in [
        (plain(b"12345"), 13, Ok(())),
        (
            plain(b"123456"),
            13,
            Err(Unfit::TooLarge {
                length: 14,
                length_max: 13,
            }),
        ),
        (with("a", "b\0"), 1000, Err(Unfit::Nul)),
        (
            with(&long, ""),
            1_000_000,
            Err(Unfit::TooLarge {
                length: 70_000,
                length_max: 65_535,
            }),
        ),
    ] {
        let mut out = Output::default();
        let outgoing = Outgoing {
            message: &message,
            qos: Qos::Two,
            id: 1,
            again: false,
            expiry: None,
        };
        assert_eq!(outgoing.write(&mut out, max), expected);
        assert_eq!(out.waiting() > 0, expected.is_ok());
        if expected.is_ok() {
            assert!(out.waiting() <= max);
        }
    }
}
