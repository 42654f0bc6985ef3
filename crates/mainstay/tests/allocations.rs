//! Allocations of a call that works at once, counted: none by the engine, none by the proxy.

// Functions of a test are tests too.
#![allow(clippy::unwrap_used)]

use std::io::Error;
use std::sync::Arc;

use mainstay::proxied::function;
use mainstay::{Operation, Policy, Preset, Source, transient};

#[mainstay::proxied]
trait Store {
    async fn get(&self, key: &str) -> Result<usize, Error>;
    fn get_now(&self, key: &str) -> Result<usize, Error>;
    async fn put(&self, key: String) -> Result<usize, Error>;
    fn put_now(&self, key: String) -> Result<usize, Error>;
}

struct Here;
impl Store for Here {
    async fn get(&self, key: &str) -> Result<usize, Error> {
        Ok(key.len())
    }
    fn get_now(&self, key: &str) -> Result<usize, Error> {
        Ok(key.len())
    }
    async fn put(&self, key: String) -> Result<usize, Error> {
        Ok(key.len())
    }
    fn put_now(&self, key: String) -> Result<usize, Error> {
        Ok(key.len())
    }
}

/// Allocations of the second call: the first one may set things up for its thread.
fn allocations(mut call: impl FnMut()) -> u64 {
    call();
    allocation_counter::measure(call).count_total
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

#[test]
fn a_call_of_the_engine_allocates_nothing_under_any_preset() {
    let runtime = runtime();
    for preset in Preset::ALL {
        let source = Source::single("bench", Policy::preset(*preset));
        let operation = Operation::read("get");
        let classify = transient::by(transient::io::<Error>);
        let _inside = runtime.enter();
        let counted = allocation_counter::measure(|| {});
        assert_eq!(counted.count_total, 0, "the counter itself");
        let count = runtime.block_on(async {
            let call = || source.call(&operation, &classify, |_| async { Ok::<_, Error>(7) });
            call().await.unwrap();
            let mut polled = std::pin::pin!(call());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            allocation_counter::measure(|| {
                assert!(std::future::Future::poll(polled.as_mut(), &mut context).is_ready());
            })
            .count_total
        });
        assert_eq!(count, 0, "{preset}");
    }
}

#[test]
fn a_proxy_adds_no_allocation_to_a_call_that_works_at_once() {
    let runtime = runtime();
    let store = StoreProxy::new(Here, transient::io::<Error>);
    let direct = allocations(|| {
        runtime.block_on(async { 7 });
    });
    let count = allocations(|| {
        assert_eq!(runtime.block_on(store.get("key")).unwrap(), 3);
    });
    assert_eq!(count, direct);
}

#[test]
fn a_proxy_of_a_method_that_is_not_asynchronous_allocates_nothing_either() {
    let store = StoreProxy::new(Here, transient::io::<Error>);
    let count = allocations(|| assert_eq!(store.get_now("key").unwrap(), 3));
    assert_eq!(count, 0);
}

/// The key that is handed over is one allocation; each clone of it is one more.
#[test]
fn an_argument_by_value_is_cloned_only_where_a_further_attempt_is_possible() {
    let runtime = runtime();
    let proxy = || StoreProxy::builder(Here, transient::io::<Error>);
    for (store, clones, why) in [
        (proxy().build(), 1, "three attempts"),
        (proxy().retries(0).build(), 0, "one attempt"),
        (proxy().include(["get"]).build(), 0, "handed through"),
    ] {
        let store = store.unwrap();
        let blocking = allocations(|| assert_eq!(store.put_now("key".to_owned()).unwrap(), 3));
        assert_eq!(blocking, 1 + clones, "{why}");
        let direct = allocations(|| {
            runtime.block_on(async { drop("key".to_owned()) });
        });
        let count = allocations(|| {
            assert_eq!(runtime.block_on(store.put("key".to_owned())).unwrap(), 3);
        });
        assert_eq!(count, direct + clones, "{why}");
    }
}

#[test]
fn a_policy_that_allows_more_attempts_from_now_on_is_followed() {
    let store = StoreProxy::builder(Here, transient::io::<Error>).retries(0);
    let store = store.build().unwrap();
    let put = || allocations(|| assert_eq!(store.put_now("key".to_owned()).unwrap(), 3));
    assert_eq!(put(), 1);
    let source = StoreProxy::conduct(&store).source();
    source.apply_settings(Preset::Component.settings()).unwrap();
    assert_eq!(put(), 2);
}

#[test]
fn a_protected_closure_adds_no_allocation_either() {
    let runtime = runtime();
    let get = function("get", transient::io::<Error>, |key: Arc<str>| async move {
        Ok::<_, Error>(key.len())
    });
    let key: Arc<str> = "key".into();
    let direct = allocations(|| {
        runtime.block_on(async { 7 });
    });
    let count = allocations(|| {
        assert_eq!(runtime.block_on(get.call(Arc::clone(&key))).unwrap(), 3);
    });
    assert_eq!(count, direct);
}
