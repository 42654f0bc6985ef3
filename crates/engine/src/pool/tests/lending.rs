//! Lending: order, waiting, cancellation, tests before use, age, settings.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use parking_lot::Mutex;

use super::scripted::{Slot, rig};
use crate::failure::Sent;
use crate::pool::{Mode, PoolError};

const READ: Mode = Mode(0);
const WRITE: Mode = Mode(1);

#[tokio::test(start_paused = true)]
async fn a_returned_connection_is_lent_again_in_its_own_mode_only() {
    let rig = rig(|_| {});
    let first = rig.pool.checkout(READ, ()).await.unwrap();
    assert_eq!((first.number, first.mode), (0, READ));
    first.give_back();
    assert_eq!(rig.pool.checkout(WRITE, ()).await.unwrap().number, 1);
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 0);
    let stats = rig.pool.stats();
    assert_eq!((stats.hits, stats.misses, stats.idle), (1, 2, 2));
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_in_the_order_in_which_they_came() {
    let rig = rig(|s| s.active_max = 1);
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let group = crate::tasks::Tasks::new();
    for number in 0..20 {
        let (pool, order) = (rig.pool.clone(), order.clone());
        group.spawn(async move {
            let lease = pool.checkout(READ, ()).await.unwrap();
            order.lock().push(number);
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(lease);
        });
        tokio::task::yield_now().await;
    }
    assert_eq!(rig.pool.stats().waiting, 20);
    drop(held);
    assert!(group.idle(Duration::from_secs(1)).await);
    assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
    assert_eq!(rig.script.opened.load(SeqCst), 1);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_says_how_the_pool_stood() {
    let rig = rig(|s| s.active_max = 1);
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let error = rig.pool.checkout(READ, ()).await.err().unwrap();
    assert_eq!(
        error,
        PoolError::WaitTimeout {
            waited: Duration::from_secs(5),
            active: 1,
            waiting: 0
        }
    );
    assert!(error.is_refusal());
    assert_eq!(error.into_failure().sent, Sent::No);
    drop(held);
    assert_eq!(rig.pool.stats().timeouts, 1);
    assert!(rig.pool.checkout(READ, ()).await.is_ok());
    rig.assert_at_rest();
}

/// Polls a future until it was pending `k` times, calling `between` after each, then drops it.
/// Returns its output if it ended before.
async fn pending_at_most<F: Future>(
    k: usize,
    future: F,
    mut between: impl FnMut(usize),
) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for round in 0..k {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        between(round);
    }
    None
}

