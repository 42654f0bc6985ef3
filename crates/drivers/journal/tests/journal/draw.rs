//! Changes at random.

use fastrand::Rng;
use mainstay_message::store::{Record, Stage, StoredMessage};
use mainstay_message::{Change, Headers};

/// Texts that are hard on quoting, on JSON and on lengths.
const TEXTS: &[&str] = &[
    "",
    "a",
    "\"quoted\\",
    "ä\u{1f980}\n",
    "'; DROP TABLE message; --",
    "\u{0}zero",
];

pub(crate) fn changes(rng: &mut Rng) -> Vec<Change> {
    (0..rng.usize(0..4)).map(|_| change(rng)).collect()
}

fn change(rng: &mut Rng) -> Change {
    let id = format!("{}{}", TEXTS[rng.usize(..TEXTS.len())], rng.u8(0..12)).into();
    match rng.u8(0..4) {
        0 => Change::Accept {
            id,
            record: record(rng),
            request: message(rng),
        },
        1 => Change::Update {
            id,
            record: record(rng),
        },
        2 => Change::Reply {
            id,
            reply: message(rng),
        },
        _ => Change::Finish { id },
    }
}

fn text(rng: &mut Rng) -> String {
    (0..rng.usize(0..3))
        .map(|_| TEXTS[rng.usize(..TEXTS.len())])
        .collect()
}

fn record(rng: &mut Rng) -> Record {
    let stages = [Stage::Received, Stage::Started, Stage::Accepted];
    Record {
        stage: stages[rng.usize(..3)],
        function: text(rng).into(),
        tried: (0..rng.usize(0..3)).map(|_| text(rng).into()).collect(),
        target: rng.bool().then(|| text(rng).into()),
        forwarded_as: (0..rng.usize(0..3)).map(|_| text(rng).into()).collect(),
        job_key: rng.bool().then(|| text(rng).into()),
        replied: rng.bool(),
        fetched: rng.bool(),
        front: "main".into(),
        received_at_ms: rng.i64(..),
    }
}

fn message(rng: &mut Rng) -> StoredMessage {
    let length = [0, 1, 100, 5000, 70_000][rng.usize(..5)];
    let headers: Headers = (0..rng.usize(0..5))
        .map(|_| (text(rng), text(rng)))
        .collect();
    StoredMessage {
        topic: text(rng).into(),
        content_type: rng.bool().then(|| text(rng).into()),
        headers,
        body: std::iter::repeat_with(|| rng.u8(..)).take(length).collect(),
    }
}
