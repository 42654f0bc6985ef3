use super::*;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);

fn settings(mode: CircuitMode) -> CircuitSettings {
    CircuitSettings {
        mode,
        failures: 3,
        open_for: 10 * SECOND,
        successes: 1,
        calls_min: 10,
        window: 10 * SECOND,
        ..CircuitSettings::default()
    }
}

fn attempt(circuit: &Circuit, settings: &CircuitSettings, verdict: Verdict, now: Instant) -> bool {
    match circuit.admit(settings, LEASE, now) {
        Ok(pass) => {
            circuit.record(settings, pass, verdict, now);
            true
        }
        Err(_) => false,
    }
}

fn fail(circuit: &Circuit, settings: &CircuitSettings, times: u32, now: Instant) {
    for _ in 0..times {
        attempt(circuit, settings, Verdict::failure(1), now);
    }
}

#[test]
fn reading_never_changes_a_circuit() {
    let settings = settings(CircuitMode::WeightedConsecutive);
    let circuit = Circuit::new();
    let start = Instant::now();
    fail(&circuit, &settings, 3, start);
    let opened = CircuitState::Open {
        until: start + 10 * SECOND,
    };
    for seconds in 0..100 {
        let now = start + seconds * SECOND;
        let before = format!("{circuit:?}");
        assert_eq!(circuit.state(&settings, now), opened);
        circuit.snapshot();
        assert_eq!(format!("{circuit:?}"), before);
    }
}

#[test]
fn a_success_clears_the_counter_through_the_fast_path_too() {
    let settings = settings(CircuitMode::WeightedConsecutive);
    let circuit = Circuit::new();
    let now = Instant::now();
    for _ in 0..100 {
        fail(&circuit, &settings, 2, now);
        attempt(&circuit, &settings, Verdict::success(), now);
        assert_eq!(circuit.snapshot().failures, 0);
    }
    assert_eq!(circuit.state(&settings, now), CircuitState::Closed);
}

#[test]
fn disabled_and_isolated_are_told_apart() {
    let off = settings(CircuitMode::Off);
    let circuit = Circuit::new();
    let now = Instant::now();
    fail(&circuit, &off, 100, now);
    assert_eq!(circuit.state(&off, now), CircuitState::Disabled);
    circuit.isolate(now);
    assert_eq!(circuit.state(&off, now), CircuitState::Isolated);
    assert!(!attempt(&circuit, &off, Verdict::success(), now));
    circuit.release(now);
    assert_eq!(circuit.state(&off, now), CircuitState::Disabled);
    assert!(attempt(&circuit, &off, Verdict::success(), now));
}

#[test]
fn in_mode_rate_good_calls_count_even_where_they_take_no_lock() {
    let settings = settings(CircuitMode::Rate);
    for (good, bad, opens) in [(10, 10, true), (11, 10, false), (1000, 999, false)] {
        let circuit = Circuit::new();
        let start = Instant::now();
        for call in 0..good {
            let now = start + Duration::from_millis(call * 5_000 / good);
            attempt(&circuit, &settings, Verdict::success(), now);
        }
        fail(&circuit, &settings, bad, start + 5 * SECOND);
        let state = circuit.state(&settings, start + 5 * SECOND);
        assert_eq!(state != CircuitState::Closed, opens, "{good} and {bad}");
    }
}

