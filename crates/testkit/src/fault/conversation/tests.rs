use super::*;

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(u32::try_from(body.len()).unwrap() + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn messages(list: &[(u8, &[u8])]) -> BytesMut {
    let bytes: Vec<u8> = list
        .iter()
        .flat_map(|(tag, body)| message(*tag, body))
        .collect();
    BytesMut::from(&bytes[..])
}

/// A conversation that is past its start.
fn started() -> Conversation {
    let mut conversation = Conversation::new(false);
    let mut startup = BytesMut::from(&[0, 0, 0, 8, 0, 3, 0, 0][..]);
    let unit = conversation.take(&mut startup).unwrap().unwrap();
    assert_eq!(unit.awaits, Awaits::Ready);
    conversation.sent(Pending::new(unit.awaits));
    let ready = answers(
        &mut conversation,
        messages(&[(b'R', b"\0\0\0\0"), (b'Z', b"I")]),
    );
    assert_eq!(ready.len(), 1);
    conversation
}

fn units(
    conversation: &mut Conversation,
    mut bytes: BytesMut,
) -> Vec<(Vec<(Kind, String)>, Awaits)> {
    let mut units = Vec::new();
    while let Some(unit) = conversation.take(&mut bytes).unwrap() {
        conversation.sent(Pending::new(unit.awaits));
        let statements = unit
            .statements
            .iter()
            .map(|statement| (statement.kind, statement.text.to_string()));
        units.push((statements.collect(), unit.awaits));
    }
    units
}

/// How many units each ReadyForQuery answered, and the answer.
fn answers(conversation: &mut Conversation, mut bytes: BytesMut) -> Vec<(usize, Answer)> {
    let mut answers = Vec::new();
    while let Some(piece) = conversation.piece(&mut bytes).unwrap() {
        answers.extend(piece.answered.map(|(units, answer)| (units.len(), answer)));
    }
    answers
}

fn completed(tag: &str) -> Answer {
    Answer::Completed(tag.to_owned())
}

#[test]
fn a_prepared_statement_is_known_by_its_name_when_it_runs() {
    let mut conversation = started();
    let prepare = messages(&[
        (b'P', b"s1\0INSERT INTO t\0\0\0"),
        (b'D', b"Ss1\0"),
        (b'S', b""),
    ]);
    let insert = "INSERT INTO t".to_owned();
    let expected = vec![(
        vec![(Kind::Prepare, insert.clone())],
        Awaits::ReadyAfterSync,
    )];
    assert_eq!(units(&mut conversation, prepare), expected);
    let run = messages(&[
        (b'B', b"\0s1\0\0\0\0\0\0\0"),
        (b'E', b"\0\0\0\0\0"),
        (b'S', b""),
    ]);
    let expected = vec![(vec![(Kind::Statement, insert)], Awaits::ReadyAfterSync)];
    assert_eq!(units(&mut conversation, run.clone()), expected);
    units(
        &mut conversation,
        messages(&[(b'C', b"Ss1\0"), (b'S', b"")]),
    );
    let expected = vec![(
        vec![(Kind::Statement, String::new())],
        Awaits::ReadyAfterSync,
    )];
    assert_eq!(
        units(&mut conversation, run),
        expected,
        "a closed name is forgotten"
    );
}

#[test]
fn a_unit_leaves_only_when_it_is_whole() {
    let mut conversation = started();
    assert!(units(&mut conversation, messages(&[(b'P', b"\0COMMIT\0\0\0")])).is_empty());
    let rest = messages(&[
        (b'B', b"\0\0\0\0\0\0\0\0"),
        (b'E', b"\0\0\0\0\0"),
        (b'S', b""),
    ]);
    let expected = vec![(
        vec![(Kind::Commit, "COMMIT".to_owned())],
        Awaits::ReadyAfterSync,
    )];
    assert_eq!(units(&mut conversation, rest), expected);
}

#[test]
fn pipelined_statements_are_answered_in_their_order() {
    let mut conversation = started();
    let asked = messages(&[(b'Q', b"BEGIN\0"), (b'Q', b"INSERT\0"), (b'X', b"")]);
    let kinds: Vec<_> = units(&mut conversation, asked)
        .into_iter()
        .map(|unit| unit.1)
        .collect();
    assert_eq!(kinds, [Awaits::Ready, Awaits::Ready, Awaits::Nothing]);
    let said = messages(&[
        (b'C', b"BEGIN\0"),
        (b'Z', b"T"),
        (b'N', b"a notice"),
        (b'E', b"SERROR\0C23505\0\0"),
        (b'Z', b"E"),
    ]);
    let expected = [
        (1, completed("BEGIN")),
        (1, Answer::Failed("23505".to_owned())),
    ];
    assert_eq!(answers(&mut conversation, said), expected);
}

#[test]
fn a_flush_is_answered_with_the_sync_after_it() {
    let mut conversation = started();
    let asked = messages(&[(b'E', b"\0\0\0\0\0"), (b'H', b""), (b'S', b"")]);
    let awaits: Vec<_> = units(&mut conversation, asked)
        .into_iter()
        .map(|unit| unit.1)
        .collect();
    assert_eq!(awaits, [Awaits::Part, Awaits::ReadyAfterSync]);
    let said = messages(&[(b'C', b"SELECT 1\0"), (b'Z', b"I")]);
    assert_eq!(
        answers(&mut conversation, said),
        [(2, completed("SELECT 1"))]
    );
}

#[test]
fn the_sync_before_copied_data_has_no_answer_of_its_own() {
    let mut conversation = started();
    units(
        &mut conversation,
        messages(&[(b'E', b"\0\0\0\0\0"), (b'S', b"")]),
    );
    assert!(answers(&mut conversation, messages(&[(b'G', b"\0\0\0")])).is_empty());
    units(
        &mut conversation,
        messages(&[(b'd', b"1\n"), (b'c', b""), (b'S', b"")]),
    );
    units(&mut conversation, messages(&[(b'Q', b"SELECT\0")]));
    let said = messages(&[
        (b'C', b"COPY 1\0"),
        (b'Z', b"I"),
        (b'C', b"SELECT 0\0"),
        (b'Z', b"I"),
    ]);
    let expected = [(2, completed("COPY 1")), (1, completed("SELECT 0"))];
    assert_eq!(answers(&mut conversation, said), expected);
}

#[test]
fn every_byte_of_an_answer_passes_however_it_is_split() {
    let whole = messages(&[
        (b'T', b"columns"),
        (b'D', b"a long row"),
        (b'C', b"SELECT 1\0"),
        (b'Z', b"I"),
    ]);
    for size in 1..whole.len() {
        let mut conversation = started();
        units(&mut conversation, messages(&[(b'Q', b"SELECT\0")]));
        let (mut buffer, mut passed, mut answered) = (BytesMut::new(), Vec::new(), 0);
        for chunk in whole.chunks(size) {
            buffer.extend_from_slice(chunk);
            while let Some(piece) = conversation.piece(&mut buffer).unwrap() {
                assert_eq!(piece.first, passed.is_empty());
                passed.extend_from_slice(&piece.bytes);
                answered += usize::from(piece.answered.is_some());
            }
        }
        assert_eq!((&passed[..], answered), (&whole[..], 1), "chunks of {size}");
    }
}

#[test]
fn refused_encryption_goes_on_in_the_clear_and_granted_is_opaque() {
    for (answer, opaque) in [(b"N", false), (b"S", true)] {
        let mut conversation = Conversation::new(false);
        let mut request = BytesMut::from(&[0, 0, 0, 8, 4, 210, 22, 47][..]);
        assert!(conversation.take(&mut request).unwrap().is_some());
        let piece = conversation
            .piece(&mut BytesMut::from(&answer[..]))
            .unwrap()
            .unwrap();
        assert_eq!(&piece.bytes[..], answer);
        assert_eq!(conversation.stage == Stage::Opaque, opaque);
    }
}
