//! One session at the server.

mod port;
mod stray;

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use mainstay_engine::Sent;
use mainstay_sql::{
    Access, Answer, AnswerMax, Batch, BatchMax, Code, Collected, HandedOver, Lineage, Row,
    SqlError, Value, Verdict,
};
use tokio::task::JoinHandle;
use tokio_postgres::{Client, RowStream};

use crate::cancel::PostgresCancel;
use crate::encode::{self, Param};
use crate::errors::{self, Phase};
use crate::link::Link;
use crate::statement::{PrepareError, Prepared, Statements, admit};

/// How long a cancelled statement may take to end before it is cancelled again.
const CANCEL_AGAIN: Duration = Duration::from_millis(500);
/// After that many cancels the session is given up.
const CANCELS_MAX: u32 = 4;
/// A prepare that was dropped half way leaves a statement at the server; so many may be left.
const ORPHANS_MAX: u32 = 16;

/// What `reset` undoes. `DISCARD ALL` would also take the prepared statements away.
const RESET: &str = "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; \
     SELECT pg_advisory_unlock_all(); DISCARD TEMP; DISCARD SEQUENCES";

pub(crate) struct Session {
    client: Client,
    link: Arc<Link>,
    canceller: Arc<PostgresCancel>,
    mover: JoinHandle<()>,
    access: Access,
    statements: Statements,
    open: Option<Open>,
    /// A method is running, or its future was dropped.
    in_doubt: bool,
    in_transaction: bool,
    /// A prepare is under way.
    preparing: bool,
    orphans: u32,
    /// The caller made statements of its own (`PREPARE`).
    has_named: bool,
    /// Asked for once, where a commit is to be proven.
    pub(crate) lineage: Option<Lineage>,
    /// The user may not read what the full probe asks for.
    pub(crate) probes_little: bool,
}

/// A started statement whose rows are fetched in batches; without a stream it has ended.
struct Open {
    prepared: Arc<Prepared>,
    stream: Option<Pin<Box<RowStream>>>,
    text: Box<str>,
}

impl Session {
    pub(crate) fn new(
        client: Client,
        canceller: PostgresCancel,
        mover: JoinHandle<()>,
        access: Access,
        statements_max: usize,
    ) -> Self {
        Session {
            client,
            link: canceller.link().clone(),
            statements: Statements::new(statements_max),
            canceller: Arc::new(canceller),
            mover,
            access,
            open: None,
            in_doubt: false,
            in_transaction: false,
            preparing: false,
            orphans: 0,
            has_named: false,
            lineage: None,
            probes_little: false,
        }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Takes the session into use: waits for a cancel that is on its way, so that it cannot hit what
    /// begins now.
    pub(crate) async fn enter(&mut self) -> Result<(), SqlError> {
        if self.in_doubt || self.open.as_ref().is_some_and(|o| o.stream.is_some()) {
            return Err(SqlError::internal(
                "the session was used before it was cleaned up",
            ));
        }
        let permit = match self.link.gate.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => self.link.gate.acquire().await.ok(),
        };
        if self.is_gone() {
            return Err(self.gone());
        }
        self.link.forget();
        self.link.set_busy(true);
        drop(permit);
        self.open = None;
        self.in_doubt = true;
        Ok(())
    }

    /// Whatever was running has ended.
    pub(crate) fn leave(&mut self) {
        self.link.set_busy(false);
        self.in_doubt = false;
    }

    fn is_gone(&self) -> bool {
        self.client.is_closed() || self.link.is_retired()
    }

    fn gone(&self) -> SqlError {
        let cause = self.link.cause().unwrap_or_else(|| "closed".into());
        let error = errors::lost(
            format!("the connection is closed: {cause}"),
            Phase::Before,
            None,
        );
        if self.in_transaction {
            errors::transaction_lost(error)
        } else {
            error
        }
    }

    /// Names an error, and gives the session up if it ended with it.
    pub(crate) fn failed(&self, error: &tokio_postgres::Error, phase: Phase) -> SqlError {
        let ends = errors::ends_session(error);
        let named = errors::named(
            error,
            phase,
            self.link.cancel_was_asked(),
            self.link.cause().as_deref(),
        );
        if !ends {
            return named;
        }
        self.link.retire(named.failure().message.clone());
        if self.in_transaction && phase != Phase::Commit {
            errors::transaction_lost(named)
        } else {
            named
        }
    }

    async fn prepared(&mut self, text: &str) -> Result<Arc<Prepared>, SqlError> {
        match self.statements.get(text) {
            Some(prepared) => Ok(prepared),
            // Rare and large: kept out of the future of every call.
            None => Box::pin(self.prepare(text)).await,
        }
    }

