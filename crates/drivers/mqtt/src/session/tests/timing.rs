//! Whether the broker is there.

use tokio::time::{Duration, Instant};

use crate::session::vigil::{Vigil, Watch};

const ANSWER: Duration = Duration::from_secs(10);

fn vigil(now: Instant) -> Vigil {
    Vigil::new(Some(Duration::from_secs(30)), ANSWER, now)
}

/// What is done at each second, until the broker is gone or a minute has passed.
fn course(mut vigil: Vigil, now: Instant, mut at: impl FnMut(u64, &mut Vigil, Instant)) -> String {
    let mut done = String::new();
    for second in 1..=60 {
        let now = now + Duration::from_secs(second);
        at(second, &mut vigil, now);
        match vigil.watch(now) {
            Watch::Nothing => {}
            Watch::Ask => done += &format!("{second}? "),
            Watch::Gone => return done + &format!("{second}!"),
        }
    }
    done
}

#[test]
fn a_broker_is_asked_and_left_by_the_clock() {
    let now = Instant::now();
    // Nothing comes and nothing goes.
    assert_eq!(course(vigil(now), now, |_, _, _| {}), "15? 25!");
    // It answers.
    let answers = |_, vigil: &mut Vigil, now| {
        vigil.received(now);
        vigil.answered();
    };
    assert_eq!(course(vigil(now), now, answers), "15? 30? 45? 60? ");
    // We write all the time and nothing comes.
    let writes = |_, vigil: &mut Vigil, now| vigil.sent(0, now);
    assert_eq!(course(vigil(now), now, writes), "30? 40!");
    // An answer is due from the third second on.
    let owes = |second, vigil: &mut Vigil, now| vigil.expect(second >= 3, now);
    assert_eq!(course(vigil(now), now, owes), "8? 18!");
    // Bytes come, one by one, but never what was asked for.
    let drips = |_, vigil: &mut Vigil, now| vigil.received(now);
    assert!(course(vigil(now), now, drips).starts_with("15? "));
    let mut never = vigil(now);
    never.watch(now + Duration::from_secs(15));
    never.received(now + Duration::from_secs(75));
    assert_eq!(never.watch(now + Duration::from_secs(75)), Watch::Gone);
}

#[test]
fn a_question_behind_a_large_packet_counts_from_when_it_has_left() {
    let now = Instant::now();
    // A byte a second leaves; the question, asked after 6 s, ends behind the fortieth.
    let slow = |second: u64, vigil: &mut Vigil, now| {
        vigil.sent(second.min(40), now);
        vigil.expect(true, now);
        vigil.asks(40);
    };
    assert_eq!(course(vigil(now), now, slow), "6? 49!");
    // Nothing leaves any more.
    let stuck = |second, vigil: &mut Vigil, now| {
        if second <= 20 {
            slow(second, vigil, now);
        }
    };
    assert_eq!(course(vigil(now), now, stuck), "6? 30!");
}

#[test]
fn who_does_not_listen_still_shows_that_he_lives_and_blames_nobody() {
    let now = Instant::now();
    let deaf = |second, vigil: &mut Vigil, now| vigil.listen(second >= 50, now);
    assert_eq!(course(vigil(now), now, deaf), "15? 30? 45? 60!");
    let off = Vigil::new(None, ANSWER, now);
    assert_eq!(course(off, now, |_, _, _| {}), "");
}
