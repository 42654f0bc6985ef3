//! Calls under limits, and calls whose endpoint changes under them, on a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mainstay_engine::event::Received;
use mainstay_engine::policy::{OverRate, Settings};
use mainstay_engine::{
    Attempt, Category, EndpointSpec, EventKind, Failure, Need, Operation, Policy, Preset,
    RejectionReason, Role, Route, Sent, Source,
};
use tokio::time::{Instant, sleep};

use crate::calls::exact;
use crate::classify;

const MS: Duration = Duration::from_millis(1);

fn lasting(time: Duration) -> impl Fn(Attempt) -> Lasting + Send + Sync {
    move |attempt| {
        Box::pin(async move {
            sleep(time).await;
            Ok(attempt.endpoint.to_string())
        })
    }
}

type Lasting = mainstay_engine::BoxFuture<'static, Result<String, Failure>>;

/// Endpoints with a policy of their own beside the source's.
fn source(settings: &Settings, own: &Settings, endpoints: &[(&str, Role)]) -> Source {
    let own = Policy::new(own.clone()).unwrap();
    let mut builder = Source::<()>::builder("s", Policy::new(settings.clone()).unwrap());
    for (id, role) in endpoints {
        let spec = EndpointSpec::new(*id, ())
            .role(*role)
            .policy(Arc::clone(&own));
        builder = builder.endpoint(spec);
    }
    builder.build().unwrap()
}

