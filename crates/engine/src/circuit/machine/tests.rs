mod intervention;
mod trials;
mod walk;

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
