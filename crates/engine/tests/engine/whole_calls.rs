//! Circuits in mode `operations`: a whole call counts once, on the endpoints that it was really tried on.

use mainstay_engine::policy::{CircuitMode, OverRate};
use mainstay_engine::{
    Blame, Category, EndpointSpec, Failure, Operation, Policy, Preset, Role, Sent, Settings, Source,
};

use crate::calls::{Scripted, Step, exact};
use crate::classify;

fn settings() -> Settings {
    let mut settings = exact(Preset::Balanced);
    settings.circuit.mode = CircuitMode::Operations;
    settings.circuit.failures = 3;
    settings
}

fn source(settings: Settings, members: &[(&'static str, &Scripted)]) -> Source<Scripted> {
    let mut builder = Source::builder("s", Policy::new(settings).unwrap());
    for (id, member) in members {
        builder = builder.endpoint(EndpointSpec::new(*id, (*member).clone()).role(Role::Replica));
    }
    builder.build().unwrap()
}

fn opened(source: &Source<Scripted>) -> Vec<u64> {
    let status = source.status();
    status.iter().map(|it| it.stats.circuit_opened).collect()
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_that_was_full_is_not_blamed_for_a_call_that_went_elsewhere() {
    let (full, other) = (Scripted::default(), Scripted::default());
    let mut slow = settings();
    slow.limits.rate = Some(0.001);
    slow.limits.burst = Some(1);
    slow.limits.over_rate = OverRate::Reject;
    let full = EndpointSpec::new("full", full)
        .role(Role::Replica)
        .policy(Policy::new(slow).unwrap());
    let source = Source::builder("s", Policy::new(settings()).unwrap())
        .endpoint(full)
        .endpoint(EndpointSpec::new("other", other).role(Role::Replica))
        .build()
        .unwrap();
    let operation = Operation::read("q");
    // Until the one call that it takes has been there.
    let call = || source.call(&operation, &classify, Scripted::answer);
    while call().await.unwrap() != "full" {}
    for _ in 0..40 {
        assert_eq!(call().await.unwrap(), "other");
    }
    assert_eq!(opened(&source), [0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_by_our_own_doing_decides_no_trial() {
    let ours = Failure::new(Category::Saturation, "no connection became free")
        .blame(Blame::Us)
        .sent(Sent::No);
    let bad = Failure::new(Category::Transient, "connection reset").sent(Sent::Maybe);
    let steps = std::iter::repeat_n(Step::Fail(bad), 3).chain([Step::Fail(ours)]);
    let member = Scripted::of(steps);
    let mut settings = settings();
    settings.retry.attempts_max = 1;
    let open_for = settings.circuit.open_for;
    let source = source(settings, &[("a", &member)]);
    let call = || async {
        let operation = Operation::read("q");
        let ended = source.call(&operation, &classify, Scripted::answer).await;
        ended.is_ok()
    };
    for _ in 0..3 {
        assert!(!call().await);
    }
    assert_eq!(source.status()[0].circuit, "open");
    tokio::time::sleep(open_for * 2).await;
    assert!(!call().await, "the trial ends by our own doing");
    assert_ne!(source.status()[0].circuit, "closed");
    while source.status()[0].circuit != "closed" {
        assert!(call().await);
    }
}
