//! Which methods are tried again, how often, how long, and what comes of their errors.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use mainstay::policy::CircuitMode;
use mainstay::proxied::{Rules, value};
use mainstay::{Event, EventKind, Policy, Preset, Source, Stopped};
use tokio::time::Instant;

use crate::support::{Bad, passes};

/// Gives what a script says, in order; the last one for ever.
struct Scripted {
    script: Vec<Option<fn() -> Bad>>,
    asked: AtomicU32,
    takes: Duration,
}

impl Scripted {
    fn new(script: &[Option<fn() -> Bad>]) -> Self {
        Scripted {
            script: script.to_vec(),
            asked: AtomicU32::new(0),
            takes: Duration::ZERO,
        }
    }

    async fn next(&self) -> Result<u32, Bad> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst) as usize;
        tokio::time::sleep(self.takes).await;
        match self.script[number.min(self.script.len() - 1)] {
            None => Ok(7),
            Some(error) => Err(error()),
        }
    }

    fn asked(&self) -> u32 {
        self.asked.load(Ordering::SeqCst)
    }
}

const OK: Option<fn() -> Bad> = None;
const PASSING: Option<fn() -> Bad> = Some(|| Bad::Passing);
const NOT_FOUND: Option<fn() -> Bad> = Some(|| Bad::NotFound);

#[mainstay::proxied]
trait Store {
    #[proxied(read)]
    async fn get(&self) -> Result<u32, Bad>;
    async fn put(&self) -> Result<u32, Bad>;
    #[proxied(write)]
    async fn append(&self) -> Result<u32, Bad>;
    #[proxied(pass)]
    async fn peek(&self) -> Result<u32, Bad>;
    async fn reset(&mut self) -> Result<u32, Bad>;
}

impl Store for Arc<Scripted> {
    async fn get(&self) -> Result<u32, Bad> {
        self.next().await
    }
    async fn put(&self) -> Result<u32, Bad> {
        self.next().await
    }
    async fn append(&self) -> Result<u32, Bad> {
        self.next().await
    }
    async fn peek(&self) -> Result<u32, Bad> {
        self.next().await
    }
    async fn reset(&mut self) -> Result<u32, Bad> {
        self.next().await
    }
}

fn scripted(script: &[Option<fn() -> Bad>]) -> Arc<Scripted> {
    Arc::new(Scripted::new(script))
}

