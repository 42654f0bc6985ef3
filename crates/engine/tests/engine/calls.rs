//! The path of a call over scripted back ends, on a paused clock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_engine::policy::{Jitter, RetryOrder};
use mainstay_engine::{
    Attempt, Category, EndpointSpec, EventKind, Failure, Operation, Outcome, Policy, Preset,
    RejectionReason, Role, Safety, Sent, Settings, Source, Stopped,
};
use tokio::time::Instant;

use crate::classify;

/// A back end whose answers are written down beforehand; once they are used up it succeeds.
#[derive(Clone, Default)]
pub(crate) struct Scripted {
    answers: Arc<Mutex<VecDeque<Step>>>,
    pub(crate) calls: Arc<AtomicU32>,
}

#[derive(Clone)]
pub(crate) enum Step {
    Fail(Failure),
    Hang,
    HangAfterHandOver,
}

impl Scripted {
    pub(crate) fn of(steps: impl IntoIterator<Item = Step>) -> Self {
        let scripted = Scripted::default();
        scripted.answers.lock().unwrap().extend(steps);
        scripted
    }

    pub(crate) async fn answer(attempt: Attempt<Scripted>) -> Result<String, Failure> {
        let (member, attempt) = attempt.split();
        member.calls.fetch_add(1, Ordering::SeqCst);
        let step = member.answers.lock().unwrap().pop_front();
        match step {
            None => {
                attempt.handed_over();
                Ok(attempt.endpoint.to_string())
            }
            Some(Step::Fail(failure)) => Err(failure),
            Some(Step::Hang) => std::future::pending().await,
            Some(Step::HangAfterHandOver) => {
                attempt.handed_over();
                std::future::pending().await
            }
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.calls.load(Ordering::SeqCst)
    }
}

pub(crate) fn exact(preset: Preset) -> Settings {
    let mut settings = preset.settings();
    settings.retry.jitter = Jitter::None;
    settings.health.enabled = false;
    settings.route.lag_max = None;
    settings
}

fn source(settings: Settings, members: &[(&'static str, Role, &Scripted)]) -> Source<Scripted> {
    let mut builder = Source::builder("s", Policy::new(settings).unwrap());
    for (id, role, member) in members {
        builder = builder.endpoint(EndpointSpec::new(*id, (*member).clone()).role(*role));
    }
    builder.build().unwrap()
}

fn transient(sent: Sent) -> Step {
    Step::Fail(Failure::new(Category::Transient, "connection reset").sent(sent))
}

#[tokio::test(start_paused = true)]
async fn a_read_goes_on_at_the_next_endpoint_at_once() {
    let (bad, good) = (
        Scripted::of(vec![transient(Sent::Maybe); 9]),
        Scripted::default(),
    );
    let source = source(
        exact(Preset::Balanced),
        &[("bad", Role::Replica, &bad), ("good", Role::Replica, &good)],
    );
    let mut events = source.events();
    let began = Instant::now();
    for _ in 0..8 {
        let got = source
            .call(&Operation::read("q"), &classify, Scripted::answer)
            .await
            .unwrap();
        assert_eq!(got, "good");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(
        bad.count() >= 1,
        "the failing endpoint was tried at least once"
    );
    let mut failovers = 0;
    while let Some(mainstay_engine::event::Received::Event(event)) = events.try_next() {
        failovers += u32::from(matches!(event.kind, EventKind::Failover { .. }));
    }
    assert_eq!(failovers, bad.count());
}

#[tokio::test(start_paused = true)]
async fn a_write_that_may_have_taken_effect_is_never_repeated() {
    let primary = Scripted::of([transient(Sent::Maybe)]);
    let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
    let error = source
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap_err();
    assert_eq!(primary.count(), 1);
    assert_eq!(error.sent(), Sent::Maybe);
    assert!(matches!(
        &error.parts().kind,
        mainstay_engine::CallErrorKind::Failed {
            stopped: Stopped::NotSafe,
            ..
        }
    ));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_provably_did_nothing_is_repeated_with_back_off() {
    for sent in [Sent::No, Sent::YesUnprocessed] {
        let primary = Scripted::of(vec![transient(sent); 2]);
        let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
        let began = Instant::now();
        source
            .call(&Operation::write("w"), &classify, Scripted::answer)
            .await
            .unwrap();
        assert_eq!(primary.count(), 3);
        assert_eq!(
            began.elapsed(),
            Duration::from_millis(1500),
            "500 ms, then 1 s"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn writes_go_to_the_primary_only_and_wait_for_one_as_the_policy_says() {
    let replica = Scripted::default();
    let mut settings = exact(Preset::Balanced);
    let without_wait = source(settings.clone(), &[("r", Role::Replica, &replica)]);
    let error = without_wait
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap_err();
    assert_eq!(
        error.rejection().unwrap().reason,
        RejectionReason::NoPrimary
    );
    assert_eq!(error.sent(), Sent::No);

    settings.route.primary_wait = Duration::from_secs(5);
    let waiting = source(settings, &[("r", Role::Replica, &replica)]);
    let promoter = waiting.clone();
    let began = Instant::now();
    let write = Operation::write("w");
    let (written, ()) = tokio::join!(
        waiting.call_on(
            &write,
            mainstay_engine::Route::default(),
            &classify,
            Scripted::answer
        ),
        async {
            tokio::time::sleep(Duration::from_secs(3)).await;
            promoter.set_primary(Some("r"), "test").unwrap();
        }
    );
    assert_eq!(written.unwrap().epoch, 2);
    assert_eq!(began.elapsed(), Duration::from_secs(3));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_attempt_ends_at_half_the_deadline_and_the_next_endpoint_answers() {
    let (hanging, good) = (Scripted::of([Step::Hang]), Scripted::default());
    let mut settings = exact(Preset::Balanced);
    settings.route.strategy = mainstay_engine::policy::Strategy::PrimaryWithStandby;
    settings.retry.deadline = Some(Duration::from_secs(8));
    let source = source(
        settings,
        &[("a", Role::Primary, &hanging), ("b", Role::Replica, &good)],
    );
    let began = Instant::now();
    let got = source
        .call(&Operation::read("q"), &classify, Scripted::answer)
        .await
        .unwrap();
    assert_eq!(
        (got.as_str(), began.elapsed()),
        ("b", Duration::from_secs(4))
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_unknown_only_after_hand_over() {
    for (step, sent) in [
        (Step::Hang, Sent::No),
        (Step::HangAfterHandOver, Sent::Maybe),
    ] {
        let primary = Scripted::of([step]);
        let mut settings = exact(Preset::AggressiveFailover);
        settings.retry.deadline = Some(Duration::from_secs(2));
        let source = source(settings, &[("p", Role::Primary, &primary)]);
        let route = mainstay_engine::Route {
            tracks: true,
            ..Default::default()
        };
        let error = source
            .call_on(&Operation::write("w"), route, &classify, Scripted::answer)
            .await
            .unwrap_err();
        assert_eq!(error.failure().unwrap().category, Category::Timeout);
        assert_eq!(error.sent(), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn one_attempt_with_an_unknown_effect_makes_the_whole_calls_effect_unknown() {
    use Sent::*;
    for (attempts, expected) in [
        ([No, No, No], No),
        ([No, YesUnprocessed, No], YesUnprocessed),
        ([Maybe, No, No], Maybe),
        ([No, Maybe, YesUnprocessed], Maybe),
        ([YesUnprocessed, No, Maybe], Maybe),
    ] {
        let primary = Scripted::of(attempts.map(transient));
        let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
        source.keep_recent_audit();
        let operation = Operation::new("w", Safety::IdempotentWrite);
        let error = source
            .call(&operation, &classify, Scripted::answer)
            .await
            .unwrap_err();
        assert_eq!(primary.count(), 3);
        assert_eq!(error.failure().unwrap().sent, expected, "{attempts:?}");
        assert_eq!(error.sent(), expected, "{attempts:?}");
        let entry = source.recent_audit().last(1, |_| true).pop().unwrap();
        assert_eq!(entry.sent, Some(expected), "{attempts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn contention_stays_on_its_endpoint_and_never_weighs() {
    let deadlock =
        Step::Fail(Failure::new(Category::Contention, "deadlock").sent(Sent::YesUnprocessed));
    let primary = Scripted::of(vec![deadlock; 2000]);
    let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
    for _ in 0..100 {
        let error = source
            .call(&Operation::write("w"), &classify, Scripted::answer)
            .await
            .unwrap_err();
        assert_eq!(error.parts().attempts.len(), 3);
    }
    assert_eq!(source.status()[0].circuit, "closed");
}

#[tokio::test(start_paused = true)]
async fn same_first_makes_all_its_tries_on_one_endpoint_with_the_series_between() {
    let (first, second) = (
        Scripted::of(vec![transient(Sent::Maybe); 7]),
        Scripted::default(),
    );
    let settings = exact(Preset::Sharded);
    assert_eq!(settings.retry.order, RetryOrder::SameFirst);
    let source = source(settings, &[("a", Role::Member, &first)]);
    let began = Instant::now();
    let error = source
        .call(&Operation::read("q"), &classify, Scripted::answer)
        .await
        .unwrap_err();
    assert_eq!(error.parts().attempts.len(), 7);
    assert!(matches!(
        error.parts().kind,
        mainstay_engine::CallErrorKind::Failed {
            stopped: mainstay_engine::Stopped::Exhausted,
            ..
        }
    ));
    // 250, 750, 1250, 1750, 2250, 2750 ms between seven attempts.
    assert_eq!(began.elapsed(), Duration::from_millis(9000));
    assert_eq!(second.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_operation_may_ask_for_fewer_attempts_than_the_policy_allows() {
    for (preset, attempts_max, made) in [
        (Preset::Sharded, None, 14),
        (Preset::Sharded, Some(2), 2),
        (Preset::Sharded, Some(100), 14),
        (Preset::Balanced, None, 6),
        (Preset::Balanced, Some(0), 1),
        (Preset::Balanced, Some(1), 1),
        (Preset::Balanced, Some(5), 5),
    ] {
        let members = [(); 2].map(|()| Scripted::of(vec![transient(Sent::Maybe); 10]));
        let endpoints = [
            ("a", Role::Member, &members[0]),
            ("b", Role::Member, &members[1]),
        ];
        let source = source(exact(preset), &endpoints);
        let mut operation = Operation::read("q");
        operation.attempts_max = attempts_max;
        let error = source
            .call(&operation, &classify, Scripted::answer)
            .await
            .unwrap_err();
        let asked: u32 = members.iter().map(Scripted::count).sum();
        assert_eq!(asked, made, "{preset} {attempts_max:?}");
        assert_eq!(error.parts().attempts.len(), asked as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_circuit_refuses_with_the_time_of_the_next_trial() {
    let primary = Scripted::of(vec![transient(Sent::Maybe); 5]);
    let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
    for _ in 0..5 {
        source
            .call(&Operation::write("w"), &classify, Scripted::answer)
            .await
            .unwrap_err();
    }
    let error = source
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap_err();
    let rejection = error.rejection().unwrap();
    assert_eq!(rejection.reason, RejectionReason::CircuitOpen);
    assert_eq!(rejection.retry_after, Some(Duration::from_secs(300)));
    tokio::time::advance(Duration::from_secs(300)).await;
    source
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap();
    source
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap();
    assert_eq!(source.status()[0].circuit, "closed");
}

#[tokio::test(start_paused = true)]
async fn half_open_lets_one_trial_through_however_many_callers_there_are() {
    let hanging = std::iter::once(Step::Hang);
    let member = Scripted::of(vec![transient(Sent::Maybe); 5].into_iter().chain(hanging));
    let mut settings = exact(Preset::Balanced);
    settings.retry.deadline = Some(Duration::from_secs(4));
    let source = source(settings, &[("p", Role::Primary, &member)]);
    for _ in 0..5 {
        source
            .call(&Operation::write("w"), &classify, Scripted::answer)
            .await
            .unwrap_err();
    }
    tokio::time::advance(Duration::from_secs(300)).await;
    let before = member.count();
    let operation = Operation::write("w");
    let callers = (0..500).map(|_| source.call(&operation, &classify, Scripted::answer));
    let results = futures_util::future::join_all(callers).await;
    assert_eq!(
        member.count() - before,
        1,
        "one trial, which hung until its limit"
    );
    assert!(results.iter().all(Result::is_err));
    // The hanging trial opened it again; the next one is due after another opening and succeeds.
    tokio::time::advance(Duration::from_secs(301)).await;
    source
        .call(&operation, &classify, Scripted::answer)
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_callers_mistakes_never_open_a_circuit() {
    let mistake =
        Step::Fail(Failure::new(Category::Persistent, "syntax").sent(Sent::YesUnprocessed));
    let primary = Scripted::of(vec![mistake; 1000]);
    let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &primary)]);
    for _ in 0..1000 {
        let error = source
            .call(&Operation::read("q"), &classify, Scripted::answer)
            .await
            .unwrap_err();
        assert_eq!(error.parts().attempts.len(), 1);
    }
    assert_eq!(source.status()[0].circuit, "closed");
}

#[tokio::test(start_paused = true)]
async fn a_spent_budget_hands_the_first_error_on() {
    let member = Scripted::of(vec![transient(Sent::Maybe); 10_000]);
    let mut settings = exact(Preset::Balanced);
    settings.circuit.failures = 0;
    let budget = mainstay_engine::policy::BudgetSettings {
        floor_per_second: 0,
        ..Default::default()
    };
    settings.retry.budget = Some(budget);
    let source = source(settings, &[("a", Role::Member, &member)]);
    let operation = Operation::read("q");
    let callers = (0..1000).map(|_| source.call(&operation, &classify, Scripted::answer));
    let results = futures_util::future::join_all(callers).await;
    let attempts: usize = results
        .iter()
        .map(|result| result.as_ref().unwrap_err().parts().attempts.len())
        .sum();
    assert!(
        attempts <= 1200,
        "{attempts} attempts for 1000 calls at a budget of 20 %"
    );
    assert!(results.iter().any(|result| matches!(
        result.as_ref().unwrap_err().parts().kind,
        mainstay_engine::CallErrorKind::Failed {
            stopped: Stopped::Budget,
            ..
        }
    )));
}

#[tokio::test(start_paused = true)]
async fn isolating_an_endpoint_cuts_what_is_in_flight_there() {
    let member = Scripted::of([Step::HangAfterHandOver]);
    let source = source(exact(Preset::Balanced), &[("p", Role::Primary, &member)]);
    let operation = Operation::write("w");
    let route = || mainstay_engine::Route {
        tracks: true,
        ..Default::default()
    };
    let (result, ()) = tokio::join!(
        source.call_on(&operation, route(), &classify, Scripted::answer),
        async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            source.isolate("p").unwrap();
        }
    );
    let error = result.unwrap_err();
    assert_eq!(error.sent(), Sent::Maybe);
    assert_eq!(source.status()[0].in_flight, 0);
    let refused = source
        .call(&Operation::write("w"), &classify, Scripted::answer)
        .await
        .unwrap_err();
    assert_eq!(
        refused.rejection().unwrap().reason,
        RejectionReason::CircuitOpen
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_nothing_is_refused_before_anything_is_tried() {
    let member = Scripted::default();
    let source = source(exact(Preset::Balanced), &[("a", Role::Member, &member)]);
    let operation = Operation::read("q").deadline(Duration::ZERO);
    let error = source
        .call(&operation, &classify, Scripted::answer)
        .await
        .unwrap_err();
    assert_eq!(
        error.rejection().unwrap().reason,
        RejectionReason::DeadlineExceeded
    );
    assert_eq!(member.count(), 0);
}

#[tokio::test(start_paused = true)]
async fn every_way_out_counts_exactly_once() {
    let member = Scripted::of([Step::Hang, transient(Sent::Maybe)]);
    let mut settings = exact(Preset::Balanced);
    settings.retry.attempts_max = 1;
    let source = source(settings, &[("a", Role::Member, &member)]);
    let operation = Operation::read("q");
    {
        let call = source.call(&operation, &classify, Scripted::answer);
        let dropped = tokio::time::timeout(Duration::from_secs(1), call).await;
        assert!(dropped.is_err());
    }
    source
        .call(&operation, &classify, Scripted::answer)
        .await
        .unwrap_err();
    source
        .call(&operation, &classify, Scripted::answer)
        .await
        .unwrap();
    let refused = Operation::read("q").deadline(Duration::ZERO);
    source
        .call(&refused, &classify, Scripted::answer)
        .await
        .unwrap_err();
    let counts = source.counts().read();
    assert_eq!(
        (
            counts.calls,
            counts.cancelled,
            counts.failed,
            counts.succeeded,
            counts.rejected
        ),
        (4, 1, 1, 1, 1)
    );
    assert_eq!(source.status()[0].in_flight, 0);
}

#[test]
fn outcome_of_a_failure_is_itself() {
    let failure = Failure::new(Category::Transient, "x");
    assert_eq!(
        classify(&Err::<(), _>(failure.clone())),
        Outcome::Failure(failure)
    );
}
