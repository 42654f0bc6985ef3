//! The queue on a paused clock, and its places under random schedules and threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};

use super::*;
use crate::tasks::Tasks;

fn limits(concurrency: u32, queue_depth: u32) -> LimitSettings {
    LimitSettings {
        concurrency: Some(concurrency),
        queue_depth,
        ..LimitSettings::default()
    }
}

/// Lets a call of this priority wait and note its name when it is served.
fn stand(group: &Tasks, queue: &Queue, order: &Arc<Mutex<Vec<&'static str>>>, call: Call) {
    let (queue, order) = (queue.clone(), order.clone());
    group.spawn(async move {
        let place = queue.enter(&limits(1, 100), call.1, None).await.unwrap();
        order.lock().push(call.0);
        tokio::time::sleep(Duration::from_millis(1)).await;
        drop(place);
    });
}

type Call = (&'static str, Priority);

#[tokio::test(start_paused = true)]
async fn without_a_limit_everybody_enters() {
    let queue = Queue::new();
    let places: Vec<Place> = (0..1000).map(|_| queue.try_enter(None).unwrap()).collect();
    assert_eq!((queue.in_use(), queue.waiting()), (1000, 0));
    drop(places);
    assert_eq!(queue.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_own_reason() {
    let queue = Queue::new();
    let held = queue.try_enter(Some(1)).unwrap();
    assert!(queue.try_enter(Some(1)).is_none());
    let normal = Priority::Normal;
    let full = queue.enter(&limits(1, 0), normal, None).await;
    assert_eq!(full.unwrap_err(), QueueRefusal::Full { depth: 0 });
    let waited = Duration::from_secs(5);
    let timeout = queue.enter(&limits(1, 1), normal, None).await;
    assert_eq!(timeout.unwrap_err(), QueueRefusal::Timeout { waited });
    let before = Instant::now();
    let soon = before + Duration::from_secs(2);
    let deadline = queue.enter(&limits(1, 1), normal, Some(soon)).await;
    assert_eq!(deadline.unwrap_err(), QueueRefusal::Deadline);
    assert_eq!(before.elapsed(), Duration::from_secs(2));
    let past = queue.enter(&limits(1, 1), normal, Some(before)).await;
    assert_eq!(past.unwrap_err(), QueueRefusal::Deadline);
    queue.pause(Pause::Refuse);
    let paused = queue.enter(&limits(1, 1), normal, None).await;
    assert_eq!(paused.unwrap_err(), QueueRefusal::Paused);
    queue.close();
    let closed = queue.enter(&limits(1, 1), normal, None).await;
    assert_eq!(closed.unwrap_err(), QueueRefusal::Closed);
    assert_eq!((queue.in_use(), queue.waiting()), (1, 0));
    drop(held);
    assert_eq!(queue.in_use(), 0);
}

#[tokio::test(start_paused = true)]
async fn higher_priorities_go_first_and_equal_ones_in_order() {
    let (queue, group) = (Queue::new(), Tasks::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = queue.try_enter(Some(1)).unwrap();
    for call in [
        ("low", Priority::Low),
        ("normal 1", Priority::Normal),
        ("high 1", Priority::High),
        ("normal 2", Priority::Normal),
        ("critical", Priority::Critical),
        ("high 2", Priority::High),
    ] {
        stand(&group, &queue, &order, call);
        tokio::task::yield_now().await;
    }
    assert_eq!(queue.waiting(), 6);
    drop(held);
    assert!(group.idle(Duration::from_secs(1)).await);
    let expected = [
        "critical", "high 1", "high 2", "normal 1", "normal 2", "low",
    ];
    assert_eq!(*order.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn who_waits_rises_by_one_class_a_second() {
    let (queue, group) = (Queue::new(), Tasks::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = queue.try_enter(Some(1)).unwrap();
    stand(&group, &queue, &order, ("old low", Priority::Low));
    tokio::time::sleep(Duration::from_millis(2100)).await;
    for call in [
        ("critical", Priority::Critical),
        ("high", Priority::High),
        ("young low", Priority::Low),
    ] {
        stand(&group, &queue, &order, call);
        tokio::task::yield_now().await;
    }
    drop(held);
    assert!(group.idle(Duration::from_secs(1)).await);
    assert_eq!(*order.lock(), ["critical", "old low", "high", "young low"]);
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_queues_lets_nobody_in_until_it_ends() {
    let (queue, group) = (Queue::new(), Tasks::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = queue.try_enter(Some(1)).unwrap();
    queue.pause(Pause::Queue);
    assert!(queue.is_paused());
    assert!(queue.try_enter(None).is_none());
    stand(&group, &queue, &order, ("waited", Priority::Normal));
    tokio::task::yield_now().await;
    assert!(!queue.drained(Duration::from_secs(1)).await);
    drop(held);
    assert!(queue.drained(Duration::from_secs(1)).await);
    assert!(order.lock().is_empty());
    queue.resume();
    assert!(group.idle(Duration::from_secs(1)).await);
    assert_eq!(*order.lock(), ["waited"]);
    assert!(queue.try_enter(Some(1)).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_drain_is_told_when_the_last_call_ends() {
    let (queue, group) = (Queue::new(), Tasks::new());
    let held = queue.try_enter(None).unwrap();
    queue.close();
    group.spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        drop(held);
    });
    let before = Instant::now();
    assert!(queue.drained(Duration::from_secs(30)).await);
    assert_eq!(before.elapsed(), Duration::from_millis(500));
}

#[tokio::test(start_paused = true)]
async fn pausing_and_closing_send_waiters_away() {
    let closing: fn(&Queue) = |queue| queue.close();
    let pausing: fn(&Queue) = |queue| queue.pause(Pause::Refuse);
    for (act, expected) in [
        (closing, QueueRefusal::Closed),
        (pausing, QueueRefusal::Paused),
    ] {
        let queue = Queue::new();
        let _held = queue.try_enter(Some(1)).unwrap();
        let limits = limits(1, 10);
        let mut waiter = pin!(queue.enter(&limits, Priority::Normal, None));
        let mut context = Context::from_waker(Waker::noop());
        assert!(waiter.as_mut().poll(&mut context).is_pending());
        act(&queue);
        assert_eq!(waiter.await.unwrap_err(), expected);
        assert_eq!(queue.waiting(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_limit_lets_waiters_in_at_once() {
    let (queue, group) = (Queue::new(), Tasks::new());
    let order = Arc::new(Mutex::new(Vec::new()));
    let held = queue.try_enter(Some(1)).unwrap();
    for name in ["a", "b", "c"] {
        stand(&group, &queue, &order, (name, Priority::Normal));
    }
    tokio::task::yield_now().await;
    queue.apply(&limits(3, 100));
    tokio::task::yield_now().await;
    assert_eq!((queue.in_use(), queue.waiting()), (3, 1));
    drop(held);
    assert!(group.idle(Duration::from_secs(1)).await);
}

#[tokio::test(start_paused = true)]
async fn a_place_on_its_way_to_a_waiter_that_leaves_goes_to_the_next() {
    let (queue, limits) = (Queue::new(), limits(1, 10));
    let held = queue.try_enter(Some(1)).unwrap();
    let mut context = Context::from_waker(Waker::noop());
    let mut first = Box::pin(queue.enter(&limits, Priority::Normal, None));
    let mut second = Box::pin(queue.enter(&limits, Priority::Normal, None));
    assert!(first.as_mut().poll(&mut context).is_pending());
    assert!(second.as_mut().poll(&mut context).is_pending());
    drop(held);
    assert_eq!(queue.in_use(), 1);
    drop(first);
    assert!(matches!(
        second.as_mut().poll(&mut context),
        Poll::Ready(Ok(_))
    ));
    drop(second);
    assert_eq!((queue.in_use(), queue.waiting()), (0, 0));
    assert!(queue.try_enter(Some(1)).is_some(), "the flag was lowered");
}

async fn caller(queue: Queue, seed: u64, rounds: u32, now: Arc<AtomicU32>, most: Arc<AtomicU32>) {
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..rounds {
        let settings = LimitSettings {
            queue_wait: Duration::from_micros(chance.u64(0..3000)),
            ..limits(3, chance.u32(0..8))
        };
        let priority = [Priority::Low, Priority::Normal, Priority::Critical][chance.usize(0..3)];
        let deadline = chance
            .bool()
            .then(|| Instant::now() + Duration::from_micros(chance.u64(0..2000)));
        let enter = queue.enter(&settings, priority, deadline);
        let patience = Duration::from_micros(chance.u64(0..3000));
        if let Ok(Ok(place)) = tokio::time::timeout(patience, enter).await {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            match chance.bool() {
                true => tokio::time::sleep(Duration::from_micros(chance.u64(0..800))).await,
                false => tokio::task::yield_now().await,
            }
            now.fetch_sub(1, SeqCst);
            drop(place);
        }
    }
}

async fn play(seed: u64, callers: u64, rounds: u32, pauses: bool) {
    let (queue, group) = (Queue::new(), Tasks::new());
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    for number in 0..callers {
        let own = seed * 1000 + number;
        group.spawn(caller(
            queue.clone(),
            own,
            rounds,
            now.clone(),
            most.clone(),
        ));
    }
    let mut chance = fastrand::Rng::with_seed(seed);
    for _ in 0..if pauses { 20 } else { 0 } {
        tokio::time::sleep(Duration::from_micros(chance.u64(0..2000))).await;
        queue.pause(if chance.bool() {
            Pause::Refuse
        } else {
            Pause::Queue
        });
        tokio::time::sleep(Duration::from_micros(chance.u64(0..500))).await;
        queue.resume();
    }
    assert!(group.idle(Duration::from_secs(60)).await, "seed {seed}");
    assert!(most.load(SeqCst) <= 3, "seed {seed}: {most:?} at once");
    assert_eq!((queue.in_use(), queue.waiting()), (0, 0), "seed {seed}");
    let places: Vec<_> = (0..4).map(|_| queue.try_enter(Some(3))).collect();
    assert_eq!(places.iter().flatten().count(), 3, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn no_place_is_lost_or_doubled_under_random_schedules() {
    for seed in 0..200 {
        play(seed, 12, 40, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn no_place_is_lost_or_doubled_on_several_threads() {
    for seed in 0..6 {
        play(seed, 12, 150, seed % 2 == 0).await;
    }
}

#[test]
fn entering_and_leaving_on_threads_counts_exactly() {
    let queue = Queue::new();
    std::thread::scope(|scope| {
        for limit in [None, Some(4), None, Some(2)] {
            let queue = &queue;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    drop(queue.try_enter(limit));
                }
            });
        }
    });
    assert_eq!(queue.in_use(), 0);
}
