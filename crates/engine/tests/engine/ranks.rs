//! A face's order of endpoints, and endpoints that a face has set aside.

use mainstay_engine::{
    Category, EndpointSpec, EventKind, Failure, Operation, Policy, Preset, Route, Sent, Source,
};

use crate::calls::{Scripted, Step, exact};
use crate::classify;

fn source(members: &[(&'static str, &Scripted)]) -> Source<Scripted> {
    let policy = Policy::new(exact(Preset::Service)).unwrap();
    let mut builder = Source::builder("s", policy);
    for (id, member) in members {
        builder = builder.endpoint(EndpointSpec::new(*id, (*member).clone()));
    }
    builder.build().unwrap()
}

/// The endpoint that answers a call which prefers names by the alphabet.
async fn answers(source: &Source<Scripted>) -> String {
    let by_name = |placed: &mainstay_engine::endpoint::Placed<Scripted>| {
        u32::from(placed.endpoint.id.as_bytes()[0])
    };
    let route = Route {
        rank: Some(&by_name),
        ..Route::default()
    };
    let operation = Operation::idempotent_write("op");
    let done = source
        .call_on(&operation, route, &classify, Scripted::answer)
        .await;
    done.unwrap().value
}

fn failing() -> Step {
    Step::Fail(Failure::new(Category::Transient, "no").sent(Sent::Maybe))
}

#[tokio::test(start_paused = true)]
async fn a_lower_rank_is_used_up_before_a_higher_one_is_asked() {
    let (a, b) = (Scripted::of([failing(), failing()]), Scripted::default());
    let source = source(&[("b", &b), ("a", &a)]);
    assert_eq!(answers(&source).await, "b");
    assert_eq!((a.count(), b.count()), (2, 1), "two tries on the first");
    assert_eq!(answers(&source).await, "a");
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_set_aside_gets_calls_only_when_nothing_else_is_left() {
    let (a, b) = (Scripted::default(), Scripted::of([]));
    let source = source(&[("a", &a), ("b", &b)]);
    let mut events = source.events();
    assert!(source.set_aside("a", "no answer").unwrap());
    assert!(!source.set_aside("a", "no answer").unwrap(), "said once");
    assert_eq!(answers(&source).await, "b");
    source.set_aside("b", "no answer either").unwrap();
    assert_eq!(answers(&source).await, "a", "nothing else is left");
    assert!(source.take_back("b").unwrap());
    assert_eq!(answers(&source).await, "b");
    assert!(source.take_back("a").unwrap());
    assert_eq!(answers(&source).await, "a");
    assert!(source.set_aside("c", "").is_err());
    let mut told = Vec::new();
    while let Some(mainstay_engine::event::Received::Event(event)) = events.try_next() {
        told.push(match &event.kind {
            EventKind::Down { endpoint, .. } => format!("down {endpoint}"),
            EventKind::Recovered { endpoint } => format!("back {endpoint}"),
            EventKind::LastResort { endpoint } => format!("last {endpoint}"),
            other => format!("{other:?}"),
        });
    }
    assert_eq!(told, ["down a", "down b", "back b", "back a"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_under_way_keeps_its_tries_on_an_endpoint_that_is_set_aside_meanwhile() {
    let (a, b) = (Scripted::of([failing()]), Scripted::default());
    let source = source(&[("a", &a), ("b", &b)]);
    let call = answers(&source);
    tokio::pin!(call);
    // It has failed once and waits.
    assert!(futures_util::poll!(call.as_mut()).is_pending());
    assert_eq!(a.count(), 1);
    source.set_aside("a", "failed").unwrap();
    assert_eq!(call.await, "a");
    assert_eq!((a.count(), b.count()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_set_aside_is_tried_after_the_others_have_failed() {
    let (a, b) = (Scripted::of([failing(), failing()]), Scripted::default());
    let source = source(&[("a", &a), ("b", &b)]);
    source.set_aside("b", "failed before").unwrap();
    assert_eq!(answers(&source).await, "b");
    assert_eq!((a.count(), b.count()), (2, 1));
}
