//! Random schedules: whatever happens in whatever order, places are neither lost nor doubled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use super::scripted::{Rig, Scripted, Slot, pend, rig};
use crate::policy::PoolSettings;
use crate::pool::{Lease, Mode, Pool};
use crate::tasks::Tasks;

/// One caller: borrows again and again, gives up sometimes, and ends its leases in every way.
async fn caller(
    pool: Pool<Scripted>,
    mut chance: fastrand::Rng,
    in_use: Arc<AtomicU32>,
    slots: Arc<AtomicU32>,
    rounds: u32,
) {
    for _ in 0..rounds {
        let patience = Duration::from_micros(chance.u64(0..4000));
        let checkout = pool.checkout(Mode(chance.u8(0..3)), Slot(slots.clone()));
        let Ok(Ok(mut lease)) = tokio::time::timeout(patience, checkout).await else {
            continue;
        };
        in_use.fetch_add(1, SeqCst);
        assert!(!lease.dirt, "a dirty session was lent");
        pend(chance.u32(0..3)).await;
        if chance.bool() {
            tokio::time::sleep(Duration::from_micros(chance.u64(0..2000))).await;
        }
        in_use.fetch_sub(1, SeqCst);
        end(&mut lease, &mut chance);
    }
}

fn end(lease: &mut Lease<Scripted, Slot>, chance: &mut fastrand::Rng) {
    match chance.u32(0..10) {
        0 => lease.mark_broken(),
        1 => {
            lease.dirt = true;
            lease.mark_dirty();
        }
        2 => lease.set_active(true),
        3 => {
            lease.dirt = true;
            lease.mark_dirty();
            lease.set_active(true);
        }
        4 => lease.closed.store(true, SeqCst),
        _ => {}
    }
}

/// Changes settings and the back end's mood for a while.
async fn weather(rig: &Rig, chance: &mut fastrand::Rng, steps: u32) {
    for _ in 0..steps {
        tokio::time::sleep(Duration::from_micros(chance.u64(0..3000))).await;
        let script = &rig.script;
        script.pending.store(chance.u32(0..4), SeqCst);
        script.refuse_connects.store(chance.u32(0..5) == 0, SeqCst);
        script.fail_checks.store(chance.bool(), SeqCst);
        script.fail_resets.store(chance.u32(0..4) == 0, SeqCst);
        script.fail_clean_ups.store(chance.u32(0..4) == 0, SeqCst);
        script.hang.store(chance.u32(0..8) == 0, SeqCst);
        rig.pool.apply(PoolSettings {
            active_max: chance.u32(1..6),
            idle_max: chance.u32(0..6),
            min_idle: chance.u32(0..2),
            wait_max: Duration::from_micros(chance.u64(0..5000)),
            waiting_max: chance.u32(0..12),
            idle_for: Duration::from_millis(chance.u64(1..40)),
            lifetime_max: Duration::from_millis(chance.u64(5..100)),
            check_after: Duration::from_millis(chance.u64(0..10)),
            cleanups_max: chance.u32(0..3),
            cleanup_max: Duration::from_millis(chance.u64(1..5)),
        });
        if chance.u32(0..20) == 0 {
            rig.pool
                .drain(Duration::from_millis(chance.u64(0..5)))
                .await;
            rig.pool.reopen();
        }
    }
}

async fn play(seed: u64, callers: u32, rounds: u32) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let rig = rig(|_| {});
    let group = Tasks::new();
    let (in_use, slots) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for _ in 0..callers {
        let own = fastrand::Rng::with_seed(chance.u64(..));
        let (pool, in_use, slots) = (rig.pool.clone(), in_use.clone(), slots.clone());
        group.spawn(caller(pool, own, in_use, slots, rounds));
    }
    weather(&rig, &mut chance, 60).await;
    rig.script.hang.store(false, SeqCst);
    rig.script.refuse_connects.store(false, SeqCst);
    rig.pool.apply(PoolSettings::default());
    assert!(group.idle(Duration::from_secs(60)).await, "seed {seed}");
    rig.settle().await;
    rig.assert_at_rest();
    assert_eq!(slots.load(SeqCst), callers * rounds, "holds, seed {seed}");
    assert_eq!(in_use.load(SeqCst), 0, "seed {seed}");
    let all = PoolSettings::default().active_max;
    let mut leases = Vec::new();
    for _ in 0..all {
        leases.push(rig.pool.checkout(Mode(0), ()).await.unwrap());
    }
    assert_eq!(
        rig.pool.stats().active,
        all,
        "every place can be had, seed {seed}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_place_is_lost_or_doubled_under_random_schedules() {
    for seed in 0..150 {
        play(seed, 12, 40).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_place_is_lost_or_doubled_on_several_threads() {
    for seed in 1000..1003 {
        play(seed, 12, 100).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn never_are_more_lent_than_may_be_in_use() {
    let rig = rig(|s| s.active_max = 3);
    let group = Tasks::new();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for _ in 0..16 {
        let (pool, now, most) = (rig.pool.clone(), now.clone(), most.clone());
        group.spawn(async move {
            for _ in 0..500 {
                let lease = pool.checkout(Mode(0), ()).await.unwrap();
                most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, SeqCst);
                drop(lease);
            }
        });
    }
    assert!(group.idle(Duration::from_secs(60)).await);
    assert_eq!(most.load(SeqCst), 3);
    assert!(rig.script.opened.load(SeqCst) <= 3);
    assert_eq!(rig.pool.stats().hits + rig.pool.stats().misses, 8000);
    rig.assert_at_rest();
}