fn one_at_a_time(settings: &Settings) -> Settings {
    let mut own = settings.clone();
    own.limits.concurrency = Some(1);
    own
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_limit_makes_calls_wait_in_line_and_none_is_lost() {
    let mut settings = exact(Preset::Balanced);
    settings.limits.concurrency = None;
    let mut own = settings.clone();
    own.limits.concurrency = Some(2);
    let source = Source::<()>::builder("s", Policy::new(settings).unwrap())
        .endpoint(EndpointSpec::new("a", ()).policy(Policy::new(own).unwrap()))
        .build()
        .unwrap();
    let running = Arc::new(AtomicU32::new(0));
    let work = |_attempt: Attempt| {
        let running = Arc::clone(&running);
        async move {
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= 2, "{now} at once at a limit of 2");
            tokio::time::sleep(Duration::from_millis(100)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok::<(), Failure>(())
        }
    };
    let operation = Operation::read("q");
    let callers = (0..20).map(|_| source.call(&operation, &classify, work));
    let began = Instant::now();
    for result in futures_util::future::join_all(callers).await {
        result.unwrap();
    }
    assert_eq!(began.elapsed(), Duration::from_millis(1000));
}

/// A slot must not wake only somebody who cannot use it: the writer that waits longest wants the other
/// endpoint.
#[tokio::test(start_paused = true)]
async fn a_free_slot_wakes_a_caller_that_can_use_it() {
    let mut settings = exact(Preset::Balanced);
    settings.limits.concurrency = None;
    settings.route.read_from = mainstay_engine::policy::ReadFrom::Replica;
    let mut own = settings.clone();
    own.limits.concurrency = Some(1);
    let own = Policy::new(own).unwrap();
    let endpoint = |id, role| {
        EndpointSpec::new(id, ())
            .role(role)
            .policy(Arc::clone(&own))
    };
    let source = Source::<()>::builder("s", Policy::new(settings).unwrap())
        .endpoint(endpoint("primary", Role::Primary))
        .endpoint(endpoint("replica", Role::Replica))
        .build()
        .unwrap();
    let lasting = |millis| {
        move |_: Attempt| async move {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            Ok::<(), Failure>(())
        }
    };
    let (read, write) = (Operation::read("r"), Operation::write("w"));
    let primary_only = || Route {
        need: Some(Need::Primary),
        ..Route::default()
    };
    // Reads fall back to the primary only where no replica is left, so both endpoints are full.
    let holding = async {
        tokio::join!(
            source.call(&write, &classify, lasting(2_000)),
            source.call(&read, &classify, lasting(100)),
        )
    };
    let later = async {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let writer = source.call_on(&write, primary_only(), &classify, lasting(1));
        let reader = async {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let began = Instant::now();
            source.call(&read, &classify, lasting(1)).await.unwrap();
            began.elapsed()
        };
        let (written, waited) = tokio::join!(writer, reader);
        written.unwrap();
        waited
    };
    let (_, waited) = tokio::join!(holding, later);
    assert!(waited < Duration::from_millis(100), "waited {waited:?}");
}

/// Two slots that come back before anybody has looked.
#[tokio::test(start_paused = true)]
async fn as_many_callers_go_on_as_slots_come_back_at_once() {
    let settings = exact(Preset::Balanced);
    let mut own = settings.clone();
    own.limits.concurrency = Some(2);
    let source = source(&settings, &own, &[("a", Role::Member)]);
    let read = Operation::read("q");
    let callers = (0..4).map(|_| source.call(&read, &classify, lasting(100 * MS)));
    let began = Instant::now();
    for result in futures_util::future::join_all(callers).await {
        result.unwrap();
    }
    assert_eq!(began.elapsed(), 200 * MS, "two at a time");
}

#[tokio::test(start_paused = true)]
async fn a_full_endpoint_is_waited_for_and_not_replaced_by_one_that_is_down() {
    let mut settings = exact(Preset::Balanced);
    settings.route.lag_max = Some(Duration::from_secs(10));
    let own = one_at_a_time(&settings);
    let endpoints = [("primary", Role::Primary), ("behind", Role::Replica)];
    let source = source(&settings, &own, &endpoints);
    // Its lag is not known, so that it is no choice for reads but as a last resort.
    let read = Operation::read("q");
    let callers = (0..3).map(|_| source.call(&read, &classify, lasting(100 * MS)));
    for result in futures_util::future::join_all(callers).await {
        assert_eq!(result.unwrap(), "primary");
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_finds_its_endpoint_full_waits_as_long_as_any_other_call() {
    let mut settings = exact(Preset::Balanced);
    settings.limits.queue_wait = Duration::from_secs(5);
    settings.retry.attempts_max = 2;
    let own = one_at_a_time(&settings);
    let source = source(&settings, &own, &[("a", Role::Member)]);
    let tries = AtomicU32::new(0);
    let slow_then_good = |_: Attempt| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            if first {
                sleep(Duration::from_secs(6)).await;
                return Err(
                    Failure::new(Category::Contention, "deadlock").sent(Sent::YesUnprocessed)
                );
            }
            Ok("done".to_owned())
        }
    };
    let write = Operation::write("w");
    let other = async {
        // Takes the place while the first one waits for its second try.
        sleep(Duration::from_millis(6_010)).await;
        source
            .call(&write, &classify, lasting(Duration::from_secs(2)))
            .await
    };
    let (first, second) = tokio::join!(source.call(&write, &classify, slow_then_good), other);
    assert_eq!(second.unwrap(), "a");
    assert_eq!(first.unwrap(), "done");
}

#[tokio::test(start_paused = true)]
async fn calls_that_wait_for_the_rate_are_bounded_by_the_queue() {
    let mut settings = exact(Preset::Balanced);
    settings.limits.rate = Some(1.0);
    settings.limits.burst = Some(1);
    settings.limits.over_rate = OverRate::Queue;
    settings.limits.queue_depth = 3;
    settings.limits.queue_wait = Duration::from_secs(60);
    let own = exact(Preset::Balanced);
    let source = source(&settings, &own, &[("a", Role::Member)]);
    let read = Operation::read("q");
    let callers = (0..10).map(|_| source.call(&read, &classify, lasting(MS)));
    let results = futures_util::future::join_all(callers).await;
    let full = |error: &mainstay_engine::CallError<Failure>| {
        error.rejection().unwrap().reason == RejectionReason::QueueFull
    };
    let refused = results.iter().filter_map(|result| result.as_ref().err());
    assert_eq!(refused.filter(|error| full(error)).count(), 6);
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 4);
}

/// The first try meets a conflict; during the back-off another endpoint becomes primary.
#[tokio::test(start_paused = true)]
async fn a_write_that_is_tried_again_follows_the_role_and_not_the_endpoint() {
    let settings = exact(Preset::Balanced);
    let endpoints = [("old", Role::Primary), ("new", Role::Replica)];
    let source = source(&settings, &settings, &endpoints);
    let tries = AtomicU32::new(0);
    let work = |attempt: Attempt| {
        let first = tries.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            match first {
                true => {
                    Err(Failure::new(Category::Contention, "conflict").sent(Sent::YesUnprocessed))
                }
                false => Ok(attempt.endpoint.to_string()),
            }
        }
    };
    let write = Operation::write("w");
    let promotion = async {
        sleep(10 * MS).await;
        source.set_primary(Some("new"), "test").unwrap();
    };
    let (written, ()) = tokio::join!(source.call(&write, &classify, work), promotion);
    assert_eq!(written.unwrap(), "new");
}

