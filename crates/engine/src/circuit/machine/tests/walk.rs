use super::*;

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
