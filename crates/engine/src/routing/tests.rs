use super::*;

fn candidate() -> Candidate {
    Candidate {
        weight: 1.0,
        in_flight: 0,
        latency: Some(Duration::from_millis(10)),
        failure_rate: 0.0,
        is_primary: false,
        is_standby: false,
    }
}

fn latency_ms(ms: u64) -> Candidate {
    Candidate {
        latency: Some(Duration::from_millis(ms)),
        ..candidate()
    }
}

fn weight(weight: f64) -> Candidate {
    Candidate {
        weight,
        ..candidate()
    }
}

fn in_flight(in_flight: u32) -> Candidate {
    Candidate {
        in_flight,
        ..candidate()
    }
}

fn failing(failure_rate: f64) -> Candidate {
    Candidate {
        failure_rate,
        ..candidate()
    }
}

fn unmeasured() -> Candidate {
    Candidate {
        latency: None,
        ..candidate()
    }
}

fn standby() -> Candidate {
    Candidate {
        is_standby: true,
        ..candidate()
    }
}

fn primary() -> Candidate {
    Candidate {
        is_primary: true,
        ..candidate()
    }
}

/// Shares of 20,000 picks.
fn shares(strategy: Strategy, candidates: &[Candidate]) -> Vec<f64> {
    const PICKS: u32 = 20_000;
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(7);
    let ids: Vec<u64> = (0..candidates.len() as u64).map(|id| id * 10).collect();
    let mut picked = vec![0_u32; candidates.len()];
    for _ in 0..PICKS {
        picked[router.pick(strategy, candidates, &ids, &mut rng)] += 1;
    }
    picked
        .into_iter()
        .map(|count| f64::from(count) / f64::from(PICKS))
        .collect()
}

#[track_caller]
fn check(strategy: Strategy, candidates: &[Candidate], expected: &[f64]) {
    let got = shares(strategy, candidates);
    for (got_share, expected_share) in got.iter().zip(expected) {
        assert!(
            (got_share - expected_share).abs() < 0.015,
            "{strategy}: {got:?} instead of {expected:?}"
        );
    }
}

const THIRD: f64 = 1.0 / 3.0;

#[test]
fn weighted_latency_takes_the_better_of_two_by_latency_load_weight_and_failures() {
    // The best of three is drawn with probability 2/3, the worst never wins.
    let order = [2.0 * THIRD, THIRD, 0.0];
    for strategy in [Strategy::WeightedLatency, Strategy::P2c] {
        check(strategy, &[candidate(); 3], &[THIRD; 3]);
        check(
            strategy,
            &[latency_ms(1), latency_ms(2), latency_ms(3)],
            &order,
        );
        check(
            strategy,
            &[in_flight(0), in_flight(1), in_flight(2)],
            &order,
        );
        check(strategy, &[weight(3.0), weight(2.0), weight(1.0)], &order);
        check(
            strategy,
            &[failing(0.0), failing(0.1), failing(1.0)],
            &order,
        );
    }
}

#[test]
fn an_endpoint_that_fails_fast_does_not_look_fast() {
    let fails_fast = Candidate {
        failure_rate: 0.9,
        ..latency_ms(1)
    };
    check(
        Strategy::WeightedLatency,
        &[fails_fast, latency_ms(10)],
        &[0.0, 1.0],
    );
    check(
        Strategy::LowestLatency,
        &[fails_fast, latency_ms(10)],
        &[0.0, 1.0],
    );
}

#[test]
fn an_unmeasured_endpoint_is_explored_but_not_favoured() {
    let strategy = Strategy::WeightedLatency;
    check(strategy, &[unmeasured(); 2], &[0.5, 0.5]);
    check(strategy, &[unmeasured(), latency_ms(10)], &[0.5, 0.5]);
    let three = [latency_ms(1), unmeasured(), latency_ms(99)];
    check(strategy, &three, &[2.0 * THIRD, THIRD, 0.0]);
    let lowest = [latency_ms(1), unmeasured(), latency_ms(99)];
    check(Strategy::LowestLatency, &lowest, &[0.95, 0.05, 0.0]);
}

#[test]
fn least_outstanding_takes_the_fewest_in_flight_and_shares_ties() {
    let strategy = Strategy::LeastOutstanding;
    check(
        strategy,
        &[in_flight(3), in_flight(1), in_flight(2)],
        &[0.0, 1.0, 0.0],
    );
    check(
        strategy,
        &[in_flight(1), in_flight(1), in_flight(2)],
        &[0.5, 0.5, 0.0],
    );
}

#[test]
fn lowest_latency_takes_the_fastest_whatever_its_load() {
    let busy = Candidate {
        in_flight: 100,
        ..latency_ms(1)
    };
    check(Strategy::LowestLatency, &[latency_ms(2), busy], &[0.0, 1.0]);
}

