//! The channel that publishes.

use super::*;

#[test]
fn an_exchange_that_may_not_be_declared_is_looked_for() {
    let mut peer = Peer::new();
    peer.login();
    peer.say(1, CHANNEL_OPEN_OK, &[0; 4]).unwrap();
    peer.say(1, CHANNEL_CLOSE, &closed(403, "no")).unwrap();
    assert_eq!(peer.heard(), [(1, (40, 10)), (1, (20, 41)), (1, (20, 10))]);
    peer.say(1, CHANNEL_OPEN_OK, &[0; 4]).unwrap();
    let end = peer
        .say(1, CHANNEL_CLOSE, &closed(404, "none"))
        .unwrap_err();
    assert!(
        end.refused && end.reason.contains("intersect-messages: 404 none"),
        "{}",
        end.reason
    );
}

#[test]
fn a_message_that_nobody_takes_is_told_apart_from_its_neighbours() {
    let mut peer = Peer::up();
    let mut told = [Some(8), None, Some(9)].map(|number| peer.publish(number));
    peer.say(1, RETURN, &closed(312, "NO_ROUTE")).unwrap();
    let mut returned = BytesMut::new();
    let message = Publication::new(Topic::parse("a/b").unwrap(), Bytes::from_static(b"body"));
    write_properties(&mut returned, 1, &message, Some(9));
    let header = split(&returned, FRAME_MAX).unwrap().unwrap();
    peer.frame(Kind::Header, 1, header.payload).unwrap();
    peer.frame(Kind::Body, 1, b"body").unwrap();
    let error = failed(&mut told[2]);
    assert!(matches!(error.kind, PublishErrorKind::Unroutable { .. }));
    assert_eq!(error.sent, Sent::YesUnprocessed);
    peer.confirm(3, true).unwrap();
    assert!(
        told[..2]
            .iter_mut()
            .all(|told| told.try_recv().unwrap().is_ok())
    );
}

#[test]
fn a_lost_connection_tells_what_left_and_what_did_not() {
    let mut peer = Peer::up();
    let mut first = peer.publish(None);
    let length = peer.out.remaining();
    let mut second = peer.publish(None);
    peer.out.advance(length);
    let Peer { session, out, .. } = peer;
    session.end(&out, &"gone".into());
    assert_eq!(failed(&mut first).sent, Sent::Maybe);
    assert_eq!(failed(&mut second).sent, Sent::No);
}

#[test]
fn a_refused_publication_takes_no_other_channel_down_and_the_next_goes_out() {
    let mut peer = Peer::up();
    let listener = peer.subscribe(durable(), 4);
    peer.activate();
    let mut told = peer.publish(None);
    peer.say(1, CHANNEL_CLOSE, &closed(403, "not to a.b"))
        .unwrap();
    let error = failed(&mut told);
    assert!(
        matches!(&error.kind, PublishErrorKind::Refused { reason } if reason.contains("403 not to a.b"))
    );
    assert_eq!(error.sent, Sent::YesUnprocessed);
    assert!(peer.session.is_up() && !peer.session.can_publish());
    peer.open_again();
    assert!(peer.session.can_publish());
    let mut told = peer.publish(None);
    peer.confirm(1, false).unwrap();
    assert_eq!(told.try_recv().unwrap(), Ok(()));
    assert_eq!(*listener.state.borrow(), SubscriptionState::Active);
}

#[test]
fn of_several_publications_only_the_refused_one_is_told_so() {
    let mut peer = Peer::up();
    let mut told = [None; 3].map(|number| peer.publish(number));
    peer.heard();
    peer.say(1, CHANNEL_CLOSE, &closed(403, "not to a.b"))
        .unwrap();
    for told in &mut told {
        let error = failed(told);
        assert!(matches!(error.kind, PublishErrorKind::Lost { .. }));
        assert_eq!(error.sent, Sent::Maybe);
    }
    peer.open_again();
    let mut outcomes = vec![];
    for refused in [false, true, false] {
        assert!(peer.session.can_publish());
        let mut told = peer.publish(None);
        assert!(!peer.session.can_publish(), "one at a time");
        match refused {
            false => peer.confirm(1, false).unwrap(),
            true => {
                peer.say(1, CHANNEL_CLOSE, &closed(403, "no")).unwrap();
                peer.open_again();
            }
        }
        outcomes.push(told.try_recv().unwrap().map_err(|error| error.kind));
    }
    assert!(matches!(
        &outcomes[..],
        [Ok(()), Err(PublishErrorKind::Refused { .. }), Ok(())]
    ));
    let _told = peer.publish(None);
    assert!(peer.session.can_publish(), "it was found");
}

#[test]
fn no_more_publications_are_on_their_way_than_was_set() {
    let mut peer = Peer::up();
    let _told = [None; 3].map(|number| {
        assert!(peer.session.can_publish());
        peer.publish(number)
    });
    assert!(!peer.session.can_publish());
    peer.confirm(1, false).unwrap();
    assert!(peer.session.can_publish());
}
