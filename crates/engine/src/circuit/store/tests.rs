use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn key() -> CircuitKey {
    CircuitKey {
        source: "orders".into(),
        endpoint: "a".into(),
    }
}

fn change(state: SharedState, instance: u64) -> SharedChange {
    SharedChange {
        key: key(),
        state,
        instance,
    }
}

#[tokio::test(start_paused = true)]
async fn what_one_instance_decides_the_others_are_told_and_can_read() {
    let store = LocalStore::new();
    assert_eq!(store.read(&key()).await.unwrap(), None);
    let mut changes = store.subscribe().await.unwrap();
    let opened = change(SharedState::Open { left: 10 * SECOND }, 1);
    store.publish(opened.clone()).await.unwrap();
    assert_eq!(changes.next().await.unwrap(), Some(opened));
    tokio::time::advance(4 * SECOND).await;
    let read = store.read(&key()).await.unwrap();
    assert_eq!(read, Some(SharedState::Open { left: 6 * SECOND }));
}

#[tokio::test(start_paused = true)]
async fn one_instance_at_a_time_has_the_trial_and_one_that_hangs_loses_it() {
    let store = LocalStore::new();
    let key = key();
    store
        .publish(change(SharedState::HalfOpen, 1))
        .await
        .unwrap();
    assert!(store.try_trial(&key, 1, 5 * SECOND).await.unwrap());
    assert!(!store.try_trial(&key, 2, 5 * SECOND).await.unwrap());
    store.release_trial(&key, 2).await.unwrap();
    assert!(
        !store.try_trial(&key, 2, 5 * SECOND).await.unwrap(),
        "only its holder gives it back"
    );
    store.release_trial(&key, 1).await.unwrap();
    assert!(store.try_trial(&key, 2, 5 * SECOND).await.unwrap());
    assert!(!store.try_trial(&key, 1, 5 * SECOND).await.unwrap());
    tokio::time::advance(5 * SECOND).await;
    assert!(store.try_trial(&key, 1, 5 * SECOND).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_learns_that_it_missed_changes() {
    let store = LocalStore::new();
    let mut changes = store.subscribe().await.unwrap();
    for instance in 0..CHANGES_MAX as u64 + 1 {
        let closed = change(SharedState::Closed, instance);
        store.publish(closed).await.unwrap();
    }
    assert_eq!(changes.next().await.unwrap(), None);
    assert!(changes.next().await.unwrap().is_some());
}
