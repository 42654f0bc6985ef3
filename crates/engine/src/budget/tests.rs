use super::*;

const MS: Duration = Duration::from_millis(1);

fn settings(ratio: f64, floor_per_second: u32) -> BudgetSettings {
    BudgetSettings {
        ratio,
        floor_per_second,
        ..BudgetSettings::default()
    }
}

fn withdrawn(budget: &Budget, settings: &BudgetSettings, now: Instant) -> u32 {
    (0..100_000)
        .take_while(|_| budget.withdraw(settings, now))
        .count() as u32
}

#[test]
fn the_larger_of_share_and_floor_is_allowed_exactly() {
    for (calls, ratio, floor, expected) in [
        (0, 0.2, 10, 100),
        (100, 0.2, 10, 100),
        (505, 0.2, 10, 101),
        (1000, 0.2, 10, 200),
        (1004, 0.2, 10, 200),
        (1000, 0.2, 0, 200),
        (4, 0.2, 0, 0),
        (5, 0.2, 0, 1),
        (10, 2.0, 0, 20),
        (1000, 0.0, 0, 0),
    ] {
        let now = Instant::now();
        let budget = Budget::new(now);
        let settings = settings(ratio, floor);
        for _ in 0..calls {
            budget.deposit(&settings, now);
        }
        let got = withdrawn(&budget, &settings, now);
        assert_eq!(got, expected, "{calls} calls, {ratio}, floor {floor}");
    }
}

#[test]
fn calls_and_attempts_leave_the_window() {
    let start = Instant::now();
    let budget = Budget::new(start);
    let settings = settings(0.5, 1);
    for _ in 0..100 {
        budget.deposit(&settings, start);
    }
    assert_eq!(withdrawn(&budget, &settings, start), 50);
    assert_eq!(withdrawn(&budget, &settings, start + 9_000 * MS), 0);
    // The attempts have left, and so have the calls: the floor is what remains.
    assert_eq!(withdrawn(&budget, &settings, start + 10_200 * MS), 10);
    assert_eq!(withdrawn(&budget, &settings, start + 3_600_000 * MS), 10);
}

#[test]
fn another_window_begins_anew_and_counts_on() {
    let start = Instant::now();
    let budget = Budget::new(start);
    let ten = settings(0.5, 0);
    let hour = BudgetSettings {
        window: Duration::from_secs(3600),
        ..ten
    };
    let now = start + 100_000 * MS;
    for settings in [ten, hour, ten] {
        for _ in 0..10 {
            budget.deposit(&settings, now);
        }
        assert_eq!(withdrawn(&budget, &settings, now), 5, "{settings:?}");
    }
}

#[test]
fn a_window_of_nothing_counts_as_one_second() {
    let now = Instant::now();
    let budget = Budget::new(now);
    let settings = BudgetSettings {
        window: Duration::ZERO,
        ..settings(0.2, 10)
    };
    assert_eq!(withdrawn(&budget, &settings, now), 10);
}

/// Seeded walks beside a model that remembers every call and attempt by its time: never more than the
/// window allows, and never less than it allows but for one slice at its ends.
#[test]
fn over_any_course_the_sliding_window_holds() {
    for seed in 0..30 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let settings = BudgetSettings {
            ratio: rng.f64(),
            window: Duration::from_secs(rng.u64(1..20)),
            floor_per_second: rng.u32(0..5),
        };
        let slice = settings.window / SLICES as u32 + MS;
        let floor = f64::from(settings.floor_per_second) * settings.window.as_secs_f64();
        let mut now = Instant::now();
        let budget = Budget::new(now);
        let (mut calls, mut attempts) = (Vec::new(), Vec::new());
        for step in 0..3_000 {
            now += rng.u32(0..40) * MS;
            if rng.u32(..3) > 0 {
                budget.deposit(&settings, now);
                calls.push(now);
                continue;
            }
            let within = |times: &[Instant], window: Duration| {
                times.iter().filter(|at| now - **at < window).count() as f64
            };
            let allowed = |window: Duration| floor.max(settings.ratio * within(&calls, window));
            if budget.withdraw(&settings, now) {
                attempts.push(now);
                assert!(
                    within(&attempts, settings.window) <= allowed(settings.window),
                    "seed {seed}, step {step}: too many"
                );
            } else {
                let strict = within(&attempts, settings.window + slice) + 1.0;
                assert!(
                    strict > allowed(settings.window - slice),
                    "seed {seed}, step {step}: too few"
                );
            }
        }
    }
}

#[test]
fn eight_threads_lose_no_call_and_share_no_place() {
    let start = Instant::now();
    let budget = Budget::new(start);
    let settings = BudgetSettings {
        ratio: 0.25,
        window: Duration::from_secs(600),
        floor_per_second: 0,
    };
    let attempts: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    (0..20_000_u32)
                        .filter(|step| {
                            let now = start + MS * (step / 2);
                            budget.deposit(&settings, now);
                            budget.withdraw(&settings, now)
                        })
                        .count()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let left = withdrawn(&budget, &settings, start + 10_000 * MS) as usize;
    assert_eq!(attempts + left, 8 * 20_000 / 4);
}