#[test]
fn health_weighted_shares_by_weight_and_failures() {
    let strategy = Strategy::HealthWeighted;
    check(strategy, &[weight(1.0), weight(3.0)], &[0.25, 0.75]);
    // 1 / 0.01 against 1 / 0.11
    check(strategy, &[failing(0.0), failing(0.1)], &[0.917, 0.083]);
    check(strategy, &[failing(1.0), failing(1.0)], &[0.5, 0.5]);
}

#[test]
fn round_robin_goes_in_turn() {
    check(Strategy::RoundRobin, &[candidate(); 3], &[THIRD; 3]);
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let mut pick = |ids: &[u64]| {
        let all = [candidate(); 3];
        ids[router.pick(Strategy::RoundRobin, &all[..ids.len()], ids, &mut rng)]
    };
    let all = [5, 9, 2];
    let turns: Vec<u64> = (0..6).map(|_| pick(&all)).collect();
    assert_eq!(turns, [2, 5, 9, 2, 5, 9]);
    assert_eq!(pick(&all), 2);
    // One is tried already: the turn goes on with the others and stays fair.
    assert_eq!(pick(&[9, 2]), 9);
    assert_eq!(pick(&all), 2);
}

#[test]
fn weighted_round_robin_is_smooth() {
    let candidates = [weight(5.0), weight(1.0), weight(1.0)];
    check(
        Strategy::WeightedRoundRobin,
        &candidates,
        &[5.0 / 7.0, 1.0 / 7.0, 1.0 / 7.0],
    );
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(1);
    let turns: String = (0..14)
        .map(|_| {
            let pick = router.pick(
                Strategy::WeightedRoundRobin,
                &candidates,
                &[7, 8, 9],
                &mut rng,
            );
            ["a", "b", "c"][pick]
        })
        .collect();
    assert_eq!(turns, "aabacaaaabacaa");
}

#[test]
fn what_is_remembered_of_weighted_turns_is_bounded() {
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for id in 0..10_000 {
        let ids = [id, id + 1];
        router.pick(
            Strategy::WeightedRoundRobin,
            &[candidate(); 2],
            &ids,
            &mut rng,
        );
    }
    assert!(router.turn.remembered() <= 20);
}

#[test]
fn the_primary_is_taken_while_it_lives_and_the_best_of_the_others_after_it() {
    let strategy = Strategy::PrimaryWithStandby;
    let slow = Candidate {
        is_primary: true,
        in_flight: 1000,
        ..latency_ms(10_000)
    };
    check(
        strategy,
        &[latency_ms(1), slow, standby()],
        &[0.0, 1.0, 0.0],
    );
    check(
        strategy,
        &[latency_ms(2), latency_ms(1), standby()],
        &[0.0, 1.0, 0.0],
    );
    check(strategy, &[standby(), standby()], &[0.5, 0.5]);
}

#[test]
fn a_standby_is_chosen_only_where_nothing_else_is_left() {
    for strategy in Strategy::ALL {
        let busy = Candidate {
            in_flight: 50,
            failure_rate: 1.0,
            ..latency_ms(5_000)
        };
        check(*strategy, &[standby(), busy], &[0.0, 1.0]);
        check(*strategy, &[standby(), standby()], &[0.5, 0.5]);
    }
    check(
        Strategy::PrimaryWithStandby,
        &[standby(), primary()],
        &[0.0, 1.0],
    );
}

#[test]
fn every_strategy_takes_the_only_one_and_survives_strange_numbers() {
    let strange = Candidate {
        weight: 0.0,
        in_flight: u32::MAX,
        latency: Some(Duration::MAX),
        failure_rate: 7.0,
        ..candidate()
    };
    let router = Router::new();
    let mut rng = fastrand::Rng::with_seed(1);
    for strategy in Strategy::ALL {
        assert_eq!(router.pick(*strategy, &[], &[], &mut rng), 0);
        for only in [strange, unmeasured(), standby()] {
            assert_eq!(router.pick(*strategy, &[only], &[1], &mut rng), 0);
        }
        for _ in 0..100 {
            assert!(router.pick(*strategy, &[strange; 3], &[1, 2, 3], &mut rng) < 3);
        }
    }
}

#[test]
fn eight_threads_share_the_turns_evenly() {
    for strategy in [Strategy::RoundRobin, Strategy::WeightedRoundRobin] {
        let router = Router::new();
        let picked: [std::sync::atomic::AtomicU32; 4] = Default::default();
        std::thread::scope(|scope| {
            for seed in 0..8 {
                let (router, picked) = (&router, &picked);
                scope.spawn(move || {
                    let mut rng = fastrand::Rng::with_seed(seed);
                    for _ in 0..1_000 {
                        let pick =
                            router.pick(strategy, &[candidate(); 4], &[1, 2, 3, 4], &mut rng);
                        picked[pick].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    }
                });
            }
        });
        for count in picked {
            assert_eq!(count.into_inner(), 2_000, "{strategy}");
        }
    }
}
