use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

fn settings(mode: CircuitMode) -> CircuitSettings {
    CircuitSettings {
        mode,
        failures: 3,
        open_for: 10 * SECOND,
        successes: 2,
        window: 10 * SECOND,
        ..CircuitSettings::default()
    }
}

/// A failure on a connection of that generation.
fn on_generation(weight: u32, generation: u64) -> Verdict {
    Verdict::Failure {
        weight,
        retry_after: None,
        elapsed: Duration::ZERO,
        generation: Some(generation),
    }
}

fn asking_for(wait: Duration) -> Verdict {
    Verdict::Failure {
        weight: 1,
        retry_after: Some(wait),
        elapsed: Duration::ZERO,
        generation: None,
    }
}

/// A machine with its settings and its time.
struct Scene {
    machine: Machine,
    settings: CircuitSettings,
    now: Instant,
}

impl Scene {
    fn new(settings: CircuitSettings) -> Self {
        Scene {
            machine: Machine::new(),
            settings,
            now: Instant::now(),
        }
    }

    fn admit(&mut self) -> Result<Pass, Held> {
        self.machine.admit(&self.settings, LEASE, self.now)
    }

    fn record(&mut self, pass: Pass, verdict: Verdict) -> Option<Transition> {
        self.machine.record(&self.settings, pass, verdict, self.now)
    }

    /// Admits one attempt and records its result; `None` if it was held.
    fn attempt(&mut self, verdict: Verdict) -> Option<Option<Transition>> {
        let pass = self.admit().ok()?;
        Some(self.record(pass, verdict))
    }

    fn fail(&mut self, times: u32) {
        for _ in 0..times {
            self.attempt(Verdict::failure(1));
        }
    }

    fn probe(&mut self, good: bool) -> Option<Transition> {
        self.machine
            .probed(&self.settings, good, self.now, self.now)
    }

    /// Plays a script and writes the state after each step: `f` a failure, `2` a heavier one, `0` one
    /// of no weight, `s` a success, `l` a slow one, `c` a cancelled attempt, `.` a second, `,` a
    /// nanosecond less than a second, `'` a nanosecond. An attempt that was held writes `x`.
    fn play(&mut self, script: &str) -> String {
        script.chars().filter_map(|step| self.step(step)).collect()
    }

    fn step(&mut self, step: char) -> Option<char> {
        let verdict = match step {
            '.' | ',' | '\'' => {
                self.now += match step {
                    '.' => SECOND,
                    ',' => SECOND - Duration::from_nanos(1),
                    _ => Duration::from_nanos(1),
                };
                return None;
            }
            'f' => Verdict::failure(1),
            '2' => Verdict::failure(2),
            '0' => Verdict::failure(0),
            's' => Verdict::success(),
            'l' => Verdict::Success { elapsed: SECOND },
            'c' => Verdict::Cancelled,
            other => panic!("no step {other}"),
        };
        if self.attempt(verdict).is_none() {
            return Some('x');
        }
        Some(match self.machine.state() {
            CircuitState::Closed => 'C',
            CircuitState::Open { .. } => 'O',
            CircuitState::HalfOpen => 'H',
            other => panic!("unexpected {other}"),
        })
    }
}

#[track_caller]
fn check(settings: CircuitSettings, script: &str, expected: &str) {
    assert_eq!(Scene::new(settings).play(script), expected, "{script}");
}

#[test]
fn weights_in_a_row_open_and_successes_reset() {
    let settings = settings(CircuitMode::WeightedConsecutive);
    for (script, expected) in [
        ("ff", "CC"),
        ("fff", "CCO"),
        ("2f", "CO"),
        ("22", "CO"),
        ("ffsff", "CCCCC"),
        ("ffsfff", "CCCCCO"),
        ("f0c0ff", "CCCCCO"),
        ("000000", "CCCCCC"),
        ("f..........................f.f", "CCO"),
        ("fffs", "CCOx"),
    ] {
        check(settings.clone(), script, expected);
    }
}

#[test]
fn trials_are_admitted_from_exactly_open_for_on() {
    let settings = settings(CircuitMode::WeightedConsecutive);
    for (script, expected) in [
        ("fff.........,s", "CCOx"),
        ("fff..........s", "CCOH"),
        ("fff.........,s's", "CCOxH"),
        ("fff..........ss", "CCOHC"),
        ("fff..........f", "CCOO"),
        ("fff..........sf", "CCOHO"),
        ("fff..........f.........,s's", "CCOOxH"),
        ("fff..........c0c0ss", "CCOHHHHHC"),
        ("fff..........ssff", "CCOHCCC"),
        ("fff..........ssfff", "CCOHCCCO"),
    ] {
        check(settings.clone(), script, expected);
    }
}

