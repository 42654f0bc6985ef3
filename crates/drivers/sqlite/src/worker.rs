//! The thread that a connection owns: takes one job after the other until the connection is dropped.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use mainstay_engine::{Category, Failure, Sent};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::{Access, Answer, AnswerMax, Batch, BatchMax, Code, Column, Probe, SqlError};
use tokio::sync::oneshot;

use crate::error::{self, Fault, Stage};
use crate::interrupt::Gate;
use crate::left::Stay;
use crate::session::Session;
use crate::settings::SqliteSettings;
use crate::statement::{Cursor, Ready};
use crate::value::Param;

/// One job runs, and behind it waits at most the clean-up after a caller that left.
const JOBS_MAX: usize = 2;

/// Where an answer goes.
pub(crate) type Reply<T> = oneshot::Sender<Result<T, SqlError>>;

/// One request with its number at the gate.
pub(crate) struct Job {
    pub(crate) number: u64,
    pub(crate) task: Task,
}

/// A statement on its way to the worker.
pub(crate) struct Text {
    pub(crate) text: Box<str>,
    pub(crate) params: Vec<Param>,
}

/// What is asked for.
pub(crate) enum Task {
    Run(Text, AnswerMax, Reply<Answer>),
    Open(Text, Reply<Arc<[Column]>>),
    Next(BatchMax, Reply<Option<Batch>>),
    Step(Step, Reply<()>),
    Describe(Describe, Reply<Description>),
    Probe(Reply<Probe>),
}

/// A request without an answer of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    Check,
    Reset,
    Begin(Access),
    Commit,
    /// Also the clean-up after a caller that left: its job has ended when this one is taken.
    Rollback,
}

/// Starts a worker; `opened` hears whether it could open the file.
pub(crate) fn start(
    settings: Arc<SqliteSettings>,
    access: Access,
    ending: Ending,
    number: u64,
    opened: Reply<()>,
) -> Result<SyncSender<Job>, SqlError> {
    let (sender, jobs) = sync_channel(JOBS_MAX);
    let work = move || serve(settings, access, ending, number, opened, &jobs);
    let thread = std::thread::Builder::new().name("mainstay-sqlite".into());
    thread.spawn(work).map_err(|error| no_thread(&error))?;
    Ok(sender)
}

fn no_thread(error: &std::io::Error) -> SqlError {
    let message = format!("no thread for a connection: {error}");
    let failure = Failure::new(Category::Saturation, message).sent(Sent::No);
    SqlError::new(Code::AttemptsFailed, failure)
        .hint("raise the limit of threads, or lower active_max")
}

fn serve(
    settings: Arc<SqliteSettings>,
    access: Access,
    ending: Ending,
    number: u64,
    opened: Reply<()>,
    jobs: &Receiver<Job>,
) {
    if !ending.gate.start(number) {
        return;
    }
    let session = Session::open(settings, access, Arc::clone(&ending.gate));
    ending.gate.finish(number);
    let session = match session {
        Ok(session) => session,
        Err(fault) => {
            // A caller that left needs no answer.
            let _ = opened.send(Err(fault.error));
            return;
        }
    };
    if opened.send(Ok(())).is_err() {
        return;
    }
    let mut worker = Worker { session, jobs };
    let mut next = None;
    while let Some(job) = next.take().or_else(|| jobs.recv().ok()) {
        next = worker.take(job);
    }
}

/// Marks the session as gone on every way out of the thread, a panic included.
pub(crate) struct Ending {
    gate: Arc<Gate>,
    stay: Arc<Stay>,
}

impl Ending {
    pub(crate) fn new(gate: Arc<Gate>, stay: Arc<Stay>) -> Self {
        Ending { gate, stay }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.gate.break_off();
        self.stay.end();
    }
}

struct Worker<'j> {
    session: Session,
    jobs: &'j Receiver<Job>,
}