#[test]
fn in_mode_operations_whole_calls_decide_and_their_attempts_do_not() {
    let settings = settings(CircuitMode::Operations);
    let circuit = Circuit::new();
    let now = Instant::now();
    let call = |failed: bool, now: Instant| {
        let pass = circuit.admit_operation(&settings, LEASE, now).ok()?;
        for _ in 0..7 {
            let attempt = circuit.admit(&settings, LEASE, now).unwrap();
            assert_eq!(attempt.trial, None);
            assert_eq!(
                circuit.record(&settings, attempt, Verdict::failure(1), now),
                None
            );
        }
        circuit.record_operation(&settings, pass, failed, now)
    };
    for _ in 0..10 {
        assert_eq!(call(true, now), None);
        assert_eq!(call(true, now), None);
        assert_eq!(call(false, now), None);
    }
    let running = circuit.admit_operation(&settings, LEASE, now).unwrap();
    assert_eq!(call(true, now), None);
    assert_eq!(call(true, now), None);
    assert_eq!(call(true, now).unwrap().reason, Reason::Failures);
    assert!(
        circuit.admit(&settings, LEASE, now).is_err(),
        "an opening ends the tries of running calls"
    );
    assert_eq!(
        circuit.record_operation(&settings, running, true, now),
        None
    );
    let later = now + 10 * SECOND;
    let closed = call(false, later).unwrap();
    assert_eq!(closed.to, CircuitState::Closed);
}

#[test]
fn outside_mode_operations_whole_calls_neither_ask_nor_count() {
    let settings = settings(CircuitMode::WeightedConsecutive);
    let circuit = Circuit::new();
    let now = Instant::now();
    fail(&circuit, &settings, 3, now);
    let pass = circuit.admit_operation(&settings, LEASE, now).unwrap();
    assert_eq!(circuit.record_operation(&settings, pass, true, now), None);
    circuit.isolate(now);
    assert!(circuit.admit_operation(&settings, LEASE, now).is_err());
}

#[test]
fn eight_threads_never_have_more_trials_than_permitted() {
    let settings = CircuitSettings {
        trials_max: 2,
        successes: 5,
        open_for: Duration::from_millis(1),
        ..settings(CircuitMode::WeightedConsecutive)
    };
    let circuit = Circuit::new();
    let start = Instant::now();
    let under_way = std::sync::atomic::AtomicU32::new(0);
    let trials = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (circuit, settings) = (&circuit, &settings);
            let (under_way, trials) = (&under_way, &trials);
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(thread);
                for step in 0..20_000_u32 {
                    let now = start + step * Duration::from_micros(10);
                    let Ok(pass) = circuit.admit(settings, LEASE * 1000, now) else {
                        continue;
                    };
                    let is_trial = pass.trial.is_some();
                    if is_trial {
                        trials.fetch_add(1, Relaxed);
                        assert!(under_way.fetch_add(1, AcqRel) < 2);
                        std::thread::yield_now();
                        under_way.fetch_sub(1, AcqRel);
                    }
                    let verdict = match rng.u32(..10) {
                        0 => Verdict::Cancelled,
                        1..6 => Verdict::failure(1),
                        _ => Verdict::success(),
                    };
                    circuit.record(settings, pass, verdict, now);
                }
            });
        }
    });
    assert!(trials.into_inner() > 0, "the test saw no trial");
}

#[test]
fn eight_threads_lose_no_call_of_mode_rate() {
    let settings = CircuitSettings {
        window: 3600 * SECOND,
        failure_ratio: 1.0,
        ..settings(CircuitMode::Rate)
    };
    let circuit = Circuit::new();
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for step in 0..10_000 {
                    let now = start + step * Duration::from_millis(100);
                    attempt(&circuit, &settings, Verdict::success(), now);
                    if step % 100 == 0 {
                        attempt(&circuit, &settings, Verdict::failure(1), now);
                    }
                }
            });
        }
    });
    fail(&circuit, &settings, 1, start + 1001 * SECOND);
    let calls = circuit.machine.lock().calls();
    assert_eq!(calls, 8 * (10_000 + 100) + 1);
}

#[test]
fn after_a_reset_mode_rate_counts_from_the_first_call_on() {
    let settings = settings(CircuitMode::Rate);
    let circuit = Circuit::new();
    let now = Instant::now();
    let succeed = |times: u32| {
        for _ in 0..times {
            attempt(&circuit, &settings, Verdict::success(), now);
        }
    };
    succeed(7);
    assert_eq!(circuit.reset(now), None);
    succeed(5);
    fail(&circuit, &settings, 1, now);
    assert_eq!(circuit.machine.lock().calls(), 6);
}