#[test]
fn failures_within_the_window_open_whatever_lies_between() {
    let settings = settings(CircuitMode::Window);
    for (script, expected) in [
        ("fsfsf", "CCCCO"),
        ("f.....f....,f", "CCO"),
        ("f.....f.....f", "CCC"),
        ("f.....f.....f....,f", "CCCO"),
        ("2..........2", "CC"),
        ("2.........,2", "CO"),
        ("000000", "CCCCCC"),
        ("fff..........ssffsf", "CCOHCCCCO"),
    ] {
        check(settings.clone(), script, expected);
    }
}

#[test]
fn a_huge_threshold_bounds_what_the_window_remembers() {
    let mut scene = Scene::new(CircuitSettings {
        failures: 5_000,
        ..settings(CircuitMode::Window)
    });
    scene.fail(4_999);
    assert_eq!(scene.machine.snapshot().failures, 4_999);
    assert_eq!(scene.machine.state(), CircuitState::Closed);
    scene.fail(1);
    assert_eq!(scene.machine.snapshot().times_opened, 1);
}

#[test]
fn the_share_of_failures_opens_once_there_are_enough_calls() {
    let rate = CircuitSettings {
        calls_min: 4,
        failure_ratio: 0.5,
        ..settings(CircuitMode::Rate)
    };
    for (script, expected) in [
        ("fff", "CCC"),
        ("ffff", "CCCO"),
        ("ssff", "CCCO"),
        ("sssff", "CCCCC"),
        ("sssfff", "CCCCCO"),
        ("00ffc00f", "CCCCCCCC"),
        ("2222", "CCCO"),
        // The successes have left the window when the failures come.
        ("ssss...........ffff", "CCCCCCCO"),
        ("ssss.....ffff", "CCCCCCCO"),
        ("sssss.....ffff", "CCCCCCCCC"),
    ] {
        check(rate.clone(), script, expected);
    }
}

#[test]
fn the_share_of_slow_calls_opens_too_and_failures_may_be_slow() {
    let slow = CircuitSettings {
        calls_min: 4,
        slow_after: Some(SECOND),
        slow_ratio: 0.75,
        failure_ratio: 1.0,
        ..settings(CircuitMode::Rate)
    };
    for (script, expected) in [("slll", "CCCO"), ("ssll", "CCCC"), ("lll", "CCC")] {
        check(slow.clone(), script, expected);
    }
    let mut scene = Scene::new(slow);
    for _ in 0..2 {
        scene.attempt(Verdict::Success { elapsed: SECOND });
    }
    scene.attempt(Verdict::success());
    let opened = scene.attempt(Verdict::Failure {
        weight: 1,
        retry_after: None,
        elapsed: 2 * SECOND,
        generation: None,
    });
    assert_eq!(opened.unwrap().unwrap().reason, Reason::SlowCalls);
}

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
fn failures_of_connections_of_one_generation_weigh_once_by_the_heaviest() {
    for (failures, expected) in [
        (vec![(1, 7), (1, 7), (1, 7), (1, 7)], 1),
        (vec![(1, 7), (2, 7), (1, 7)], 2),
        (vec![(1, 7), (1, 6), (1, 5)], 1),
        (vec![(1, 7), (1, 8)], 2),
        (vec![(0, 8), (1, 7)], 1),
    ] {
        let mut scene = Scene::new(settings(CircuitMode::WeightedConsecutive));
        for (weight, generation) in &failures {
            scene.attempt(on_generation(*weight, *generation));
        }
        assert_eq!(scene.machine.snapshot().failures, expected, "{failures:?}");
    }
}

#[test]
fn leftover_connections_of_a_weighed_generation_weigh_nothing_after_a_closing_either() {
    let mut scene = Scene::new(CircuitSettings {
        successes: 1,
        failures: 1,
        ..settings(CircuitMode::WeightedConsecutive)
    });
    scene.attempt(on_generation(1, 7));
    scene.now += 10 * SECOND;
    scene.attempt(Verdict::success());
    scene.attempt(on_generation(1, 7));
    assert_eq!(scene.machine.state(), CircuitState::Closed);
    scene.attempt(on_generation(1, 8));
    assert_eq!(scene.machine.snapshot().times_opened, 2);
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

/// Seeded walks over everything that can happen, against what must always hold.
#[test]
fn whatever_happens_the_invariants_hold() {
    for seed in 0..600 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut walk = Walk::new(&mut rng);
        for step in 0..400 {
            walk.step(&mut rng, &format!("seed {seed}, step {step}"));
        }
    }
}

