//! A call whose caller leaves at any await point leaves everything as it was.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use mainstay_engine::{
    Attempt, Category, EndpointSpec, Failure, Operation, Policy, Preset, Role, Route, Sent, Source,
};

use crate::calls::exact;
use crate::classify;

/// Yields three times, fails its first two calls, then succeeds.
async fn slowly(calls: &AtomicU32) -> Result<u32, Failure> {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
    match calls.fetch_add(1, Ordering::SeqCst) {
        0 | 1 => Err(Failure::new(Category::Transient, "reset").sent(Sent::No)),
        number => Ok(number),
    }
}

/// Polls the call at most `polls` times, letting timers run in between, then drops it. Returns whether
/// it ended by itself.
async fn poll_and_drop<F: Future>(call: F, polls: u32) -> bool {
    let mut call = pin!(call);
    for _ in 0..polls {
        let ended = {
            let mut context = Context::from_waker(Waker::noop());
            call.as_mut().poll(&mut context).is_ready()
        };
        if ended {
            return true;
        }
        tokio::time::advance(Duration::from_millis(100)).await;
    }
    false
}

fn source() -> Source<()> {
    let mut settings = exact(Preset::Balanced);
    settings.limits.concurrency = Some(2);
    let mut endpoint = settings.clone();
    endpoint.limits.concurrency = Some(1);
    let endpoint = Policy::new(endpoint).unwrap();
    Source::builder("s", Policy::new(settings).unwrap())
        .endpoint(
            EndpointSpec::new("a", ())
                .role(Role::Primary)
                .policy(Arc::clone(&endpoint)),
        )
        .endpoint(
            EndpointSpec::new("b", ())
                .role(Role::Replica)
                .policy(endpoint),
        )
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_at_any_await_point_gives_everything_back() {
    let mut ended_by_itself = false;
    let mut polls = 0;
    while !ended_by_itself {
        let source = source();
        let calls = AtomicU32::new(0);
        let operation = Operation::write("w");
        let work = |_attempt: Attempt| slowly(&calls);
        ended_by_itself = poll_and_drop(source.call(&operation, &classify, work), polls).await;
        check_untouched(&source, ended_by_itself);
        polls += 1;
        assert!(polls < 200, "the call ends at last");
    }
    assert!(polls > 10, "several await points were met, not {polls}");
}

#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_at_any_await_point_takes_nothing_from_the_others() {
    for polls in 0..40 {
        let source = source();
        let operation = Operation::read("q");
        let holding = |_attempt: Attempt| async {
            tokio::time::sleep(Duration::from_millis(250)).await;
            Ok::<_, Failure>(())
        };
        let first = source.call(&operation, &classify, holding);
        let second = source.call(&operation, &classify, holding);
        let leaving = poll_and_drop(source.call(&operation, &classify, holding), polls);
        let last = source.call(&operation, &classify, holding);
        let (first, second, _, last) = tokio::join!(first, second, leaving, last);
        first.unwrap();
        second.unwrap();
        last.unwrap();
        check_untouched(&source, true);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_kept_by_work_that_goes_on_is_given_back_when_that_ends() {
    let source = source();
    let operation = Operation::write("w");
    let kept = parking_lot::Mutex::new(None);
    let route = Route {
        tracks: true,
        ..Route::default()
    };
    let work = |attempt: Attempt| {
        *kept.lock() = attempt.hold();
        async {
            std::future::pending::<()>().await;
            Ok::<_, Failure>(())
        }
    };
    assert!(!poll_and_drop(source.call_on(&operation, route, &classify, work), 3).await);
    assert_eq!(
        source.status()[0].in_flight,
        1,
        "the back end is still at it"
    );
    drop(kept.lock().take());
    check_untouched(&source, false);
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_dropped_or_panics_never_wedges_the_circuit() {
    let source = source();
    let operation = Operation::write("w");
    let failing = |_attempt: Attempt| async {
        Err::<(), _>(Failure::new(Category::Transient, "reset").sent(Sent::Maybe))
    };
    for _ in 0..5 {
        source
            .call(&operation, &classify, failing)
            .await
            .unwrap_err();
    }
    assert_eq!(source.status()[0].circuit, "open");
    tokio::time::advance(Duration::from_secs(300)).await;
    let hanging = |_attempt: Attempt| std::future::pending::<Result<(), Failure>>();
    for polls in 1..4 {
        assert!(!poll_and_drop(source.call(&operation, &classify, hanging), polls).await);
        assert_eq!(source.status()[0].circuit, "half_open");
    }
    let panicking = {
        let source = source.clone();
        let call = async move {
            let panics = |_attempt: Attempt| async {
                if true {
                    std::panic::resume_unwind(Box::new("as told"));
                }
                Ok::<(), Failure>(())
            };
            let _ = source.call(&Operation::write("w"), &classify, panics).await;
        };
        let tasks = mainstay_engine::tasks::Tasks::new();
        tasks.spawn(call).await
    };
    assert!(panicking.is_err());
    let good = |_attempt: Attempt| async { Ok::<_, Failure>(()) };
    source.call(&operation, &classify, good).await.unwrap();
    source.call(&operation, &classify, good).await.unwrap();
    assert_eq!(source.status()[0].circuit, "closed");
    check_untouched(&source, true);
}

fn check_untouched(source: &Source<()>, ended: bool) {
    for status in source.status() {
        assert_eq!(status.in_flight, 0, "{}", status.endpoint);
        if !ended {
            assert_eq!(status.circuit, "closed");
        }
    }
    let counts = source.counts().read();
    assert_eq!(
        counts.calls,
        counts.succeeded + counts.failed + counts.rejected + counts.cancelled
    );
    let operation = Operation::read("q");
    let call = source.call(&operation, &classify, |_attempt: Attempt| async {
        Ok::<_, Failure>(())
    });
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let at_once = call.as_mut().poll(&mut context);
    assert!(
        matches!(at_once, Poll::Ready(Ok(()))),
        "every place is free again"
    );
}
