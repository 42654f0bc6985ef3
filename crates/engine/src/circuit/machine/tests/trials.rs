use super::*;

#[test]
fn transitions_say_what_changed_and_why() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(2);
    let opened = scene.attempt(Verdict::failure(1)).unwrap().unwrap();
    let until = scene.now + 10 * SECOND;
    assert_eq!(
        opened,
        Transition {
            from: CircuitState::Closed,
            to: CircuitState::Open { until },
            epoch: 1,
            reason: Reason::Failures,
        }
    );
    scene.now = until;
    let first = scene.admit().unwrap();
    assert_eq!(
        first.transition().unwrap(),
        Transition {
            from: CircuitState::Open { until },
            to: CircuitState::HalfOpen,
            epoch: 2,
            reason: Reason::TrialDue,
        }
    );
    assert_eq!(scene.record(first, Verdict::success()), None);
    let second = scene.admit().unwrap();
    assert_eq!(second.transition(), None);
    let closed = scene.record(second, Verdict::success()).unwrap();
    assert_eq!(
        (closed.from, closed.to, closed.epoch, closed.reason),
        (
            CircuitState::HalfOpen,
            CircuitState::Closed,
            3,
            Reason::TrialsSucceeded
        )
    );
    let snapshot = scene.machine.snapshot();
    assert_eq!((snapshot.failures, snapshot.times_opened), (0, 1));
    assert_eq!(snapshot.last_change, Some(until));
}

#[test]
fn refusals_say_when_the_next_trial_is_due() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(3);
    let until = scene.now + 10 * SECOND;
    scene.now += 4 * SECOND;
    let held = scene.admit().unwrap_err();
    assert_eq!(held.state, CircuitState::Open { until });
    assert_eq!(held.retry_in, Some(6 * SECOND));
    scene.now = until;
    scene.admit().unwrap();
    scene.now += SECOND;
    let held = scene.admit().unwrap_err();
    assert_eq!(held.state, CircuitState::HalfOpen);
    assert_eq!(held.retry_in, Some(29 * SECOND));
    scene.machine.isolate(scene.now);
    let held = scene.admit().unwrap_err();
    assert_eq!(held.state, CircuitState::Isolated);
    assert_eq!(held.retry_in, None);
}

#[test]
fn a_trial_that_hangs_gives_its_permit_back_by_its_lease() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(3);
    scene.now += 10 * SECOND;
    let hanging = scene.admit().unwrap();
    scene.now += LEASE - Duration::from_nanos(1);
    assert!(scene.admit().is_err());
    scene.now += Duration::from_nanos(1);
    let next = scene.admit().unwrap();
    assert_eq!(next.epoch, hanging.epoch);
    for late in [Verdict::failure(1), Verdict::success(), Verdict::Cancelled] {
        assert_eq!(scene.record(hanging, late), None);
        assert!(scene.admit().is_err(), "{late:?} freed another's permit");
    }
    assert_eq!(scene.record(next, Verdict::success()), None);
    assert_eq!(scene.machine.state(), CircuitState::HalfOpen);
}

#[test]
fn a_trial_that_timed_out_still_decides_while_nobody_else_has_its_permit() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(3);
    scene.now += 10 * SECOND;
    let trial = scene.admit().unwrap();
    scene.now += LEASE + SECOND;
    let opened = scene.record(trial, Verdict::failure(1)).unwrap();
    assert_eq!(opened.reason, Reason::TrialFailed);
}

#[test]
fn no_more_than_the_permitted_trials_are_under_way() {
    let mut scene = Scene::new(CircuitSettings {
        trials_max: 3,
        successes: 3,
        ..settings(CircuitMode::WeightedConsecutive)
    });
    scene.fail(3);
    scene.now += 10 * SECOND;
    let passes: Vec<Pass> = (0..100).filter_map(|_| scene.admit().ok()).collect();
    assert_eq!(passes.len(), 3);
    scene.record(passes[0], Verdict::Cancelled);
    assert!(scene.admit().is_ok() && scene.admit().is_err());
    assert_eq!(
        scene.record(passes[0], Verdict::success()),
        None,
        "a pass counts once"
    );
    scene.record(passes[1], Verdict::success());
    let reopened = scene.record(passes[2], Verdict::failure(1)).unwrap();
    assert_eq!(reopened.reason, Reason::TrialFailed);
}