/// A circuit that opens at the first failure.
fn with_circuit() -> Arc<Policy> {
    let mut settings = Preset::Component.settings();
    settings.circuit.mode = CircuitMode::WeightedConsecutive;
    settings.circuit.failures = 1;
    settings.retry.attempts_max = 1;
    Policy::new(settings).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_last_transient_error_is_wrapped_and_any_other_one_is_handed_on_at_any_attempt() {
    for (script, attempts, ended) in [
        (&[OK][..], 1, "ok"),
        (&[PASSING, OK], 2, "ok"),
        (&[PASSING, PASSING, OK], 3, "ok"),
        (&[PASSING], 3, "wrapped"),
        (&[NOT_FOUND], 1, "not found"),
        (&[PASSING, NOT_FOUND], 2, "not found"),
        (&[PASSING, PASSING, NOT_FOUND], 3, "not found"),
    ] {
        let scripted = scripted(script);
        let store = StoreProxy::new(Arc::clone(&scripted), passes);
        let result = store.get().await;
        let seen = match &result {
            Ok(_) => "ok",
            Err(Bad::NotFound) => "not found",
            Err(Bad::Passing) => "transient",
            Err(Bad::GivenUp(_)) => "wrapped",
        };
        assert_eq!((seen, scripted.asked()), (ended, attempts), "{result:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_wrapped_error_tells_method_attempts_time_and_source_also_as_json() {
    let store = StoreProxy::new(scripted(&[PASSING]), passes);
    let began = Instant::now();
    let Err(Bad::GivenUp(error)) = store.get().await else {
        panic!("it was not wrapped")
    };
    let waited = began.elapsed();
    assert_eq!((error.method(), error.attempts()), ("get", 3));
    assert_eq!(error.elapsed().as_millis(), waited.as_millis());
    assert_eq!(error.stopped(), Some(Stopped::Exhausted));
    assert!(matches!(error.error(), Some(Bad::Passing)));
    let json = error.to_json();
    let expected = format!(
        r#"{{"method":"get","attempts":3,"elapsed_ms":{},"stopped":"exhausted","sent":"maybe","source":"it may pass","correlation_id":"{}"}}"#,
        waited.as_millis(),
        error.correlation_id()
    );
    assert_eq!(json, expected);
}

#[tokio::test(start_paused = true)]
async fn pauses_are_one_second_times_n_minus_one_plus_chance_and_there_is_none_after_the_last() {
    for seed in 0..20 {
        let built = StoreProxy::builder(scripted(&[PASSING]), passes);
        let store = built
            .chance(mainstay::Chance::seeded(seed))
            .build()
            .unwrap();
        let began = Instant::now();
        store.get().await.unwrap_err();
        let waited = began.elapsed();
        // (0 + random) and (1 + random) seconds.
        assert!(
            waited >= Duration::from_secs(1) && waited < Duration::from_secs(3),
            "{waited:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn without_retries_the_error_is_wrapped_all_the_same_and_nothing_waits() {
    let scripted = scripted(&[PASSING]);
    let built = StoreProxy::builder(Arc::clone(&scripted), passes).retries(0);
    let store = built.build().unwrap();
    let began = Instant::now();
    assert!(matches!(store.get().await, Err(Bad::GivenUp(error)) if error.attempts() == 1));
    assert_eq!((scripted.asked(), began.elapsed()), (1, Duration::ZERO));
}

#[tokio::test(start_paused = true)]
async fn include_and_exclude_choose_by_name_without_case_and_exclude_wins() {
    for (include, exclude, expected) in [
        (&[][..], &[][..], &["get", "put", "append"][..]),
        (&["GET"], &[], &["get"]),
        (&["Get", "put"], &["pUt"], &["get"]),
        (&[], &["GET"], &["put", "append"]),
        (&["get"], &["get"], &[]),
        (&["reset", "get"], &["reset"], &["get"]),
    ] {
        let built = StoreProxy::builder(scripted(&[OK]), passes);
        let store = built
            .include(include.iter().copied())
            .exclude(exclude.iter().copied())
            .build()
            .unwrap();
        let included: Vec<_> = StoreProxy::conduct(&store).included().collect();
        assert_eq!(included, expected, "{include:?} {exclude:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn names_that_do_not_fit_are_refused_when_the_proxy_is_made() {
    for (include, exclude, message) in [
        (
            &["gett"][..],
            &[][..],
            "there is no method `gett`; use some of: get, put, append, peek, reset",
        ),
        (
            &[],
            &["x"],
            "there is no method `x`; use some of: get, put, append, peek, reset",
        ),
        (
            &["reset"],
            &[],
            "`reset` cannot be included, because it takes `&mut self`; leave it out of `include`",
        ),
        (
            &["Peek"],
            &[],
            "`peek` cannot be included, because it is marked `pass`; leave it out of `include`",
        ),
    ] {
        let built = StoreProxy::builder(scripted(&[OK]), passes);
        let refused = built
            .include(include.iter().copied())
            .exclude(exclude.iter().copied())
            .build();
        assert_eq!(refused.unwrap_err().to_string(), message);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_included_gets_its_error_unchanged_at_once() {
    let scripted = scripted(&[PASSING]);
    let built = StoreProxy::builder(Arc::clone(&scripted), passes).exclude(["get"]);
    let mut store = built.build().unwrap();
    assert!(matches!(store.get().await, Err(Bad::Passing)));
    assert!(matches!(store.peek().await, Err(Bad::Passing)));
    assert!(matches!(store.reset().await, Err(Bad::Passing)));
    assert_eq!(scripted.asked(), 3);
    let counts = StoreProxy::conduct(&store).source().counts().read();
    assert_eq!(counts.calls, 0, "it is no call of the engine's");
}

#[tokio::test(start_paused = true)]
async fn a_write_is_tried_again_only_where_the_rules_say_that_nothing_had_happened() {
    for (proven, asked) in [(false, 1), (true, 3)] {
        let scripted = scripted(&[PASSING]);
        let rules = Rules::transient(passes).had_no_effect(move |_| proven);
        let store = StoreProxy::new(Arc::clone(&scripted), rules);
        let Err(Bad::GivenUp(error)) = store.append().await else {
            panic!("it was not wrapped")
        };
        assert_eq!((scripted.asked(), error.attempts()), (asked, asked));
        if !proven {
            assert_eq!(error.stopped(), Some(Stopped::NotSafe));
            assert!(
                error.to_string().contains("look before you repeat it"),
                "{error}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_method_has_its_safety_and_its_name_in_the_account() {
    let store = StoreProxy::new(scripted(&[OK]), passes);
    let source = StoreProxy::conduct(&store).source();
    source.keep_recent_audit();
    store.get().await.unwrap();
    store.put().await.unwrap();
    store.append().await.unwrap();
    let entries = source.recent_audit().last(10, |_| true);
    let mut seen: Vec<_> = entries
        .iter()
        .map(|entry| {
            (
                entry.operation.to_string(),
                entry.safety.as_str(),
                entry.safety_declared,
            )
        })
        .collect();
    seen.sort();
    let expected = [
        ("append".to_owned(), "write", true),
        ("get".to_owned(), "read", true),
        ("put".to_owned(), "idempotent_write", false),
    ];
    assert_eq!(seen, expected);
}

#[tokio::test(start_paused = true)]
async fn the_predicate_is_asked_once_for_each_failed_attempt_and_of_the_last_one_too() {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let rules = move |error: &Bad| {
        count.fetch_add(1, Ordering::SeqCst);
        passes(error)
    };
    let store = StoreProxy::new(scripted(&[PASSING]), rules);
    store.get().await.unwrap_err();
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn errors_of_the_domain_do_not_open_the_circuit_unless_the_rules_say_so() {
    for (script, weighs, opens) in [
        (NOT_FOUND, None, false),
        (PASSING, None, true),
        (NOT_FOUND, Some(true), true),
        (PASSING, Some(false), false),
    ] {
        let scripted = scripted(&[script]);
        let mut rules = Rules::transient(passes);
        if let Some(weighs) = weighs {
            rules = rules.is_failure(move |_: &Bad| weighs);
        }
        let built = StoreProxy::builder(Arc::clone(&scripted), rules).policy(with_circuit());
        let store = built.build().unwrap();
        store.get().await.unwrap_err();
        let second = store.get().await.unwrap_err();
        let refused = matches!(&second, Bad::GivenUp(error) if error.rejection().is_some());
        assert_eq!(refused, opens, "{second:?}");
        assert_eq!(scripted.asked(), if opens { 1 } else { 2 });
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_the_pauses_and_cuts_an_attempt_that_hangs() {
    let scripted = scripted(&[PASSING]);
    let built = StoreProxy::builder(Arc::clone(&scripted), passes)
        .retries(100)
        .deadline(Duration::from_secs(5));
    let store = built.build().unwrap();
    let began = Instant::now();
    let Err(Bad::GivenUp(error)) = store.get().await else {
        panic!("it was not wrapped")
    };
    assert!(began.elapsed() <= Duration::from_secs(5));
    assert_eq!(error.stopped(), Some(Stopped::Deadline));

    let hanging = Arc::new(Scripted {
        takes: Duration::from_secs(3600),
        ..Scripted::new(&[OK])
    });
    let built = StoreProxy::builder(hanging, passes).deadline(Duration::from_secs(5));
    let store = built.build().unwrap();
    let began = Instant::now();
    let Err(Bad::GivenUp(error)) = store.get().await else {
        panic!("it was not wrapped")
    };
    assert_eq!(began.elapsed(), Duration::from_secs(5));
    assert!(error.error().is_none(), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_fallback_answers_for_what_was_given_up_or_refused_and_not_for_other_errors() {
    let built = StoreProxy::builder(scripted(&[PASSING]), passes).policy(with_circuit());
    let store = built.build().unwrap().fallback_get(value(42));
    assert_eq!(store.get().await.unwrap(), 42, "given up");
    assert_eq!(store.get().await.unwrap(), 42, "refused by the circuit");
    assert!(store.put().await.is_err(), "another method has none");

    let store = StoreProxy::new(scripted(&[NOT_FOUND]), passes).fallback_get(value(42));
    assert!(matches!(store.get().await, Err(Bad::NotFound)));

    let store = StoreProxy::new(scripted(&[PASSING]), passes)
        .fallback_get(|error| Ok(error.attempts() * 100));
    assert_eq!(store.get().await.unwrap(), 300);
}

#[tokio::test(start_paused = true)]
async fn events_of_the_proxys_source_tell_of_its_retries() {
    let retries = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&retries);
    let observer = move |event: &Event| {
        if matches!(event.kind, EventKind::Retry { .. }) {
            *seen.lock().unwrap() += 1;
        }
    };
    let built = StoreProxy::builder(scripted(&[PASSING]), passes);
    let store = built.observer(observer).name("orders").build().unwrap();
    store.get().await.unwrap_err();
    assert_eq!(*retries.lock().unwrap(), 2);
    assert_eq!(&**StoreProxy::conduct(&store).source().name(), "orders");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_is_counted_as_cancelled() {
    let hanging = Arc::new(Scripted {
        takes: Duration::from_secs(3600),
        ..Scripted::new(&[OK])
    });
    let store = StoreProxy::new(hanging, passes);
    let left = tokio::time::timeout(Duration::from_secs(1), store.get()).await;
    assert!(left.is_err());
    let counts = StoreProxy::conduct(&store).source().counts().read();
    assert_eq!((counts.calls, counts.cancelled), (1, 1));
}

/// Fails, and allows more attempts while it runs.
#[derive(Default)]
struct Changing {
    source: OnceLock<Source>,
    asked: AtomicU32,
}

#[mainstay::proxied]
trait Takes {
    async fn put(&self, key: String) -> Result<u32, Bad>;
}

impl Takes for Arc<Changing> {
    async fn put(&self, key: String) -> Result<u32, Bad> {
        assert_eq!(key, "key");
        self.asked.fetch_add(1, Ordering::SeqCst);
        let source = self.source.get().unwrap();
        source.apply_settings(Preset::Component.settings()).unwrap();
        Err(Bad::Passing)
    }
}

#[tokio::test(start_paused = true)]
async fn attempts_allowed_meanwhile_are_for_the_next_call_where_the_argument_was_handed_over() {
    let changing = Arc::new(Changing::default());
    let built = TakesProxy::builder(Arc::clone(&changing), passes).retries(0);
    let store = built.build().unwrap();
    let source = TakesProxy::conduct(&store).source().clone();
    changing.source.set(source).unwrap();
    for attempts in [1, 3] {
        let Err(Bad::GivenUp(error)) = store.put("key".into()).await else {
            panic!("it was not wrapped")
        };
        assert_eq!(error.attempts(), attempts);
        assert_eq!(error.stopped(), Some(Stopped::Exhausted));
    }
    assert_eq!(changing.asked.load(Ordering::SeqCst), 4);
}