    async fn prepare(&mut self, text: &str) -> Result<Arc<Prepared>, SqlError> {
        let verb = admit(text)?;
        self.preparing = true;
        let made = Prepared::make(&self.client, text, verb).await;
        self.preparing = false;
        match made {
            Ok(prepared) => {
                let prepared = Arc::new(prepared);
                self.statements.insert(text, prepared.clone());
                Ok(prepared)
            }
            Err(PrepareError::Driver(error)) => Err(error),
            Err(PrepareError::Server(error)) => Err(self.failed(&error, Phase::Prepare)),
        }
    }

    /// Prepares, checks the parameters, hands over.
    async fn start(
        &mut self,
        text: &str,
        params: &[Value],
        handed_over: HandedOver<'_>,
    ) -> Result<(Arc<Prepared>, RowStream), SqlError> {
        encode::check_count(params.len())?;
        let prepared = self.prepared(text).await?;
        encode::check(params, prepared.statement.params())?;
        self.has_named |= prepared.verb.prepares;
        handed_over();
        match self
            .client
            .query_raw(&prepared.statement, params.iter().map(Param))
            .await
        {
            Ok(stream) => Ok((prepared, stream)),
            Err(error) => Err(self.stopped(&error, &prepared, text)),
        }
    }

    /// An error of a statement that was handed over. A stale one is forgotten, so that it is prepared
    /// again next time.
    fn stopped(
        &mut self,
        error: &tokio_postgres::Error,
        prepared: &Prepared,
        text: &str,
    ) -> SqlError {
        let named = self.failed(error, run_phase(prepared));
        if named.detail().verdict == Verdict::PrepareAgain {
            self.statements.remove(text);
        }
        named
    }

    async fn collect(
        &mut self,
        text: &str,
        params: &[Value],
        max: AnswerMax,
        handed_over: HandedOver<'_>,
    ) -> Result<Answer, SqlError> {
        let (prepared, stream) = self.start(text, params, handed_over).await?;
        let mut stream = pin!(stream);
        let (mut rows, mut collected) = (Vec::new(), Collected::default());
        while let Some(row) = stream
            .try_next()
            .await
            .map_err(|e| self.stopped(&e, &prepared, text))?
        {
            let added = prepared.decode(&row).and_then(|values| {
                max.add(&mut collected, &values)?;
                rows.push(values);
                Ok(())
            });
            if let Err(problem) = added {
                return Err(Box::pin(self.give_up(stream, problem)).await);
            }
        }
        self.check_replicated()?;
        Ok(Answer {
            columns: prepared.columns.clone(),
            rows,
            affected: stream.rows_affected().filter(|_| prepared.verb.counts),
            keys: Vec::new(),
            results: Vec::new(),
            meta: Box::default(),
        })
    }

