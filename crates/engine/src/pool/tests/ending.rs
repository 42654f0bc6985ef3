//! How leases end: clean, dirty, broken, abandoned, by panic, in a drain.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use tokio::time::Instant;

use super::scripted::{Rig, Scripted, Slot, rig};
use crate::pool::{Lease, Mode, PoolError};

const READ: Mode = Mode(0);

async fn lease_with_slot(rig: &Rig) -> (Lease<Scripted, Slot>, Arc<AtomicU32>) {
    let dropped = Arc::new(AtomicU32::new(0));
    let lease = rig
        .pool
        .checkout(READ, Slot(dropped.clone()))
        .await
        .unwrap();
    (lease, dropped)
}

#[tokio::test(start_paused = true)]
async fn a_dirty_connection_is_reset_before_its_place_is_free() {
    let rig = rig(|s| s.active_max = 1);
    rig.script.pending.store(3, SeqCst);
    let (mut lease, dropped) = lease_with_slot(&rig).await;
    lease.dirt = true;
    lease.mark_dirty();
    drop(lease);
    assert_eq!(rig.pool.stats().active, 1);
    assert_eq!(dropped.load(SeqCst), 0, "the hold outlives the reset");
    let next = rig.pool.checkout(READ, ()).await.unwrap();
    assert_eq!((next.number, next.dirt), (0, false));
    assert_eq!(dropped.load(SeqCst), 1);
    drop(next);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_reset_fails_or_hangs_is_closed() {
    for hang in [false, true] {
        let rig = rig(|_| {});
        rig.script.hang.store(hang, SeqCst);
        rig.script.fail_resets.store(true, SeqCst);
        let (mut lease, dropped) = lease_with_slot(&rig).await;
        lease.mark_dirty();
        let before = Instant::now();
        drop(lease);
        rig.settle().await;
        assert!(before.elapsed() <= Duration::from_millis(2001));
        assert_eq!(rig.script.alive.load(SeqCst), 0);
        assert_eq!(dropped.load(SeqCst), 1);
        rig.assert_at_rest();
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_connection_takes_the_idle_ones_of_its_generation_with_it() {
    let rig = rig(|_| {});
    let mut broken = rig.pool.checkout(READ, ()).await.unwrap();
    let mut second = rig.pool.checkout(READ, ()).await.unwrap();
    rig.pool.checkout(READ, ()).await.unwrap().give_back();
    assert_eq!((broken.generation(), rig.pool.generation()), (0, 0));
    broken.mark_broken();
    broken.mark_dirty();
    drop(broken);
    assert_eq!((rig.pool.stats().idle, rig.pool.generation()), (0, 1));

    let younger = rig.pool.checkout(READ, ()).await.unwrap();
    assert_eq!(younger.generation(), 1);
    drop(younger);
    second.mark_broken();
    drop(second);
    assert_eq!(
        rig.pool.generation(),
        1,
        "a late break of an old generation"
    );
    assert_eq!(rig.pool.stats().idle, 1, "does not touch younger ones");
    assert_eq!(rig.script.resets.load(SeqCst), 0);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn an_abandoned_connection_is_cleaned_up_before_place_and_hold_are_free() {
    let rig = rig(|s| s.active_max = 1);
    rig.script.pending.store(3, SeqCst);
    let (mut lease, dropped) = lease_with_slot(&rig).await;
    lease.set_active(true);
    assert!(lease.is_active());
    lease.mark_dirty();
    drop(lease);
    assert_eq!((rig.pool.stats().active, dropped.load(SeqCst)), (1, 0));
    let next = rig.pool.checkout(READ, ()).await.unwrap();
    assert_eq!(next.number, 0);
    assert_eq!(dropped.load(SeqCst), 1);
    drop(next);
    assert_eq!(rig.script.clean_ups.load(SeqCst), 1);
    assert_eq!(rig.script.resets.load(SeqCst), 1, "dirty as well");
    assert_eq!(rig.pool.stats().cleanups, 1);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_statement_that_was_read_to_its_end_needs_no_clean_up() {
    let rig = rig(|_| {});
    let mut lease = rig.pool.checkout(READ, ()).await.unwrap();
    lease.set_active(true);
    lease.set_active(false);
    drop(lease);
    assert_eq!(rig.pool.stats().idle, 1);
    assert_eq!(rig.script.clean_ups.load(SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn clean_ups_are_bounded_in_number_and_in_time() {
    let rig = rig(|_| {});
    rig.script.hang.store(true, SeqCst);
    let mut leases = Vec::new();
    for _ in 0..10 {
        let mut lease = rig.pool.checkout(READ, ()).await.unwrap();
        lease.set_active(true);
        leases.push(lease);
    }
    drop(leases);
    assert_eq!(rig.pool.stats().active, 4, "the others were closed at once");
    assert_eq!(rig.script.alive.load(SeqCst), 4);
    let before = Instant::now();
    rig.settle().await;
    assert!(before.elapsed() <= Duration::from_millis(2001));
    assert_eq!(rig.script.cleaning_most.load(SeqCst), 4);
    assert_eq!(rig.script.alive.load(SeqCst), 0);
    rig.assert_at_rest();
    rig.script.hang.store(false, SeqCst);
    let mut lease = rig.pool.checkout(READ, ()).await.unwrap();
    lease.set_active(true);
    drop(lease);
    rig.settle().await;
    assert_eq!(rig.pool.stats().idle, 1, "clean-ups are possible again");
}

#[tokio::test(start_paused = true)]
async fn a_failed_clean_up_closes_the_connection() {
    let rig = rig(|_| {});
    rig.script.fail_clean_ups.store(true, SeqCst);
    let mut lease = rig.pool.checkout(READ, ()).await.unwrap();
    lease.set_active(true);
    drop(lease);
    rig.settle().await;
    assert_eq!(rig.script.alive.load(SeqCst), 0);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_panic_closes_the_connection_and_frees_everything() {
    for active in [false, true] {
        let rig = rig(|s| s.active_max = 1);
        let (mut lease, dropped) = lease_with_slot(&rig).await;
        lease.set_active(active);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
            let _lease = lease;
            std::panic::resume_unwind(Box::new("as told"));
        }));
        assert!(panicked.is_err());
        assert_eq!(dropped.load(SeqCst), 1);
        assert_eq!(rig.script.alive.load(SeqCst), 0);
        rig.assert_at_rest();
    }
}

#[test]
fn outside_a_runtime_what_cannot_be_restored_is_closed() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (rig, lease, dropped) = runtime.block_on(async {
        let rig = rig(|_| {});
        let (mut lease, dropped) = lease_with_slot(&rig).await;
        lease.set_active(true);
        (rig, lease, dropped)
    });
    drop(lease);
    assert_eq!(dropped.load(SeqCst), 1);
    rig.assert_at_rest();
    drop(runtime);
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_cut_by_the_end_of_its_runtime_still_frees_place_and_hold() {
    let rig = rig(|_| {});
    rig.script.hang.store(true, SeqCst);
    let other = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let (mut lease, dropped) = lease_with_slot(&rig).await;
    lease.set_active(true);
    {
        let _inside = other.enter();
        drop(lease);
    }
    assert_eq!(rig.pool.stats().active, 1);
    other.shutdown_background();
    assert_eq!(dropped.load(SeqCst), 1);
    rig.assert_at_rest();
}

#[tokio::test(start_paused = true)]
async fn a_drain_refuses_waits_for_leases_and_can_be_taken_back() {
    let rig = rig(|s| s.active_max = 2);
    rig.pool.checkout(READ, ()).await.unwrap().give_back();
    let leases = [
        rig.pool.checkout(READ, ()).await.unwrap(),
        rig.pool.checkout(READ, ()).await.unwrap(),
    ];
    let waiter = rig.pool.clone();
    let group = crate::tasks::Tasks::new();
    let seen = Arc::new(parking_lot::Mutex::new(None));
    let slot = seen.clone();
    group.spawn(async move {
        *slot.lock() = waiter.checkout(READ, ()).await.err();
    });
    tokio::task::yield_now().await;
    assert_eq!(rig.pool.drain(Duration::from_secs(1)).await, 2);
    assert!(group.idle(Duration::from_secs(1)).await);
    assert_eq!(*seen.lock(), Some(PoolError::Draining));
    assert_eq!(
        rig.pool.checkout(READ, ()).await.err(),
        Some(PoolError::Draining)
    );

    let pool = rig.pool.clone();
    group.spawn(async move {
        assert_eq!(pool.drain(Duration::from_secs(10)).await, 0);
    });
    tokio::task::yield_now().await;
    drop(leases);
    let before = Instant::now();
    assert!(group.idle(Duration::from_secs(5)).await);
    assert!(
        before.elapsed() < Duration::from_secs(1),
        "told, not timed out"
    );
    assert_eq!(rig.script.alive.load(SeqCst), 0);

    rig.pool.reopen();
    drop(rig.pool.checkout(READ, ()).await.unwrap());
    rig.pool.close();
    rig.pool.reopen();
    assert_eq!(
        rig.pool.checkout(READ, ()).await.err(),
        Some(PoolError::Closed)
    );
    assert_eq!(rig.pool.unpooled(READ).await.err(), Some(PoolError::Closed));
    rig.assert_at_rest();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(rig.tasks.running(), 0, "the sweeper of a closed pool ends");
}

#[tokio::test(start_paused = true)]
async fn a_pool_at_rest_keeps_nothing_and_lends_all_the_same() {
    let rig = rig(|s| s.min_idle = 1);
    let first = rig.pool.checkout(READ, ()).await.unwrap();
    let second = rig.pool.checkout(READ, ()).await.unwrap();
    drop(first);
    assert!(rig.pool.stats().idle > 0);
    rig.pool.rest(true);
    assert_eq!(rig.pool.stats().idle, 0);
    drop(second);
    drop(rig.pool.checkout(READ, ()).await.unwrap());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(rig.pool.stats().idle, 0, "not even min_idle");
    rig.pool.rest(false);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(rig.pool.stats().idle, 1);
    drop(rig.pool.checkout(READ, ()).await.unwrap());
    assert_eq!(rig.pool.stats().idle, 1);
}
