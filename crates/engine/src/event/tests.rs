use super::*;

#[test]
fn a_panicking_observer_is_counted_and_the_others_still_see_the_event() {
    let events = Events::new("s".into());
    let seen = Arc::new(AtomicU64::new(0));
    events.observe(Arc::new(|_: &Event| panic!("observer fails")));
    let count = Arc::clone(&seen);
    events.observe(Arc::new(move |_: &Event| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    events.publish(EventKind::Paused);
    assert_eq!(events.panics(), 1);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn a_slow_subscriber_loses_the_oldest_and_is_told_how_many() {
    let events = Events::new("s".into());
    let mut stream = events.subscribe();
    for _ in 0..SUBSCRIBER_BACKLOG + 10 {
        events.publish(EventKind::Resumed);
    }
    assert!(matches!(stream.try_next(), Some(Received::Lost(10))));
    assert!(matches!(stream.try_next(), Some(Received::Event(_))));
}
#[test]
fn the_end_of_a_call_is_seen_by_those_who_asked_for_calls_and_only_while_they_listen() {
    let events = Events::new("s".into());
    let ended = || EventKind::CallEnded {
        operation: "query".to_owned(),
        endpoint: None,
        outcome: "success",
        attempts: 1,
        elapsed: Duration::ZERO,
    };
    let mut without = events.subscribe();
    assert!(!events.is_observed(), "nobody asked for calls");
    let mut with = events.subscribe_with_calls();
    assert!(events.is_observed());
    events.publish_call(ended());
    events.publish(EventKind::Paused);
    let names = |stream: &mut EventStream| -> Vec<String> {
        std::iter::from_fn(|| stream.try_next())
            .map(|received| match received {
                Received::Event(event) => serde_json::to_value(&*event).unwrap()["event"]
                    .as_str()
                    .unwrap()
                    .to_owned(),
                Received::Lost(count) => format!("lost {count}"),
            })
            .collect()
    };
    assert_eq!(names(&mut without), ["paused"]);
    assert_eq!(names(&mut with), ["call_ended", "paused"]);
    drop(with);
    assert!(!events.is_observed(), "whoever leaves costs nothing more");
}
