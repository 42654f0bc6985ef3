//! The same without a macro.

use mainstay::proxied::{Boxed, BuildError, Method, function, group, value};

use crate::shapes::paused;
use crate::support::{Bad, Flaky, passes};

#[tokio::test(start_paused = true)]
async fn one_closure_is_tried_again_and_its_last_error_wrapped() {
    let flaky = Flaky::failing(2);
    let asked = flaky.clone();
    let get = function("get", passes, move |number: u32| {
        let flaky = asked.clone();
        async move { flaky.ask(number) }
    });
    assert_eq!(get.call(7).await.unwrap(), 7);
    assert_eq!(flaky.asked(), 3);

    let never = function("get", passes, |(): ()| async {
        Err::<u32, _>(Bad::Passing)
    });
    let Err(Bad::GivenUp(error)) = never.call(()).await else {
        panic!("it was not wrapped")
    };
    assert_eq!((error.method(), error.attempts()), ("get", 3));
    assert_eq!(never.call_or((), value(42)).await.unwrap(), 42);
}

struct Store {
    get: Boxed<String, usize, Bad>,
    put: Boxed<(String, u32), (), Bad>,
}

#[tokio::test(start_paused = true)]
async fn a_plain_structure_of_closures_is_filled_from_a_group() {
    let (gets, puts) = (Flaky::failing(2), Flaky::failing(2));
    let group = group("store", passes)
        .method(Method::read("get"))
        .method(Method::new("put"))
        .exclude(["PUT"])
        .build()
        .unwrap();
    let (get, put) = (gets.clone(), puts.clone());
    let store = Store {
        get: group
            .boxed("get", move |key: String| {
                let get = get.clone();
                async move { get.ask(key.len()) }
            })
            .unwrap(),
        put: group
            .boxed("put", move |_: (String, u32)| {
                let put = put.clone();
                async move { put.ask(()) }
            })
            .unwrap(),
    };
    assert_eq!((store.get)("key".into()).await.unwrap(), 3);
    assert_eq!(gets.asked(), 3);
    assert!(matches!(
        (store.put)(("key".into(), 1)).await,
        Err(Bad::Passing)
    ));
    assert_eq!(puts.asked(), 1);
    assert_eq!(group.conduct().included().collect::<Vec<_>>(), ["get"]);
}

#[test]
fn a_closure_that_is_not_asynchronous_blocks() {
    let flaky = Flaky::failing(2);
    let group = group("store", passes)
        .method(Method::read("get"))
        .runtime(paused())
        .build()
        .unwrap();
    let get = group
        .blocking("get", |key: String| flaky.ask(key.len()))
        .unwrap();
    assert_eq!(get("key".into()).unwrap(), 3);
    let unknown = group.blocking("set", |(): ()| flaky.ask(()));
    assert!(matches!(
        unknown.err(),
        Some(BuildError::UnknownMethod { .. })
    ));
}
