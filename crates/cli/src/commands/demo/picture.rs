//! What is to be seen: a live picture, or a line a second; and the summary.

use std::io;
use std::time::Duration;

use tokio::time::Instant;

use super::COLUMNS;
use super::chronicle::Chronicle;
use super::load::{Load, Tally};
use super::stage::Stage;
use crate::output::{self, Paint, Picture};
use crate::table::Listing;

/// Heights of a column; the first is nothing at all.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How often a line is printed where there is no picture.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Rates of one thing over the whole demo, a column for each frame.
#[derive(Debug, Default)]
struct Series {
    last_count: u64,
    rates: Vec<f64>,
}

impl Series {
    fn add(&mut self, count: u64, elapsed: f64) {
        let rate = count.saturating_sub(self.last_count) as f64 / elapsed.max(1e-3);
        self.last_count = count;
        if self.rates.len() < COLUMNS as usize * 2 {
            self.rates.push(rate);
        }
    }

    fn rate(&self) -> f64 {
        // The last few frames together: one alone jumps about.
        let last = &self.rates[self.rates.len().saturating_sub(4)..];
        last.iter().sum::<f64>() / last.len().max(1) as f64
    }

    fn bar(&self, width: usize) -> String {
        let from = self.rates.len().saturating_sub(width);
        let highest = self.rates.iter().copied().fold(1.0, f64::max);
        let column = |rate: &f64| match *rate {
            rate if rate <= 0.0 => ' ',
            rate => {
                let height = (rate / highest * (HEIGHTS.len() - 1) as f64).round();
                HEIGHTS[(height as usize).min(HEIGHTS.len() - 1)]
            }
        };
        self.rates[from..].iter().map(column).collect()
    }
}

/// Draws frame after frame.
pub(super) struct Scene {
    length: Duration,
    seed: u64,
    is_live: bool,
    paint: Paint,
    picture: Picture,
    last_frame: Option<Instant>,
    last_line: Option<Instant>,
    lines_told: usize,
    reads: Series,
    writes: Series,
    endpoints: Vec<Series>,
}

impl Scene {
    /// The beginning.
    pub(super) fn new(length: Duration, seed: u64, is_live: bool) -> Self {
        Scene {
            length,
            seed,
            is_live,
            paint: Paint::stdout(),
            picture: Picture::default(),
            last_frame: None,
            last_line: None,
            lines_told: 0,
            reads: Series::default(),
            writes: Series::default(),
            endpoints: Vec::new(),
        }
    }

    /// How long the demo is.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Shows how things are now.
    pub(super) fn frame(
        &mut self,
        stage: &Stage,
        load: &Load,
        chronicle: &Chronicle,
        started: Instant,
    ) -> io::Result<()> {
        let now = Instant::now();
        let mut status = stage.source().status();
        status.sort_by(|a, b| a.endpoint.as_str().cmp(b.endpoint.as_str()));
        self.measure(&status, load.tally(), now, started);
        let at = now.saturating_duration_since(started);
        if self.is_live {
            let lines = self.lines(&status, load.tally(), chronicle, at);
            return self.picture.draw(&lines);
        }
        self.print(&status, load.tally(), chronicle, now, at)
    }

    fn measure(
        &mut self,
        status: &[mainstay_engine::source::EndpointStatus],
        tally: &Tally,
        now: Instant,
        started: Instant,
    ) {
        let last = self.last_frame.replace(now).unwrap_or(started);
        let elapsed = now.saturating_duration_since(last).as_secs_f64();
        self.reads.add(tally.reads_done(), elapsed);
        self.writes.add(tally.writes_done(), elapsed);
        self.endpoints.resize_with(status.len(), Series::default);
        for (series, endpoint) in self.endpoints.iter_mut().zip(status) {
            series.add(endpoint.stats.successes, elapsed);
        }
    }

    fn lines(
        &self,
        status: &[mainstay_engine::source::EndpointStatus],
        tally: &Tally,
        chronicle: &Chronicle,
        at: Duration,
    ) -> Vec<String> {
        let width = output::width();
        let title = format!(
            "Mainstay demo · a primary and two replicas under load · {:.1} of {} s · seed {}",
            at.as_secs_f64().min(self.length.as_secs_f64()),
            self.length.as_secs(),
            self.seed
        );
        let mut lines = vec![self.paint.bold(&output::cut(&title, width)), String::new()];
        lines.extend(self.endpoint_lines(status, width));
        lines.push(String::new());
        lines.extend(self.caller_lines(tally, width));
        lines.push(String::new());
        let told = chronicle.lines();
        lines.extend(
            told.iter()
                .map(|(at, line)| output::cut(&told_line(*at, line), width)),
        );
        lines
    }

