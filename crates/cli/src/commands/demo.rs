//! `demo`: a primary fails under load and comes back, in this process.

mod chronicle;
mod load;
mod outage;
mod picture;
mod stage;

use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::Chance;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::output;
use crate::signals::Signals;
use chronicle::Chronicle;
use load::Load;
use picture::Scene;
use stage::Stage;

/// Watch a primary fail under load and come back
///
/// Runs in this process: a primary and two replicas of an SQLite sample in a temporary folder, readers and
/// writers, and after a few seconds a primary that refuses every connection, until it comes back. Ends by
/// itself and prints what was done, what failed, how long writes paused and who was promoted.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay demo
  mainstay demo --seconds 30 --seed 7
  mainstay demo --plain > demo.log

Exit codes: 0 every read was answered, 1 a read failed.")]
pub(crate) struct Arguments {
    /// How long it runs
    #[arg(long, default_value_t = 15, value_name = "N", value_parser = clap::value_parser!(u64).range(5..=600))]
    seconds: u64,
    /// Makes the same choices again
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print a line a second instead of a picture
    #[arg(long)]
    plain: bool,
}

/// When the primary is taken away and when it comes back, as shares of the whole.
const AWAY: f64 = 0.27;
const BACK: f64 = 0.67;

/// Columns of a bar; each stands for an equal part of the whole.
const COLUMNS: u32 = 60;

/// Runs it.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let seed = arguments
        .seed
        .unwrap_or_else(|| Chance::from_entropy().seed());
    let length = Duration::from_secs(arguments.seconds);
    let is_live = output::is_terminal() && !arguments.plain;
    let mut signals = Signals::with_hangup()?;
    let stage = Stage::build(&Chance::seeded(seed))?;
    let is_ready = tokio::select! {
        ready = stage.ready() => ready.map(|()| true),
        () = signals.next() => Ok(false),
    };
    if !matches!(is_ready, Ok(true)) {
        stage.close().await;
        return is_ready.map(|_| Exit::Ok);
    }
    let started = Instant::now();
    let chronicle = Arc::new(Chronicle::new(started));
    stage.source().observe(Arc::clone(&chronicle) as _);
    let load = Load::start(&stage, seed);
    let mut scene = Scene::new(length, seed, is_live);
    let ended = play(&stage, &load, &chronicle, &mut scene, &mut signals).await;
    load.stop().await;
    let last = scene.frame(&stage, &load, &chronicle, started);
    let summary = picture::summary(&load, &chronicle, started.elapsed());
    stage.close().await;
    ended.and(last)?;
    output::say(&summary)?;
    Ok(match load.tally().reads_failed() {
        0 => Exit::Ok,
        _ => Exit::Failed,
    })
}

/// From the first frame to the last, or to a signal.
async fn play(
    stage: &Stage,
    load: &Load,
    chronicle: &Chronicle,
    scene: &mut Scene,
    signals: &mut Signals,
) -> std::io::Result<()> {
    let (length, started) = (scene.length(), chronicle.started());
    let at = |share: f64| started + length.mul_f64(share);
    let mut tick = interval((length / COLUMNS).max(Duration::from_millis(80)));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let away = tokio::time::sleep_until(at(AWAY));
    let back = tokio::time::sleep_until(at(BACK));
    let end = tokio::time::sleep_until(at(1.0));
    tokio::pin!(away, back, end);
    let (mut is_away, mut is_back) = (false, false);
    loop {
        tokio::select! {
            biased;
            () = signals.next() => return Ok(()),
            () = &mut end => return Ok(()),
            () = &mut away, if !is_away => {
                is_away = true;
                stage.take_primary_away();
                load.expect_pause();
                chronicle.note(format!("{} is taken away: it refuses every connection", stage::PRIMARY));
            }
            () = &mut back, if !is_back => {
                is_back = true;
                stage.bring_primary_back();
                chronicle.note(format!("{} is there again", stage::PRIMARY));
            }
            _ = tick.tick() => scene.frame(stage, load, chronicle, started)?,
        }
    }
}