#[tokio::test(start_paused = true)]
async fn a_failing_write_that_nobody_else_may_take_is_no_failover_and_costs_no_budget() {
    let mut settings = exact(Preset::Balanced);
    settings.retry.attempts_max = 1;
    let endpoints = [
        ("primary", Role::Primary),
        ("b", Role::Replica),
        ("c", Role::Replica),
    ];
    let source = source(&settings, &settings, &endpoints);
    let mut events = source.events();
    let fails = |_: Attempt| async { Err::<(), _>(Failure::new(Category::Transient, "reset")) };
    let write = Operation::idempotent_write("w");
    source.call(&write, &classify, fails).await.unwrap_err();
    while let Some(Received::Event(event)) = events.try_next() {
        assert!(
            !matches!(event.kind, EventKind::Failover { .. }),
            "{event:?}"
        );
    }
}

/// A stream that began while the circuit was closed breaks when its opening is just over.
#[tokio::test(start_paused = true)]
async fn a_late_failure_takes_no_trial_and_opens_nothing_again() {
    let mut settings = exact(Preset::Balanced);
    settings.circuit.failures = 1;
    settings.circuit.successes = 1;
    settings.circuit.open_for = Duration::from_secs(10);
    settings.retry.attempts_max = 1;
    let source = source(&settings, &settings, &[("a", Role::Member)]);
    let broken = Failure::new(Category::Transient, "connection reset");
    let fails = |_: Attempt| {
        let broken = broken.clone();
        async move { Err::<(), _>(broken) }
    };
    let read = Operation::read("q");
    source.call(&read, &classify, fails).await.unwrap_err();
    assert_eq!(source.status()[0].circuit, "open");
    sleep(Duration::from_secs(10)).await;
    source.blame(&"a".into(), &broken);
    let answer = source.call(&read, &classify, lasting(MS)).await;
    assert_eq!(answer.unwrap(), "a", "the trial was still there");
    assert_eq!(source.status()[0].circuit, "closed");

    let failed_before = source.status()[0].stats.failures;
    let callers_own = Failure::new(Category::Persistent, "division by zero");
    source.blame(&"a".into(), &callers_own);
    assert_eq!(source.status()[0].stats.failures, failed_before);
    source.blame(&"a".into(), &broken);
    assert_eq!(source.status()[0].circuit, "open", "while closed it counts");
}

/// What was let in under other settings decides nothing under the new ones.
#[tokio::test(start_paused = true)]
async fn an_attempt_of_the_former_circuit_settings_does_not_count_in_the_new_circuit() {
    let mut settings = exact(Preset::Balanced);
    settings.circuit.failures = 5;
    settings.retry.attempts_max = 1;
    let source = Source::single("s", Policy::new(settings.clone()).unwrap());
    let fails_late = |_: Attempt| async {
        sleep(100 * MS).await;
        Err::<(), _>(Failure::new(Category::Transient, "reset"))
    };
    let read = Operation::read("q");
    let change = async {
        sleep(10 * MS).await;
        settings.circuit.failures = 1;
        source.apply_settings(settings.clone()).unwrap();
    };
    let (failed, ()) = tokio::join!(source.call(&read, &classify, fails_late), change);
    failed.unwrap_err();
    assert_eq!(source.status()[0].circuit, "closed");
}

/// Whoever obeys the time in a refusal comes when a trial can be had, not after the whole opening.
#[tokio::test(start_paused = true)]
async fn a_refusal_names_the_time_at_which_health_checks_may_have_ended_the_opening() {
    for (probed, expected) in [(true, 2), (false, 300)] {
        let mut settings = exact(Preset::Balanced);
        settings.health.enabled = probed;
        settings.health.interval = Duration::from_secs(1);
        settings.circuit.failures = 1;
        settings.circuit.open_for = Duration::from_secs(300);
        settings.retry.attempts_max = 1;
        let source = source(&settings, &settings, &[("a", Role::Member)]);
        let fails = |_: Attempt| async { Err::<(), _>(Failure::new(Category::Transient, "reset")) };
        let read = Operation::read("q");
        source.call(&read, &classify, fails).await.unwrap_err();
        let error = source
            .call(&read, &classify, lasting(MS))
            .await
            .unwrap_err();
        let rejection = error.rejection().unwrap();
        assert_eq!(rejection.reason, RejectionReason::CircuitOpen);
        assert_eq!(rejection.retry_after, Some(Duration::from_secs(expected)));
    }
}