struct Walk {
    scene: Scene,
    /// Passes not yet recorded, with the end of their lease.
    passes: Vec<(Pass, Instant)>,
}

impl Walk {
    fn new(rng: &mut fastrand::Rng) -> Self {
        let modes = [
            CircuitMode::WeightedConsecutive,
            CircuitMode::Window,
            CircuitMode::Rate,
            CircuitMode::Operations,
        ];
        Walk {
            scene: Scene::new(CircuitSettings {
                trials_max: rng.u32(1..4),
                successes: rng.u32(1..4),
                failures: rng.u32(1..5),
                calls_min: rng.u32(1..6),
                open_growth: 1.0 + rng.f64(),
                slow_after: rng.bool().then_some(SECOND),
                ..settings(modes[rng.usize(..modes.len())])
            }),
            passes: Vec::new(),
        }
    }

    fn step(&mut self, rng: &mut fastrand::Rng, at: &str) {
        let (state, epoch) = (self.scene.machine.state(), self.scene.machine.epoch());
        let now = self.scene.now;
        match rng.u32(..100) {
            0..40 => self.admit(rng, at),
            40..75 if !self.passes.is_empty() => self.record(rng, at),
            75..90 => self.scene.now += rng.u32(..4_000) * Duration::from_millis(1),
            90..96 => {
                let begun = now - rng.u32(..3) * SECOND;
                let good = rng.u32(..4) > 0;
                let settings = &self.scene.settings;
                self.scene.machine.probed(settings, good, begun, now);
            }
            96 => drop(self.scene.machine.isolate(now)),
            97 => drop(self.scene.machine.release(now)),
            98 => drop(self.scene.machine.reset(now)),
            _ => self.passes.truncate(rng.usize(..=self.passes.len())),
        }
        let after = self.scene.machine.epoch();
        assert!(after >= epoch, "{at}: epochs only grow");
        let is_same = self.scene.machine.state() == state;
        assert!(
            is_same || after > epoch || matches!(state, CircuitState::Open { .. }),
            "{at}"
        );
        self.check_trials(at);
    }

    fn admit(&mut self, rng: &mut fastrand::Rng, at: &str) {
        let before = self.scene.machine.state();
        let lease = rng.u32(1..20) * SECOND;
        let Scene {
            machine,
            settings,
            now,
        } = &mut self.scene;
        let admitted = machine.admit(settings, lease, *now);
        match before {
            CircuitState::Closed => assert!(admitted.is_ok(), "{at}"),
            CircuitState::Isolated => assert!(admitted.is_err(), "{at}"),
            CircuitState::Open { until } if *now < until => assert!(admitted.is_err(), "{at}"),
            _ => {}
        }
        if let Ok(pass) = admitted {
            assert_eq!(pass.trial.is_some(), before != CircuitState::Closed, "{at}");
            self.passes.push((pass, *now + lease));
        }
    }

    fn record(&mut self, rng: &mut fastrand::Rng, at: &str) {
        let (pass, _) = self.passes.swap_remove(rng.usize(..self.passes.len()));
        let verdict = match rng.u32(..6) {
            0 => Verdict::Cancelled,
            1 | 2 => Verdict::Success {
                elapsed: rng.u32(..3) * SECOND,
            },
            _ => Verdict::Failure {
                weight: rng.u32(..3),
                retry_after: rng.bool().then(|| rng.u32(..20) * SECOND),
                elapsed: rng.u32(..3) * SECOND,
                generation: rng.bool().then(|| rng.u64(..50)),
            },
        };
        let is_stale = pass.epoch != self.scene.machine.epoch();
        let before = self.scene.machine.snapshot();
        let transition = self.scene.record(pass, verdict);
        if is_stale {
            assert_eq!(transition, None, "{at}");
            assert_eq!(self.scene.machine.snapshot(), before, "{at}");
        }
        if verdict == Verdict::Cancelled {
            assert_eq!(transition, None, "{at}");
        }
    }

    fn check_trials(&self, at: &str) {
        let now = self.scene.now;
        let is_under_way = |(pass, lease): &&(Pass, Instant)| pass.trial.is_some() && now < *lease;
        let under_way = self.passes.iter().filter(is_under_way);
        assert!(
            under_way.count() <= self.scene.settings.trials_max as usize,
            "{at}: more trials than permitted"
        );
    }
}
