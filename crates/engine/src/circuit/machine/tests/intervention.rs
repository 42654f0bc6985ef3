//! What health checks, people, settings and stores change.

use super::*;

#[test]
fn two_good_checks_in_a_row_make_the_trial_due_at_once() {
    for (checks, expected) in [
        ("g", false),
        ("gg", true),
        ("gbg", false),
        ("gbgg", true),
        ("bbbb", false),
    ] {
        let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
        scene.fail(3);
        let mut last = None;
        for check in checks.chars() {
            scene.now += Duration::from_millis(250);
            last = scene.probe(check == 'g');
        }
        assert_eq!(last.is_some(), expected, "{checks}");
        assert_eq!(scene.admit().is_ok(), expected, "{checks}");
        if let Some(transition) = last {
            assert_eq!(transition.reason, Reason::Probed);
        }
    }
}

#[test]
fn checks_begun_before_the_opening_or_unasked_for_do_not_count() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.now += SECOND;
    scene.fail(3);
    let before = scene.now - Duration::from_nanos(1);
    for begun in [before, scene.now] {
        for _ in 0..5 {
            let settings = &scene.settings;
            let moved = scene.machine.probed(settings, true, begun, scene.now);
            assert_eq!(moved, None);
        }
    }
    scene.settings.probe_reopens = false;
    scene.now += SECOND;
    for _ in 0..5 {
        assert_eq!(scene.probe(true), None);
    }
    assert!(scene.admit().is_err());
}

#[test]
fn good_checks_do_not_cut_the_time_that_the_back_end_asked_for() {
    let mut scene = Scene::new(CircuitSettings {
        open_for: 300 * SECOND,
        ..settings(CircuitMode::WeightedConsecutive)
    });
    scene.fail(2);
    scene.attempt(asking_for(20 * SECOND));
    let due = scene.now + 20 * SECOND;
    scene.now += SECOND;
    assert_eq!(scene.probe(true), None);
    assert_eq!(scene.probe(true), None);
    assert_eq!(scene.machine.state(), CircuitState::Open { until: due });
    scene.now = due;
    assert!(scene.admit().is_ok());
}

#[test]
fn an_isolated_circuit_is_held_in_every_mode_until_released_to_trials() {
    for mode in CircuitMode::ALL {
        let mut scene = Scene::new(settings(*mode));
        let straggler = scene.admit().unwrap();
        let isolated = scene.machine.isolate(scene.now).unwrap();
        assert_eq!(isolated.reason, Reason::Isolated);
        assert_eq!(scene.machine.isolate(scene.now), None);
        scene.now += 3600 * SECOND;
        assert!(scene.admit().is_err());
        assert!(
            scene
                .machine
                .admit_within(&scene.settings, scene.now)
                .is_err()
        );
        assert_eq!(scene.record(straggler, Verdict::failure(9)), None);
        assert_eq!(scene.probe(true), None);
        assert_eq!(scene.machine.reset(scene.now), None);
        assert_eq!(scene.machine.state(), CircuitState::Isolated);
        let released = scene.machine.release(scene.now).unwrap();
        assert_eq!(released.to, CircuitState::HalfOpen);
        assert_eq!(scene.machine.release(scene.now), None);
        let pass = scene.admit().unwrap();
        assert_eq!(pass.trial.is_some(), *mode != CircuitMode::Off);
    }
}

#[test]
fn without_a_threshold_or_a_mode_nothing_ever_opens() {
    for settings in [
        settings(CircuitMode::Off),
        CircuitSettings {
            failures: 0,
            ..settings(CircuitMode::WeightedConsecutive)
        },
        CircuitSettings {
            failures: 0,
            ..settings(CircuitMode::Rate)
        },
    ] {
        let mut scene = Scene::new(settings);
        scene.fail(1000);
        assert_eq!(scene.machine.state(), CircuitState::Closed);
        scene.machine.force(
            CircuitState::Open {
                until: scene.now + SECOND,
            },
            scene.now,
        );
        assert!(scene.admit().is_ok(), "disabled lets through whatever was");
    }
}

#[test]
fn a_reset_forgets_everything_but_its_life() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    scene.fail(2);
    assert_eq!(scene.machine.reset(scene.now), None);
    scene.fail(2);
    assert_eq!(scene.machine.state(), CircuitState::Closed);
    scene.fail(1);
    let reset = scene.machine.reset(scene.now).unwrap();
    assert_eq!(
        (reset.to, reset.reason),
        (CircuitState::Closed, Reason::Reset)
    );
    assert_eq!(scene.machine.snapshot().times_opened, 1);
}

#[test]
fn a_store_may_force_every_state_and_says_nothing_where_nothing_changes() {
    let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
    let until = scene.now + 5 * SECOND;
    for state in [
        CircuitState::Open { until },
        CircuitState::HalfOpen,
        CircuitState::Isolated,
        CircuitState::Closed,
    ] {
        let forced = scene.machine.force(state, scene.now).unwrap();
        assert_eq!((forced.to, forced.reason), (state, Reason::Forced));
        assert_eq!(scene.machine.force(state, scene.now), None);
    }
    assert_eq!(scene.machine.force(CircuitState::Disabled, scene.now), None);
}