    fn endpoint_lines(
        &self,
        status: &[mainstay_engine::source::EndpointStatus],
        width: usize,
    ) -> Vec<String> {
        let mut listing = Listing::new(["ENDPOINT", "ROLE", "HEALTH", "CIRCUIT", "CALLS/S", ""]);
        for (endpoint, series) in status.iter().zip(&self.endpoints) {
            listing.row([
                endpoint.endpoint.as_str(),
                endpoint.role.as_str(),
                endpoint.health,
                endpoint.circuit,
                &format!("{:.0}", series.rate()),
                &series.bar(COLUMNS as usize),
            ]);
        }
        listing.right([4]);
        let rows = listing
            .lines()
            .into_iter()
            .map(|row| output::cut(&row, width));
        let paint = self.paint;
        rows.enumerate()
            .map(
                |(number, row)| match number.checked_sub(1).map(|at| &status[at]) {
                    None => paint.dim(&row),
                    Some(one) if one.health == "down" || one.circuit == "open" => paint.red(&row),
                    Some(one) if one.role == mainstay_engine::Role::Primary => paint.green(&row),
                    Some(_) => row,
                },
            )
            .collect()
    }

    fn caller_lines(&self, tally: &Tally, width: usize) -> Vec<String> {
        let mut listing = Listing::new(["", "DONE", "FAILED", "WAITING", "PER S", ""]);
        let bar = |series: &Series| series.bar(COLUMNS as usize);
        let rate = |series: &Series| format!("{:.0}", series.rate());
        listing.row([
            "reads".to_owned(),
            tally.reads_done().to_string(),
            tally.reads_failed().to_string(),
            String::new(),
            rate(&self.reads),
            bar(&self.reads),
        ]);
        listing.row([
            "writes".to_owned(),
            tally.writes_done().to_string(),
            tally.writes_failed().to_string(),
            tally.writing().to_string(),
            rate(&self.writes),
            bar(&self.writes),
        ]);
        listing.right(1..5);
        let rows = listing
            .lines()
            .into_iter()
            .map(|row| output::cut(&row, width));
        rows.enumerate()
            .map(|(number, row)| {
                if number == 0 {
                    self.paint.dim(&row)
                } else {
                    row
                }
            })
            .collect()
    }

    fn print(
        &mut self,
        status: &[mainstay_engine::source::EndpointStatus],
        tally: &Tally,
        chronicle: &Chronicle,
        now: Instant,
        at: Duration,
    ) -> io::Result<()> {
        if self.last_line.is_none() {
            output::say(&format!(
                "Mainstay demo: a primary and two replicas under load for {} s, seed {}",
                self.length.as_secs(),
                self.seed
            ))?;
        }
        let told = chronicle.lines();
        for (at, line) in &told[self.lines_told.min(told.len())..] {
            output::say(&told_line(*at, line))?;
        }
        self.lines_told = told.len();
        let is_due = |last: Instant| now.saturating_duration_since(last) >= LINE_EVERY;
        if self.last_line.is_some_and(|last| !is_due(last)) {
            return Ok(());
        }
        self.last_line = Some(now);
        let primary = status
            .iter()
            .find(|one| one.role == mainstay_engine::Role::Primary);
        output::say(&format!(
            "{:>5.1} s  reads {:>6} done {} failed   writes {:>5} done {} failed {} waiting   primary {}",
            at.as_secs_f64(),
            tally.reads_done(),
            tally.reads_failed(),
            tally.writes_done(),
            tally.writes_failed(),
            tally.writing(),
            primary.map_or("none", |one| one.endpoint.as_str()),
        ))
    }
}

fn told_line(at: Duration, line: &str) -> String {
    format!("{:>5.1} s  {line}", at.as_secs_f64())
}

/// What it came to.
pub(super) fn summary(load: &Load, chronicle: &Chronicle, elapsed: Duration) -> String {
    let tally = load.tally();
    let counts = chronicle.counts();
    let events: Vec<String> = counts
        .iter()
        .map(|(kind, count)| format!("{kind} {count}"))
        .collect();
    let promoted = chronicle.promoted();
    let mut lines = vec![
        String::new(),
        format!("After {:.1} s:", elapsed.as_secs_f64()),
        format!(
            "  reads            {} done, {} failed",
            tally.reads_done(),
            tally.reads_failed()
        ),
        format!(
            "  writes           {} done, {} failed",
            tally.writes_done(),
            tally.writes_failed()
        ),
        format!("  pause of writes  {:.2} s", tally.pause().as_secs_f64()),
        format!(
            "  promoted         {}",
            promoted.as_deref().unwrap_or("nobody")
        ),
        format!(
            "  events           {}",
            if events.is_empty() {
                "none".to_owned()
            } else {
                events.join(", ")
            }
        ),
    ];
    if let Some(failure) = tally.first_failure() {
        lines.push(format!("  first failure    {failure}"));
    }
    lines.push(String::new());
    let program = crate::own_name::own_name();
    lines.push(format!("Next: `{program} serve` and the lines it prints."));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_shows_nothing_as_nothing_and_the_highest_rate_in_full() {
        let mut series = Series::default();
        for (count, _) in [(0, ()), (100, ()), (150, ())] {
            series.add(count, 1.0);
        }
        assert_eq!(series.bar(60), " █▅");
        assert_eq!(series.bar(1), "▅");
    }
}