#[test]
fn a_trial_that_outlives_its_epoch_keeps_its_permit_and_decides_nothing() {
    let mut scene = Scene::new(CircuitSettings {
        trials_max: 2,
        ..settings(CircuitMode::WeightedConsecutive)
    });
    scene.fail(3);
    scene.now += 10 * SECOND;
    let [first, second] = [scene.admit().unwrap(), scene.admit().unwrap()];
    assert!(scene.record(first, Verdict::failure(1)).is_some());
    scene.now += 10 * SECOND;
    let third = scene.admit().unwrap();
    assert!(
        scene.admit().is_err(),
        "the second is still at the back end"
    );
    assert_eq!(scene.record(second, Verdict::failure(1)), None);
    assert!(scene.admit().is_ok());
    assert_eq!(scene.record(third, Verdict::success()), None);
}

#[test]
fn results_of_older_epochs_decide_nothing() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    let stragglers: Vec<Pass> = (0..10).map(|_| scene.admit().unwrap()).collect();
    scene.fail(3);
    let check = |scene: &mut Scene, straggler: Pass| {
        let before = format!("{:?}", scene.machine);
        for verdict in [Verdict::failure(9), Verdict::success(), Verdict::Cancelled] {
            assert_eq!(scene.record(straggler, verdict), None);
        }
        assert_eq!(format!("{:?}", scene.machine), before);
    };
    check(&mut scene, stragglers[0]);
    scene.now += 10 * SECOND;
    let trial = scene.admit().unwrap();
    check(&mut scene, stragglers[1]);
    scene.record(trial, Verdict::success());
    let trial = scene.admit().unwrap();
    scene.record(trial, Verdict::success());
    assert_eq!(scene.machine.state(), CircuitState::Closed);
    check(&mut scene, stragglers[2]);
    check(&mut scene, trial);
}

#[test]
fn openings_in_a_row_grow_up_to_their_bound_and_a_closing_starts_over() {
    let mut scene = Scene::new(CircuitSettings {
        open_growth: 2.0,
        open_for_max: 35 * SECOND,
        successes: 1,
        ..settings(CircuitMode::WeightedConsecutive)
    });
    let opened_for = |scene: &Scene| match scene.machine.state() {
        CircuitState::Open { until } => until - scene.now,
        other => panic!("{other} instead of open"),
    };
    scene.fail(3);
    for expected in [10, 20, 35, 35] {
        assert_eq!(opened_for(&scene), expected * SECOND);
        scene.now += expected * SECOND;
        scene.fail(1);
    }
    scene.now += 35 * SECOND;
    scene.attempt(Verdict::success());
    scene.fail(3);
    assert_eq!(opened_for(&scene), 10 * SECOND);
}

#[test]
fn any_growth_stays_within_its_bound() {
    for growth in [1.0, 1e300, f64::MAX] {
        let settings = CircuitSettings {
            open_growth: growth,
            open_for_max: Duration::MAX,
            ..settings(CircuitMode::WeightedConsecutive)
        };
        for before in [0, 1, 1000, u32::MAX] {
            assert!(open_for(&settings, before) >= settings.open_for);
        }
        let mut scene = Scene::new(settings);
        scene.machine.openings = u32::MAX;
        scene.fail(3);
        assert!(scene.admit().is_err());
    }
}

#[test]
fn a_back_end_that_asks_for_time_gets_it_up_to_five_minutes() {
    for (asked, expected) in [(0, 10), (5, 10), (60, 60), (300, 300), (86_400, 300)] {
        let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
        scene.fail(2);
        scene.attempt(asking_for(asked * SECOND));
        let until = scene.now + Duration::from_secs(expected);
        assert_eq!(scene.machine.state(), CircuitState::Open { until });
    }
}

#[test]
fn a_pass_given_back_leaves_its_news_to_the_next_trial() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(3);
    scene.now += 10 * SECOND;
    let first = scene.admit().unwrap();
    assert!(first.transition().is_some());
    scene.machine.give_back(first);
    scene.machine.give_back(first);
    let next = scene.admit().unwrap();
    assert!(next.transition().is_some());
    assert!(scene.admit().is_err());
}
