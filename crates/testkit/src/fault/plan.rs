//! What a proxy does to which statement.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::wire::Parameter;

/// A statement that is about to leave for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moment {
    /// The client's connection, counted from 0.
    pub connection: u64,
    /// The statement, counted over all connections of the proxy from 0.
    pub number: u64,
    /// What kind of statement it is.
    pub kind: Kind,
    /// The statement's text, also where only the name of a prepared statement is sent. Empty where
    /// the proxy did not see it prepared.
    pub text: Arc<str>,
    /// The bound parameters; empty for plain text queries.
    pub parameters: Vec<Parameter>,
}

/// What a statement is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// It is prepared and not run.
    Prepare,
    /// It begins a transaction.
    Begin,
    /// It commits one.
    Commit,
    /// It rolls one back, whole or to a savepoint.
    Rollback,
    /// Any other that runs.
    Statement,
}

impl Kind {
    /// The kind of a statement that runs, by its first word.
    pub(super) fn of(text: &str) -> Self {
        let word = text
            .trim_start()
            .split(|c: char| !c.is_ascii_alphabetic())
            .next();
        match word.unwrap_or_default().to_ascii_uppercase().as_str() {
            "BEGIN" | "START" => Self::Begin,
            "COMMIT" | "END" => Self::Commit,
            "ROLLBACK" | "ABORT" => Self::Rollback,
            _ => Self::Statement,
        }
    }
}

/// What happens to a statement, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// When.
    pub point: Point,
    /// What.
    pub action: Action,
}

/// The moment of a fault in a statement's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// No byte of it has left for the server.
    BeforeSend,
    /// All of it has been handed to the server, nothing has been waited for.
    AfterSend,
    /// It has run at the server, and no byte of the answer has reached the client.
    BeforeAnswer,
}

/// What is done to the client's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// The connection ends.
    Cut(Cut),
    /// From here on nothing passes in either direction and nothing is closed: the client waits until
    /// it gives up.
    Hang,
    /// What would pass next (the statement, or its answer) passes this much later. At
    /// [`Point::AfterSend`] the time runs from the sending, at [`Point::BeforeAnswer`] from the
    /// answer's coming.
    Delay(Duration),
}

/// How a connection ends, as the client sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// An orderly end (FIN): the client reads an end of file.
    Fin,
    /// A reset (RST): the client gets "connection reset".
    Rst,
}

impl Fault {
    /// A fault of this kind at this point.
    pub const fn new(point: Point, action: Action) -> Self {
        Self { point, action }
    }

    /// Every kind of fault at every point, delays by `delay`.
    pub fn all(delay: Duration) -> Vec<Self> {
        let actions = [
            Action::Cut(Cut::Fin),
            Action::Cut(Cut::Rst),
            Action::Hang,
            Action::Delay(delay),
        ];
        [Point::BeforeSend, Point::AfterSend, Point::BeforeAnswer]
            .into_iter()
            .flat_map(|point| actions.map(|action| Self { point, action }))
            .collect()
    }
}

/// Decides for each statement. Any closure `FnMut(&Moment) -> Option<Fault>` is one.
pub trait FaultPlan: Send {
    /// What happens to this statement; asked once for each, just before it leaves.
    fn decide(&mut self, moment: &Moment) -> Option<Fault>;
}

impl<F: FnMut(&Moment) -> Option<Fault> + Send> FaultPlan for F {
    fn decide(&mut self, moment: &Moment) -> Option<Fault> {
        self(moment)
    }
}

/// Nothing happens to any statement.
pub fn none() -> impl FaultPlan + 'static {
    |_: &Moment| None
}

/// The first statements for which `when` holds get one of these faults each, in order.
pub fn queue(
    mut when: impl FnMut(&Moment) -> bool + Send + 'static,
    faults: impl IntoIterator<Item = Fault>,
) -> impl FaultPlan + 'static {
    let mut faults: VecDeque<Fault> = faults.into_iter().collect();
    move |moment: &Moment| {
        if when(moment) {
            faults.pop_front()
        } else {
            None
        }
    }
}

/// Of the statements for which `when` holds, `per_thousand` get a fault drawn from `menu`. The draw
/// depends on the seed and the statement's number alone.
///
/// # Panics
/// The menu is empty.
pub fn seeded(
    seed: u64,
    per_thousand: u32,
    menu: Vec<Fault>,
    mut when: impl FnMut(&Moment) -> bool + Send + 'static,
) -> impl FaultPlan + 'static {
    assert!(!menu.is_empty(), "a plan needs a fault to draw");
    move |moment: &Moment| {
        let mut chance = fastrand::Rng::with_seed(seed.wrapping_add(moment.number));
        // Neighbouring seeds give related first numbers: leave one out.
        chance.u64(..);
        let struck = when(moment) && chance.u32(0..1000) < per_thousand;
        struck.then(|| menu[chance.usize(..menu.len())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(number: u64, text: &str) -> Moment {
        let kind = Kind::of(text);
        Moment {
            connection: 0,
            number,
            kind,
            text: text.into(),
            parameters: Vec::new(),
        }
    }

    #[test]
    fn a_statements_kind_is_its_first_word() {
        for (text, expected) in [
            (" begin;", Kind::Begin),
            ("START TRANSACTION READ ONLY", Kind::Begin),
            ("COMMIT", Kind::Commit),
            ("end", Kind::Commit),
            ("ROLLBACK TO a", Kind::Rollback),
            ("COMMITTED", Kind::Statement),
            ("SELECT 'COMMIT'", Kind::Statement),
            ("", Kind::Statement),
        ] {
            assert_eq!(Kind::of(text), expected, "{text}");
        }
    }

    #[test]
    fn a_queue_serves_only_the_statements_meant() {
        let fault = Fault::new(Point::AfterSend, Action::Hang);
        let mut plan = queue(|moment| moment.kind == Kind::Commit, [fault]);
        assert_eq!(plan.decide(&moment(0, "SELECT 1")), None);
        assert_eq!(plan.decide(&moment(1, "COMMIT")), Some(fault));
        assert_eq!(plan.decide(&moment(2, "COMMIT")), None);
    }

    #[test]
    fn a_seed_draws_the_same_faults_again_at_about_its_rate() {
        let draw = |seed| {
            let mut plan = seeded(seed, 100, Fault::all(Duration::ZERO), |_| true);
            (0..10_000)
                .map(|n| plan.decide(&moment(n, "SELECT 1")))
                .collect::<Vec<_>>()
        };
        let first = draw(7);
        assert_eq!(first, draw(7));
        assert_ne!(first, draw(8));
        let struck = first.iter().flatten().count();
        assert!(
            (800..1200).contains(&struck),
            "{struck} of 10000 at 100 per thousand"
        );
        let kinds: std::collections::HashSet<_> = first.iter().flatten().collect();
        assert_eq!(kinds.len(), 12, "each fault of the menu is drawn");
    }
}