    /// The driver does not want the rest: stops the server, waits for its end, and says by it whether the
    /// statement took effect.
    async fn give_up(&self, mut stream: Pin<&mut RowStream>, mut problem: SqlError) -> SqlError {
        self.canceller.stop().await;
        let end = loop {
            match stream.try_next().await {
                Ok(Some(_)) => {}
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        problem.detail_mut().failure.sent = match end {
            Some(error) => self.failed(&error, Phase::Run { is_atomic: true }).sent(),
            None => Sent::Maybe,
        };
        problem
    }

    fn check_replicated(&self) -> Result<(), SqlError> {
        if self.link.replication_wait_was_cancelled() {
            Err(errors::not_replicated())
        } else {
            Ok(())
        }
    }

    /// Rows of a query of the driver's own, which changes nothing. Only between `enter` and `leave`.
    pub(crate) async fn ask(&mut self, text: &str, params: &[Value]) -> Result<Vec<Row>, SqlError> {
        let answer = self
            .collect(text, params, AnswerMax::default(), &|| {})
            .await;
        answer.map(|answer| answer.rows).map_err(harmless)
    }

    /// Runs a command of the driver's own.
    async fn command(&mut self, text: &str, phase: Phase) -> Result<(), SqlError> {
        self.client
            .batch_execute(text)
            .await
            .map_err(|e| self.failed(&e, phase))
    }

    async fn fetch(&mut self, max: BatchMax) -> Result<Option<Batch>, SqlError> {
        let Some(open) = self.open.as_mut() else {
            return Err(SqlError::internal(
                "there is no started statement to fetch from",
            ));
        };
        let Some(stream) = open.stream.as_mut() else {
            self.open = None;
            return Ok(None);
        };
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while rows.len() < max.rows.max(1) && bytes < max.bytes.max(1) {
            match stream.try_next().await {
                Ok(Some(row)) => {
                    bytes += row.raw_size_bytes();
                    match open.prepared.decode(&row) {
                        Ok(values) => rows.push(values),
                        Err(problem) => return Err(Box::pin(self.abandon(problem)).await),
                    }
                }
                Ok(None) => {
                    open.stream = None;
                    break;
                }
                Err(error) => {
                    let (prepared, text) = (open.prepared.clone(), open.text.clone());
                    self.open = None;
                    return Err(self.stopped(&error, &prepared, &text));
                }
            }
        }
        if open.stream.is_none() {
            self.check_replicated()?;
        }
        if rows.is_empty() {
            self.open = None;
            return Ok(None);
        }
        Ok(Some(Batch { rows }))
    }

    /// The started statement cannot be read any further.
    async fn abandon(&mut self, problem: SqlError) -> SqlError {
        match self.open.take().and_then(|open| open.stream) {
            Some(mut stream) => self.give_up(stream.as_mut(), problem).await,
            None => problem,
        }
    }

    /// Cancels until the server has answered everything that was sent.
    async fn drain(&self) -> Result<(), SqlError> {
        let mut drained = pin!(self.client.check_connection());
        self.canceller.stop().await;
        for _ in 0..CANCELS_MAX {
            match tokio::time::timeout(CANCEL_AGAIN, &mut drained).await {
                Ok(result) => return result.map_err(|e| self.failed(&e, Phase::Control)),
                // It had not been sent yet when the cancel arrived, or does not notice.
                Err(_) => self.canceller.stop().await,
            }
        }
        self.link.retire("the server did not stop");
        Err(self.gone())
    }

    async fn clean(&mut self) -> Result<(), SqlError> {
        if std::mem::take(&mut self.preparing) {
            self.orphans += 1;
        }
        let was_running = self.in_doubt || self.open.as_ref().is_some_and(|o| o.stream.is_some());
        self.open = None;
        self.in_doubt = true;
        if self.is_gone() || self.orphans > ORPHANS_MAX {
            self.link
                .retire("too many statements were left half prepared");
            return Err(self.gone());
        }
        if was_running {
            self.drain().await?;
        }
        // A cancel of the caller's may still be on its way; from here on there is nothing for it to hit.
        let link = self.link.clone();
        let permit = link.gate.acquire().await;
        link.set_busy(false);
        drop(permit);
        // Outside a transaction it is a warning; either way the session is idle afterwards.
        self.command("ROLLBACK", Phase::Control).await?;
        self.in_transaction = false;
        self.leave();
        Ok(())
    }

    async fn restore(&mut self) -> Result<(), SqlError> {
        self.command(RESET, Phase::Control).await?;
        if std::mem::take(&mut self.has_named) {
            let named = "SELECT name FROM pg_prepared_statements WHERE from_sql";
            for row in self.ask(named, &[]).await? {
                if let [Value::Text(name)] = row.as_slice() {
                    let command = format!("DEALLOCATE \"{}\"", name.replace('"', "\"\""));
                    self.command(&command, Phase::Control).await?;
                }
            }
        }
        Ok(())
    }

    async fn end_transaction(&mut self, handed_over: HandedOver<'_>) -> Result<(), SqlError> {
        handed_over();
        // In a transaction that an error has ended COMMIT would quietly roll back; the empty SELECT is
        // refused there, so that it is never reached.
        let ended = self.command("SELECT; COMMIT", Phase::Commit).await;
        self.in_transaction = false;
        let Err(mut error) = ended else {
            return self.check_replicated();
        };
        if error.sent() == Sent::Maybe {
            error.detail_mut().code = Code::OutcomeUnknown;
        }
        if !self.is_gone() {
            // The refused SELECT left the transaction open. Whatever comes of the ROLLBACK: the error of COMMIT
            // alone says what is known. A session that did not answer is given up by that.
            let _ = self.command("ROLLBACK", Phase::Control).await;
        }
        Err(error)
    }
}

fn run_phase(prepared: &Prepared) -> Phase {
    Phase::Run {
        is_atomic: prepared.verb.is_atomic,
    }
}

fn harmless(mut error: SqlError) -> SqlError {
    if error.sent() == Sent::Maybe {
        error.detail_mut().failure.sent = Sent::YesUnprocessed;
    }
    error
}

impl Drop for Session {
    fn drop(&mut self) {
        // An idle session says goodbye; a busy one would first read all that the server still has to say.
        if self.link.is_busy() {
            self.mover.abort();
        }
    }
}