impl Worker<'_> {
    /// Does one job. A stream ends with the first job that is not its own, which is given back.
    fn take(&mut self, job: Job) -> Option<Job> {
        let number = job.number;
        match job.task {
            Task::Run(Text { text, params }, max, reply) => {
                self.answer(number, reply, |session| session.run(&text, &params, max));
            }
            Task::Open(text, reply) => return self.stream(number, &text, reply),
            Task::Next(_, reply) => {
                self.answer(number, reply, |_| Err(no_stream().into()));
            }
            Task::Step(Step::Reset, reply) => self.reset(number, reply),
            Task::Step(step, reply) => {
                self.answer(number, reply, |session| match step {
                    Step::Begin(access) => session.begin(access),
                    Step::Commit => session.commit(),
                    Step::Rollback => session.rollback(),
                    Step::Check | Step::Reset => session.check(),
                });
            }
            Task::Describe(what, reply) => {
                self.answer(number, reply, |session| session.describe(&what));
            }
            Task::Probe(reply) => self.answer(number, reply, Session::probe),
        }
        None
    }

    fn answer<T>(
        &self,
        number: u64,
        reply: Reply<T>,
        work: impl FnOnce(&Session) -> Result<T, Fault>,
    ) {
        if let Some(reply) = begin(&self.session.gate, number, reply) {
            let result = settle(&self.session, work(&self.session));
            end(&self.session.gate, number, reply, result);
        }
    }

    fn reset(&mut self, number: u64, reply: Reply<()>) {
        let gate = Arc::clone(&self.session.gate);
        if let Some(reply) = begin(&gate, number, reply) {
            let result = self.session.reset();
            let result = settle(&self.session, result);
            end(&gate, number, reply, result);
        }
    }

    /// Serves the batches of one statement. Nothing is stepped ahead of what was asked for.
    fn stream(&self, number: u64, text: &Text, reply: Reply<Arc<[Column]>>) -> Option<Job> {
        let session = &self.session;
        let gate = &session.gate;
        let reply = begin(gate, number, reply)?;
        let Ready {
            mut statement,
            stage,
        } = match session.prepare(&text.text, &text.params) {
            Ok(ready) => ready,
            Err(fault) => {
                let result = settle(session, Err(fault));
                end(gate, number, reply, result);
                return None;
            }
        };
        let mut cursor = Cursor::new(session, &text.text, statement.raw_query(), stage);
        let columns = cursor.start();
        let has_failed = columns.is_err();
        end(gate, number, reply, settle(session, columns));
        match has_failed {
            true => None,
            false => self.batches(&mut cursor),
        }
    }

    fn batches(&self, cursor: &mut Cursor<'_>) -> Option<Job> {
        let gate = &self.session.gate;
        loop {
            let (number, max, reply) = match self.jobs.recv().ok()? {
                Job {
                    number,
                    task: Task::Next(max, reply),
                } => (number, max, reply),
                other => return Some(other),
            };
            let reply = begin(gate, number, reply)?;
            let batch = settle(&self.session, cursor.batch(max));
            let goes_on = matches!(batch, Ok(Some(_)));
            end(gate, number, reply, batch);
            if !goes_on {
                return None;
            }
        }
    }
}

/// Starts a job, unless its caller has left or it was cancelled while it waited.
fn begin<T>(gate: &Gate, number: u64, reply: Reply<T>) -> Option<Reply<T>> {
    let is_wanted = !reply.is_closed();
    if is_wanted && gate.start(number) {
        return Some(reply);
    }
    end(gate, number, reply, Err(error::cancelled(Stage::Statement)));
    None
}

/// Ends a job before its answer is given: a cancellation that comes after the answer finds no job.
fn end<T>(gate: &Gate, number: u64, reply: Reply<T>, result: Result<T, SqlError>) {
    gate.finish(number);
    // A caller that left needs no answer.
    let _ = reply.send(result);
}

/// What an error means for the session.
fn settle<T>(session: &Session, result: Result<T, Fault>) -> Result<T, SqlError> {
    let result = session.confirm(result);
    let refused = session.guard.take();
    result.map_err(|fault| {
        if fault.is_fatal {
            session.gate.break_off();
        }
        if let Some(refused) = refused {
            return refused;
        }
        match fault.is_busy && session.gate.is_cancelled() {
            true => error::cancelled(Stage::Statement),
            false => fault.error,
        }
    })
}

fn no_stream() -> SqlError {
    error::conflict("no statement is open", "open one first")
}
