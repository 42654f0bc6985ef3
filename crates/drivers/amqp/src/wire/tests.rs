//! Against frames that the INTERSECT SDK and RabbitMQ exchanged.

use bytes::{Bytes, BytesMut};
use mainstay_message::{Headers, Persistence, Publication, Topic};

use super::*;

const LENGTH_MAX: usize = 131_072;

const DECLARE_EXCHANGE: &str =
    "010001000000240028000a000012696e746572736563742d6d6573736167657305746f7069630200000000ce";
const PUBLISH: &str = "01000200000039003c0028000012696e746572736563742d6d657373616765731e6f72672e6661632e7379732e7375622e\
    776f726b65722e7265717565737400ce";
const HEADER: &str = "020002000001bc003c00000000000000000001b000106170706c69636174696f6e2f6a736f6e000001980a6d657373616765\
    5f6964530000002431343932626262622d393739372d346434312d393435352d6166636434373436373935380b63616d7061\
    69676e5f6964530000002437666261663562622d636261342d343335652d383266382d6562653337346131396338330a7265\
    71756573745f6964530000002461303033393361362d306430302d346236302d383562342d36376664613536396238343006\
    736f757263655300000039746d702d2e746d702d2e746d702d2e2d2e746d702d62386339663832312d363935322d34623761\
    2d383266332d3132383263643234666339330b64657374696e6174696f6e53000000166f72672e6661632e7379732e737562\
    2e776f726b65720a637265617465645f61745300000020323032362d31312d32395432313a33343a30312e3531343435392b\
    30303a30300b73646b5f76657273696f6e5300000005302e392e360c6f7065726174696f6e5f6964530000000a576f726b65\
    722e6164640c646174615f68616e646c657253000000074d455353414745096861735f6572726f72530000000566616c7365\
    01ce";
const BODY: &str = "0300020000000135ce";
const ACK: &str = "0100010000000d003c0050000000000000000100ce";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| (byte as char).to_digit(16).unwrap() as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

fn frame(bytes: &[u8]) -> Frame<'_> {
    let frame = split(bytes, LENGTH_MAX).unwrap().unwrap();
    assert_eq!(frame.length(), bytes.len());
    frame
}

fn written(write: impl FnOnce(&mut BytesMut)) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    write(&mut bytes);
    bytes.to_vec()
}

#[test]
fn a_captured_request_is_read_header_by_header() {
    let captured = bytes(HEADER);
    let content = read_content(frame(&captured).payload).unwrap();
    assert_eq!((content.size, content.ignored), (1, 0));
    assert_eq!(content.content_type.as_deref(), Some("application/json"));
    let names: Vec<&str> = content.headers.iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "message_id",
            "campaign_id",
            "request_id",
            "source",
            "destination",
            "created_at",
            "sdk_version",
            "operation_id",
            "data_handler",
            "has_error",
        ]
    );
    assert_eq!(
        content.headers.get("destination"),
        Some("org.fac.sys.sub.worker")
    );
    assert_eq!(content.headers.get("operation_id"), Some("Worker.add"));
    let captured = bytes(BODY);
    assert_eq!(frame(&captured).payload, b"5");
}

#[test]
fn what_we_write_is_what_was_captured() {
    let captured = bytes(HEADER);
    let content = read_content(frame(&captured).payload).unwrap();
    let message = Publication {
        content_type: content.content_type,
        headers: content.headers,
        persistence: Persistence::Transient,
        ..Publication::new(
            Topic::parse("org/fac/sys/sub/worker/request").unwrap(),
            Bytes::from_static(b"5"),
        )
    };
    assert_eq!(
        written(|into| write_properties(into, 2, &message, None)),
        captured
    );
    let publish = |into: &mut BytesMut| {
        FrameWriter::method(into, 2, BASIC_PUBLISH)
            .u16(0)
            .short("intersect-messages")
            .short(&message.topic.routing_key())
            .u8(0)
            .end();
    };
    assert_eq!(written(publish), bytes(PUBLISH));
    let declare = |into: &mut BytesMut| {
        let frame = FrameWriter::method(into, 1, EXCHANGE_DECLARE).u16(0);
        frame
            .short("intersect-messages")
            .short("topic")
            .u8(2)
            .u32(0)
            .end();
    };
    assert_eq!(written(declare), bytes(DECLARE_EXCHANGE));
    let ack = |into: &mut BytesMut| FrameWriter::method(into, 1, BASIC_ACK).u64(1).u8(0).end();
    assert_eq!(written(ack), bytes(ACK));
}

#[test]
fn the_number_of_a_returned_message_comes_back_behind_everything_else() {
    let mut message = Publication::new(Topic::parse("a/b").unwrap(), Bytes::from_static(b"body"));
    for (content_type, expiry) in [
        (None, None),
        (
            Some("text/plain"),
            Some(std::time::Duration::from_millis(1500)),
        ),
    ] {
        message.content_type = content_type.map(Into::into);
        message.headers = Headers::from_iter([("name", "value")]);
        message.expiry = expiry;
        let bytes = written(|into| {
            write_properties(into, 1, &message, Some(77));
            if let Some(left) = expiry {
                write_expiration(into, 0, left);
            }
        });
        let returned = read_correlation(frame(&bytes).payload).unwrap();
        assert_eq!((returned.size, returned.number), (4, Some(77)));
        let content = read_content(frame(&bytes).payload).unwrap();
        assert_eq!(content.headers, message.headers);
    }
    let left = std::time::Duration::from_micros(1_499_001);
    let bytes = written(|into| {
        write_properties(into, 1, &message, None);
        write_expiration(into, 0, left);
    });
    assert_eq!(
        read_correlation(frame(&bytes).payload).unwrap().number,
        None
    );
    assert!(
        bytes.windows(5).any(|part| part == b"\x041500"),
        "the expiry in milliseconds"
    );
}

#[test]
fn no_payload_that_is_cut_or_random_panics() {
    let captured = bytes(HEADER);
    let payload = frame(&captured).payload;
    for length in 0..payload.len() {
        let cut = &payload[..length];
        assert!(length >= 14 || read_content(cut).is_err());
        let _ = read_correlation(cut);
        let _ = Incoming::read(cut);
    }
    let mut rng = fastrand::Rng::with_seed(1);
    for _ in 0..20_000 {
        let length = rng.usize(..64);
        let mut random: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(length).collect();
        let _ = (
            split(&random, LENGTH_MAX).is_ok(),
            read_content(&random).is_ok(),
        );
        if random.len() > 4 {
            let (class, method) = rng
                .choice([(10, 10), (10, 50), (60, 50), (60, 60), (20, 40)])
                .unwrap();
            random[..4].copy_from_slice(&[0, class, 0, method]);
            let _ = Incoming::read(&random).is_ok();
        }
    }
}