/// Drops a checkout at its k-th pending point for every k, with a setup that makes it pass through
/// waiting, checking and connecting.
async fn cancelled_everywhere(wait: bool, check: bool) {
    for k in 0.. {
        let rig = rig(|s| {
            s.active_max = 1;
            s.check_after = Duration::from_millis(10);
        });
        rig.pool.checkout(READ, ()).await.unwrap().give_back();
        if check {
            rig.script.fail_checks.store(true, SeqCst);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        rig.script.pending.store(2, SeqCst);
        let mut held = match wait {
            true => Some(rig.pool.checkout(WRITE, ()).await.unwrap()),
            false => None,
        };
        let dropped = Arc::new(AtomicU32::new(0));
        let checkout = rig.pool.checkout(READ, Slot(dropped.clone()));
        let done = pending_at_most(k, checkout, |round| {
            if round == 1 {
                held = None;
            }
        })
        .await;
        let finished = done.is_some();
        drop(done);
        drop(held);
        rig.settle().await;
        assert_eq!(dropped.load(SeqCst), 1, "hold, k = {k}");
        rig.assert_at_rest();
        rig.script.fail_checks.store(false, SeqCst);
        assert!(rig.pool.checkout(READ, ()).await.is_ok(), "k = {k}");
        if finished {
            assert!(
                k >= usize::from(wait) + usize::from(check),
                "nothing was pending"
            );
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkout_dropped_at_any_await_point_leaves_the_pool_as_before() {
    for (wait, check) in [(false, false), (false, true), (true, false), (true, true)] {
        cancelled_everywhere(wait, check).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_place_on_its_way_to_a_waiter_that_leaves_goes_to_the_next() {
    let rig = rig(|s| s.active_max = 1);
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let mut first = Box::pin(rig.pool.checkout(READ, ()));
    let mut second = Box::pin(rig.pool.checkout(READ, ()));
    let mut context = Context::from_waker(Waker::noop());
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(held);
    drop(first);
    assert!(second.await.is_ok());
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_connection_known_to_be_closed_is_never_lent() {
    let rig = rig(|_| {});
    let lease = rig.pool.checkout(READ, ()).await.unwrap();
    lease.closed.store(true, SeqCst);
    drop(lease);
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 1);
    let stats = rig.pool.stats();
    assert_eq!((stats.hits, stats.misses, stats.evictions), (0, 2, 1));
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_long_idle_connection_is_asked_first_and_replaced_if_it_does_not_answer() {
    let rig = rig(|s| s.cleanup_max = Duration::from_secs(2));
    rig.pool.checkout(READ, ()).await.unwrap().give_back();
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 0);
    assert_eq!(rig.script.checks.load(SeqCst), 0);
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 0);
    assert_eq!(rig.script.checks.load(SeqCst), 1);
    tokio::time::sleep(Duration::from_secs(31)).await;
    rig.script.hang.store(true, SeqCst);
    let before = tokio::time::Instant::now();
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 1);
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_failed_connect_frees_the_place_and_says_that_nothing_was_sent() {
    let rig = rig(|s| s.active_max = 1);
    rig.script.refuse_connects.store(true, SeqCst);
    for _ in 0..3 {
        let error = rig.pool.checkout(READ, ()).await.err().unwrap();
        assert!(!error.is_refusal());
        assert_eq!(error.into_failure().sent, Sent::No);
    }
    rig.script.refuse_connects.store(false, SeqCst);
    assert!(rig.pool.checkout(READ, ()).await.is_ok());
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_closes_what_is_unused_and_what_lived_long_enough_by_itself() {
    let rig = rig(|s| s.lifetime_max = Duration::from_secs(1000));
    let leases = [
        rig.pool.checkout(READ, ()).await.unwrap(),
        rig.pool.checkout(WRITE, ()).await.unwrap(),
    ];
    drop(leases);
    tokio::time::sleep(Duration::from_secs(299)).await;
    assert_eq!(rig.script.alive.load(SeqCst), 2);
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(rig.script.alive.load(SeqCst), 0);
    rig.assert_at_rest();

    let born = tokio::time::Instant::now();
    while born.elapsed() < Duration::from_secs(899) {
        assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 2);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    tokio::time::sleep(Duration::from_secs(105)).await;
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 3);
}

#[tokio::test(start_paused = true)]
async fn lifetimes_are_spread_so_that_connections_do_not_end_together() {
    let rig = rig(|s| {
        s.lifetime_max = Duration::from_secs(1000);
        s.idle_for = Duration::from_secs(10_000);
        s.idle_max = 50;
    });
    let mut leases = Vec::new();
    for _ in 0..50 {
        leases.push(rig.pool.checkout(READ, ()).await.unwrap());
    }
    drop(leases);
    tokio::time::sleep(Duration::from_secs(899)).await;
    assert_eq!(rig.script.alive.load(SeqCst), 50);
    tokio::time::sleep(Duration::from_secs(51)).await;
    let half = rig.script.alive.load(SeqCst);
    assert!((10..40).contains(&half), "{half} of 50 are left");
    tokio::time::sleep(Duration::from_secs(56)).await;
    assert_eq!(rig.script.alive.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn min_idle_connections_are_there_before_anybody_asks_and_are_replaced() {
    let rig = rig(|s| s.min_idle = 3);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(rig.pool.stats().idle, 3);
    let lease = rig.pool.checkout(READ, ()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.pool.stats().idle, 3);
    lease.closed.store(true, SeqCst);
    drop(lease);
    rig.script.refuse_connects.store(true, SeqCst);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(rig.pool.stats().idle, 3, "kept although unused for long");
    tokio::time::sleep(Duration::from_secs(1400)).await;
    assert_eq!(rig.pool.stats().idle, 0, "too old, and none can be opened");
    rig.script.refuse_connects.store(false, SeqCst);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.pool.stats().idle, 3);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn applied_settings_hold_at_once_and_keep_connections() {
    let rig = rig(|s| s.active_max = 1);
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let mut waiting = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..3 {
        let mut checkout = Box::pin(rig.pool.checkout(READ, ()));
        assert!(checkout.as_mut().poll(&mut context).is_pending());
        waiting.push(checkout);
    }
    let mut settings = crate::policy::PoolSettings {
        active_max: 3,
        ..Default::default()
    };
    rig.pool.apply(settings.clone());
    let third = waiting.pop().unwrap();
    let mut leases = vec![held];
    for checkout in waiting {
        leases.push(checkout.await.unwrap());
    }
    assert_eq!((rig.pool.stats().active, rig.pool.stats().waiting), (3, 1));

    settings.active_max = 1;
    settings.idle_max = 2;
    rig.pool.apply(settings.clone());
    leases.pop();
    leases.pop();
    assert_eq!(
        rig.pool.stats().waiting,
        1,
        "still one lease at a limit of one"
    );
    leases.pop();
    drop(third.await.unwrap());
    assert_eq!(rig.pool.stats().idle, 2);
    settings.idle_max = 1;
    rig.pool.apply(settings);
    assert_eq!(rig.pool.stats().idle, 1);
    assert_eq!(rig.script.opened.load(SeqCst), 3);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn too_many_idle_ones_push_out_the_longest_idle_of_all_modes() {
    let rig = rig(|s| s.idle_max = 2);
    let reads = [
        rig.pool.checkout(READ, ()).await.unwrap(),
        rig.pool.checkout(READ, ()).await.unwrap(),
    ];
    for lease in reads {
        lease.give_back();
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    rig.pool.checkout(WRITE, ()).await.unwrap().give_back();
    assert_eq!(rig.pool.stats().idle, 2);
    assert_eq!(rig.pool.checkout(READ, ()).await.unwrap().number, 1);
    assert_eq!(rig.pool.checkout(WRITE, ()).await.unwrap().number, 2);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn an_unpooled_connection_takes_no_place_and_is_closed_at_its_end() {
    let rig = rig(|s| s.active_max = 1);
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let mut own = rig.pool.unpooled(READ).await.unwrap();
    assert_eq!(rig.pool.stats().active, 1);
    own.set_active(true);
    drop(own);
    rig.settle().await;
    assert_eq!(rig.script.clean_ups.load(SeqCst), 1);
    drop(held);
    rig.assert_at_rest();
    assert_eq!(rig.pool.stats().idle, 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_pool_closes_its_connections_at_once() {
    let rig = rig(|_| {});
    rig.pool.checkout(READ, ()).await.unwrap().give_back();
    tokio::task::yield_now().await;
    drop(rig.pool);
    assert_eq!(rig.script.alive.load(SeqCst), 0);
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(rig.tasks.running(), 0);
}

#[tokio::test(start_paused = true)]
async fn min_idle_above_idle_max_opens_no_connection_only_to_close_it() {
    let rig = rig(|s| {
        s.min_idle = 5;
        s.idle_max = 2;
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.script.opened.load(SeqCst), 2);
    rig.pool.apply(crate::policy::PoolSettings {
        min_idle: 1,
        idle_max: 0,
        ..Default::default()
    });
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.script.opened.load(SeqCst), 2);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn as_many_callers_wait_as_may_and_the_next_is_refused_at_once() {
    let rig = rig(|s| {
        s.active_max = 1;
        s.waiting_max = 2;
    });
    let held = rig.pool.checkout(READ, ()).await.unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut checkout = Box::pin(rig.pool.checkout(READ, ()));
        assert!(checkout.as_mut().poll(&mut context).is_pending());
        waiting.push(checkout);
    }
    let began = tokio::time::Instant::now();
    let refused = rig.pool.checkout(READ, ()).await.err().unwrap();
    let expected = PoolError::QueueFull {
        active: 1,
        waiting: 2,
    };
    assert_eq!(refused, expected);
    assert!(refused.is_refusal() && refused.to_string().contains("pool.waiting_max"));
    assert_eq!(began.elapsed(), std::time::Duration::ZERO);
    // One that gives up makes room.
    waiting.pop();
    let mut checkout = Box::pin(rig.pool.checkout(READ, ()));
    assert!(checkout.as_mut().poll(&mut context).is_pending());
    drop(held);
    waiting.pop().unwrap().await.unwrap();
    checkout.await.unwrap();
    rig.assert_at_rest();
}
