use super::program::Place;

#[test]
fn a_short_demo_answers_every_read_and_promotes_a_replica() {
    let place = Place::new();
    let demo = place.run(&["demo", "--seconds", "6", "--seed", "1", "--plain"]);
    assert_eq!(demo.code, 0, "{demo:?}");
    for part in [
        "alpha is taken away",
        "is promoted: the primary is down",
        "alpha is there again",
        " done, 0 failed",
        "pause of writes",
        "promotions 1",
    ] {
        assert!(demo.out.contains(part), "{part}: {}", demo.out);
    }
    let promoted = demo
        .out
        .lines()
        .find(|line| line.trim().starts_with("promoted"));
    let promoted = promoted.unwrap().split_whitespace().last().unwrap();
    assert!(["beta", "gamma"].contains(&promoted), "{promoted}");
    assert!(!demo.out.contains('\x1b'), "{}", demo.out);
    // What it needed is gone.
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}
