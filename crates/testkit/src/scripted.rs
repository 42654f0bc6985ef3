//! A database that does what a test tells it: answers, delays, hangs and failures are scripted; connects,
//! statements and cancels are counted. It keeps what a server would keep (which sessions are open, busy
//! or in a transaction), so that tests can ask what was left behind.

mod connection;
pub mod reply;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{
    Access, BoxFuture, Connection, Dialect, Driver, Lineage, Position, Probe, SqlError,
};
use parking_lot::Mutex;
use tokio::sync::Notify;

use connection::ScriptedConnection;
pub use reply::{End, OnCancel, Reply};

/// Events that the log keeps at most; older ones are dropped.
const LOG_MAX: usize = 100_000;

/// The place of a call that a reply is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Point {
    /// Opening a connection.
    Connect,
    /// The round trip test.
    Check,
    /// Session reset.
    Reset,
    /// Clean-up after a dropped future.
    CleanUp,
    /// One statement, collected.
    Run,
    /// One statement, streamed.
    Open,
    /// The next rows of a stream.
    NextBatch,
    /// BEGIN
    Begin,
    /// COMMIT
    Commit,
    /// ROLLBACK
    Rollback,
    /// A question to the catalog.
    Describe,
    /// A health check.
    Probe,
    /// A question for the position.
    Position,
    /// The delivery of a cancel request.
    Cancel,
}

/// What happened, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A session was opened.
    Opened(u64, Access),
    /// A method was called on a session, with its text where it has one.
    Called(u64, Point, String),
    /// The first byte of a statement left.
    HandedOver(u64, Point),
    /// A cancel request reached the session; whether it was busy.
    Cancelled(u64, bool),
    /// A session was closed.
    Closed(u64),
    /// A rule of the port was broken by its user.
    Misused(u64, &'static str),
}

/// How often what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Sessions opened.
    pub connects: u64,
    /// Statements given to run or open.
    pub statements: u64,
    /// Statements, begins and commits whose first byte left.
    pub handed_over: u64,
    /// Cancel requests delivered.
    pub cancels: u64,
    /// Cancel requests that reached a session which was doing nothing.
    pub idle_cancels: u64,
    /// Clean-ups begun.
    pub clean_ups: u64,
    /// Resets begun.
    pub resets: u64,
    /// BEGINs that reached the server.
    pub begins: u64,
    /// COMMITs that the server executed.
    pub commits: u64,
    /// ROLLBACKs that the server executed, also those by clean-up or close.
    pub rollbacks: u64,
    /// Sessions closed.
    pub closes: u64,
    /// Broken rules of the port.
    pub misuses: u64,
}

/// A session as the server sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionView {
    /// Its number, from 1.
    pub id: u64,
    /// How it was opened.
    pub access: Access,
    /// Whether the server holds an open transaction for it.
    pub in_transaction: bool,
    /// Whether the server is doing something for it.
    pub is_busy: bool,
}

pub(crate) struct State {
    dialect: Dialect,
    queues: HashMap<Point, VecDeque<Reply>>,
    defaults: HashMap<Point, Reply>,
    texts: Vec<(String, Reply)>,
    descriptions: Vec<(Describe, Description)>,
    probe: Result<Probe, SqlError>,
    position: Option<Position>,
    lineage: Lineage,
    yields: usize,
    next_session: u64,
    sessions: Vec<SessionView>,
    counts: Counts,
    log: VecDeque<Happened>,
}

impl State {
    fn note(&mut self, happened: Happened) {
        let counts = &mut self.counts;
        match &happened {
            Happened::Opened(..) => counts.connects += 1,
            Happened::Called(_, Point::Run | Point::Open, _) => counts.statements += 1,
            Happened::Called(_, Point::CleanUp, _) => counts.clean_ups += 1,
            Happened::Called(_, Point::Reset, _) => counts.resets += 1,
            Happened::Called(..) => {}
            Happened::HandedOver(_, point) => {
                counts.handed_over += 1;
                counts.begins += u64::from(*point == Point::Begin);
            }
            Happened::Cancelled(_, busy) => {
                counts.cancels += 1;
                counts.idle_cancels += u64::from(!busy);
            }
            Happened::Closed(_) => counts.closes += 1,
            Happened::Misused(..) => counts.misuses += 1,
        }
        if self.log.len() == LOG_MAX {
            self.log.pop_front();
        }
        self.log.push_back(happened);
    }

