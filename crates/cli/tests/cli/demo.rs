use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::Instant;

use super::program::{Place, send};

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

/// Longer than a slow machine needs to make the sample or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// A demo whose temporary folder is in this place.
fn begin(place: &Place) -> Child {
    let mut command = place.command(&["demo", "--seconds", "60", "--plain"]);
    command.env("TMPDIR", place.path());
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    piped.spawn().unwrap()
}

fn is_empty(place: &Place) -> bool {
    std::fs::read_dir(place.path()).unwrap().next().is_none()
}

#[test]
fn every_signal_that_ends_a_demo_takes_its_temporary_folder_away() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let place = Place::new();
        let demo = begin(&place);
        let begun = Instant::now();
        // The folder is there as soon as the stage is being built.
        while is_empty(&place) {
            assert!(begun.elapsed() < PATIENCE, "no folder");
            std::thread::yield_now();
        }
        send(&demo, signal);
        let ended = demo.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{signal}: {ended:?}");
        assert!(is_empty(&place), "{signal}: {ended:?}");
        assert!(
            begun.elapsed() < PATIENCE,
            "{signal}: it went on to its end"
        );
    }
}

#[test]
fn a_demo_that_is_ended_while_it_plays_tells_what_was_done() {
    let place = Place::new();
    let mut demo = begin(&place);
    let mut lines = BufReader::new(demo.stdout.take().unwrap()).lines();
    let first = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("reads")));
    assert!(first.is_some());
    send(&demo, Signal::SIGTERM);
    let rest: Vec<String> = lines.map_while(Result::ok).collect();
    assert_eq!(demo.wait().unwrap().code(), Some(0), "{rest:?}");
    assert!(
        rest.iter().any(|line| line.contains("pause of writes")),
        "{rest:?}"
    );
    assert!(is_empty(&place));
}
