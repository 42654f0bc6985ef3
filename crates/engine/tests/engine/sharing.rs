//! Circuits that several instances share, on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mainstay_engine::circuit::store::{
    Changes, CircuitKey, CircuitStore, LocalStore, SharedChange, SharedState, StoreUnreachable,
};
use mainstay_engine::event::{EventStream, Received};
use mainstay_engine::{
    Attempt, BoxFuture, Category, EventKind, Failure, Operation, Policy, Preset, Source,
};
use tokio::time::sleep;

use crate::classify;

const OPEN_FOR: Duration = Duration::from_secs(10);
/// Long enough for every background task to have its turn on a paused clock.
const A_MOMENT: Duration = Duration::from_millis(10);

fn instance(name: &'static str) -> Source {
    let mut settings = Preset::Balanced.settings();
    settings.health.enabled = false;
    settings.circuit.failures = 1;
    settings.circuit.successes = 1;
    settings.circuit.open_for = OPEN_FOR;
    settings.retry.attempts_max = 1;
    Source::single(name, Policy::new(settings).unwrap())
}

async fn call(source: &Source, works: bool) -> bool {
    let work = |_: Attempt| async move {
        match works {
            true => Ok(()),
            false => Err(Failure::new(Category::Transient, "connection refused")),
        }
    };
    let operation = Operation::read("get");
    source.call(&operation, &classify, work).await.is_ok()
}

fn state(source: &Source) -> &'static str {
    source.status()[0].circuit
}

async fn next_kind(events: &mut EventStream) -> EventKind {
    match events.next().await {
        Some(Received::Event(event)) => event.kind.clone(),
        other => panic!("no event: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn an_opening_a_closing_and_an_isolation_of_one_instance_hold_at_the_others() {
    let store: Arc<dyn CircuitStore> = Arc::new(LocalStore::new());
    let (here, there) = (instance("orders"), instance("orders"));
    let elsewhere = instance("customers");
    for (number, source) in [&here, &there].into_iter().enumerate() {
        source.share_circuits(Arc::clone(&store), number as u64);
    }
    elsewhere.share_circuits(Arc::clone(&store), 2);
    sleep(A_MOMENT).await;

    assert!(!call(&here, false).await);
    sleep(A_MOMENT).await;
    assert_eq!((state(&here), state(&there)), ("open", "open"));
    assert!(!call(&there, true).await, "refused by what the other found");
    assert_eq!(state(&elsewhere), "closed", "another source's circuit");

    sleep(OPEN_FOR).await;
    assert!(call(&there, true).await, "a trial");
    sleep(A_MOMENT).await;
    assert_eq!((state(&here), state(&there)), ("closed", "closed"));

    here.isolate("orders").unwrap();
    sleep(A_MOMENT).await;
    assert_eq!(state(&there), "isolated");
    here.release("orders").unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_comes_later_finds_what_was_decided_before() {
    let store: Arc<dyn CircuitStore> = Arc::new(LocalStore::new());
    let here = instance("orders");
    here.share_circuits(Arc::clone(&store), 1);
    sleep(A_MOMENT).await;
    assert!(!call(&here, false).await);
    sleep(A_MOMENT).await;

    let late = instance("orders");
    late.share_circuits(store, 2);
    sleep(A_MOMENT).await;
    assert_eq!(state(&late), "open");
    sleep(OPEN_FOR).await;
    assert!(call(&late, true).await, "no longer than it was meant for");
}

/// A store that answers or not.
#[derive(Debug)]
struct Flaky {
    up: AtomicBool,
    inner: LocalStore,
}

impl Flaky {
    fn answer<'a, T>(
        &'a self,
        answer: BoxFuture<'a, Result<T, StoreUnreachable>>,
    ) -> BoxFuture<'a, Result<T, StoreUnreachable>>
    where
        T: 'a,
    {
        match self.up.load(Ordering::SeqCst) {
            true => answer,
            false => Box::pin(async { Err(StoreUnreachable("refused".into())) }),
        }
    }
}

impl CircuitStore for Flaky {
    fn publish(&self, change: SharedChange) -> BoxFuture<'_, Result<(), StoreUnreachable>> {
        match self.up.load(Ordering::SeqCst) {
            true => self.inner.publish(change),
            false => Box::pin(async { Err(StoreUnreachable("refused".into())) }),
        }
    }

    fn subscribe(&self) -> BoxFuture<'_, Result<Box<dyn Changes>, StoreUnreachable>> {
        self.answer(self.inner.subscribe())
    }

    fn try_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
        lease: Duration,
    ) -> BoxFuture<'a, Result<bool, StoreUnreachable>> {
        self.answer(self.inner.try_trial(key, instance, lease))
    }

    fn release_trial<'a>(
        &'a self,
        key: &'a CircuitKey,
        instance: u64,
    ) -> BoxFuture<'a, Result<(), StoreUnreachable>> {
        self.answer(self.inner.release_trial(key, instance))
    }

    fn read<'a>(
        &'a self,
        key: &'a CircuitKey,
    ) -> BoxFuture<'a, Result<Option<SharedState>, StoreUnreachable>> {
        self.answer(self.inner.read(key))
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_store_circuits_go_on_and_it_is_told_when_it_is_back() {
    let store = Arc::new(Flaky {
        up: AtomicBool::new(false),
        inner: LocalStore::new(),
    });
    let source = instance("orders");
    let mut events = source.events();
    source.share_circuits(Arc::clone(&store) as Arc<dyn CircuitStore>, 1);
    let lost = next_kind(&mut events).await;
    assert!(matches!(lost, EventKind::StoreLost { .. }), "{lost:?}");

    assert!(!call(&source, false).await);
    assert_eq!(state(&source), "open", "decided here");
    let opened = next_kind(&mut events).await;
    assert!(matches!(opened, EventKind::Circuit { .. }), "{opened:?}");

    store.up.store(true, Ordering::SeqCst);
    let back = next_kind(&mut events).await;
    assert!(matches!(back, EventKind::StoreBack), "{back:?}");
    let key = CircuitKey {
        source: "orders".into(),
        endpoint: "orders".into(),
    };
    let told = store.inner.read(&key).await.unwrap();
    assert!(matches!(told, Some(SharedState::Open { .. })), "{told:?}");
}