    fn session(&mut self, id: u64) -> Option<&mut SessionView> {
        self.sessions.iter_mut().find(|session| session.id == id)
    }

    fn reply(&mut self, point: Point, text: &str) -> Reply {
        if let Some(reply) = self.queues.get_mut(&point).and_then(VecDeque::pop_front) {
            return reply;
        }
        let by_text = matches!(point, Point::Run | Point::Open);
        let found = self
            .texts
            .iter()
            .find(|(part, _)| by_text && text.contains(part.as_str()));
        match found {
            Some((_, reply)) => reply.clone(),
            None => self.defaults.get(&point).cloned().unwrap_or_default(),
        }
    }
}

/// A driver whose every answer is scripted. Copies share the script. Without a script everything works at
/// once and gives empty answers.
#[derive(Clone)]
pub struct ScriptedDriver {
    state: Arc<Mutex<State>>,
}

impl ScriptedDriver {
    /// A driver of a dialect.
    pub fn new(dialect: Dialect) -> Self {
        let state = State {
            dialect,
            queues: HashMap::new(),
            defaults: HashMap::new(),
            texts: Vec::new(),
            descriptions: Vec::new(),
            probe: Ok(Probe::default()),
            position: None,
            lineage: Lineage {
                history: Some("scripted".to_owned()),
                ..Lineage::default()
            },
            yields: 0,
            next_session: 1,
            sessions: Vec::new(),
            counts: Counts::default(),
            log: VecDeque::new(),
        };
        ScriptedDriver {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// The next call at this point gets this reply; more than one queue up.
    pub fn next(&self, point: Point, reply: Reply) -> &Self {
        self.state
            .lock()
            .queues
            .entry(point)
            .or_default()
            .push_back(reply);
        self
    }

    /// Every call at this point without another reply gets this one.
    pub fn always(&self, point: Point, reply: Reply) -> &Self {
        self.state.lock().defaults.insert(point, reply);
        self
    }

    /// Every statement that contains `part` gets this reply, unless one is queued.
    pub fn on_text(&self, part: &str, reply: Reply) -> &Self {
        self.state.lock().texts.push((part.to_owned(), reply));
        self
    }

    /// Answers a question to the catalog.
    pub fn describes(&self, what: Describe, answer: Description) -> &Self {
        let mut state = self.state.lock();
        state.descriptions.retain(|(known, _)| *known != what);
        state.descriptions.push((what, answer));
        drop(state);
        self
    }

    /// What health checks give from now on.
    pub fn set_probe(&self, probe: Result<Probe, SqlError>) {
        self.state.lock().probe = probe;
    }

    /// Its position from now on.
    pub fn set_position(&self, position: Option<Position>) {
        self.state.lock().position = position;
    }

    /// Its history from now on; at first the same one for every scripted driver.
    pub fn set_lineage(&self, lineage: Lineage) {
        self.state.lock().lineage = lineage;
    }

    /// How often each step gives way to other tasks: makes await points where nothing waits.
    pub fn set_yields(&self, yields: usize) {
        self.state.lock().yields = yields;
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// What happened, in order; the oldest may be missing.
    pub fn log(&self) -> Vec<Happened> {
        self.state.lock().log.iter().cloned().collect()
    }

    /// The open sessions as the server sees them.
    pub fn sessions(&self) -> Vec<SessionView> {
        self.state.lock().sessions.clone()
    }
}

impl Driver for ScriptedDriver {
    fn dialect(&self) -> Dialect {
        self.state.lock().dialect
    }

    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>> {
        Box::pin(async move {
            let (reply, yields) = {
                let mut state = self.state.lock();
                (state.reply(Point::Connect, ""), state.yields)
            };
            reply.before(yields).await;
            tokio::time::sleep(reply.after).await;
            match reply.end {
                End::Hangs => std::future::pending().await,
                End::Fails(error) | End::Breaks(error) => return Err(error),
                End::Answers(_) => {}
            }
            let connection = ScriptedConnection::open(&self.state, access);
            Ok(Box::new(connection) as Box<dyn Connection>)
        })
    }

    fn address(&self) -> String {
        "scripted".to_owned()
    }
}

pub(crate) struct Cancelled {
    pub(crate) requested: Mutex<bool>,
    pub(crate) told: Notify,
}
