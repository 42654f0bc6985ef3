use super::*;
use crate::policy::Preset;

fn check(
    category: Category,
    sent: Sent,
    safety: Safety,
    order: RetryOrder,
    tries_here: u32,
    expected: Next,
) {
    let mut settings = Preset::Balanced.settings();
    settings.retry.order = order;
    let policy = Policy::new(settings).unwrap();
    let failure = Failure::new(category, "x").sent(sent);
    let got = next(&failure, safety, &policy, tries_here);
    assert_eq!(
        got, expected,
        "{category} {sent} {safety} {order} after {tries_here}"
    );
}

#[test]
fn what_follows_a_failure_is_decided_by_category_sent_and_safety() {
    use Category::*;
    use RetryOrder::*;
    use Safety::*;
    let unsafe_ = || Next::Stop(Stopped::NotSafe);
    let never = || Next::Stop(Stopped::NotRetryable);
    let done = || Next::Stop(Stopped::Exhausted);
    check(Transient, Sent::Maybe, Read, NextFirst, 1, Next::Move);
    check(Transient, Sent::Maybe, Write, NextFirst, 1, unsafe_());
    check(
        Transient,
        Sent::Maybe,
        IdempotentWrite,
        NextFirst,
        1,
        Next::Move,
    );
    check(Transient, Sent::No, Write, NextFirst, 1, Next::Move);
    check(
        Transient,
        Sent::YesUnprocessed,
        Write,
        NextFirst,
        1,
        Next::Move,
    );
    check(
        Contention,
        Sent::YesUnprocessed,
        Write,
        NextFirst,
        1,
        Next::Stay,
    );
    check(
        Contention,
        Sent::YesUnprocessed,
        Write,
        NextFirst,
        3,
        done(),
    );
    check(Contention, Sent::Maybe, Write, NextFirst, 1, unsafe_());
    check(Timeout, Sent::Maybe, Read, NextFirst, 1, Next::Move);
    check(Saturation, Sent::No, Write, NextFirst, 1, Next::Move);
    check(
        Persistent,
        Sent::YesUnprocessed,
        Read,
        NextFirst,
        1,
        never(),
    );
    check(Auth, Sent::No, Read, NextFirst, 1, Next::Move);
    check(
        Endpoint,
        Sent::YesUnprocessed,
        Write,
        NextFirst,
        1,
        Next::Move,
    );
    check(Endpoint, Sent::Maybe, Write, NextFirst, 1, unsafe_());
    check(Unknown, Sent::Maybe, Read, NextFirst, 1, Next::Move);
    check(Unknown, Sent::YesUnprocessed, Write, NextFirst, 1, never());
    check(Transient, Sent::Maybe, Read, SameFirst, 1, Next::Stay);
    check(Transient, Sent::Maybe, Read, SameFirst, 3, Next::Move);
    check(Auth, Sent::No, Read, SameFirst, 1, Next::Move);
}

#[test]
fn permission_denied_is_the_callers_and_goes_nowhere() {
    let policy = Policy::preset(Preset::Balanced);
    let failure = Failure::new(Category::Auth, "permission denied")
        .blame(Blame::Caller)
        .sent(Sent::YesUnprocessed);
    let got = next(&failure, Safety::Read, &policy, 1);
    assert_eq!(got, Next::Stop(Stopped::NotRetryable));
}
