//! One session at the server.

mod answer;
mod port;
mod recovery;
mod stray;
mod undone;

use std::sync::Arc;

use mainstay_sql::{Access, Code, HandedOver, Lineage, Row, SqlError, Value};

use crate::cancel::MysqlCancel;
use crate::errors::{self, Context, Phase};
use crate::link::Link;
use crate::settings::MysqlSettings;
use crate::statement::{Prepared, Statements};
use crate::value::{Shape, check, check_count, execution};
use crate::verb::{Verb, admit};
use crate::wire::{Broken, Channel, Finished, Flavour, Greeting, Said, ServerError};

/// "This command is not supported in the prepared statement protocol yet".
const NOT_PREPARABLE: u16 = 1295;

pub(crate) struct Session {
    channel: Channel,
    link: Arc<Link>,
    /// Attached before anybody uses the session.
    canceller: Option<Arc<MysqlCancel>>,
    settings: Arc<MysqlSettings>,
    flavour: Flavour,
    access: Access,
    statements: Statements,
    open: Option<Open>,
    /// A method is running, or its future was dropped.
    in_doubt: bool,
    in_transaction: bool,
    /// A statement of the open transaction has committed what came before it, as DDL does, or may have, as
    /// a procedure.
    committed_early: bool,
    /// A statement of the open transaction has worked.
    has_done: bool,
    /// The server has rolled something of the open transaction back and said that rows of tables without
    /// transactions stay.
    has_left: bool,
    /// A statement that was prepared and is not kept yet.
    preparing: Option<u32>,
    /// Asked for once, where a commit is to be proven.
    pub(crate) lineage: Option<Lineage>,
    /// The longest command that the server takes.
    packet_max: usize,
}

/// A started statement whose rows are fetched in batches.
struct Open {
    shape: Arc<Shape>,
    started: Started,
    text: Box<str>,
    has_ended: bool,
}

/// How a statement was handed over.
#[derive(Clone, Copy)]
struct Started {
    verb: Verb,
    is_binary: bool,
}

impl Session {
    pub(crate) fn new(
        channel: Channel,
        greeting: &Greeting,
        access: Access,
        settings: Arc<MysqlSettings>,
    ) -> Self {
        Session {
            channel,
            link: Arc::new(Link::new()),
            canceller: None,
            flavour: greeting.flavour,
            access,
            statements: Statements::new(settings.statements_max),
            settings,
            open: None,
            in_doubt: false,
            in_transaction: false,
            committed_early: false,
            has_done: false,
            has_left: false,
            preparing: None,
            lineage: None,
            packet_max: 1 << 20,
        }
    }

    /// Makes a fresh session ours; gives what tells this run of the server from the next.
    pub(crate) async fn set_up(&mut self) -> Result<Option<u64>, SqlError> {
        self.make_ours(Phase::Connect).await?;
        let mut run = None;
        // The upper part of such a number is the server's id and the second in which it started.
        let asked = "SELECT CAST(@@max_allowed_packet AS CHAR), CAST(UUID_SHORT() >> 24 AS CHAR)";
        for row in self.rows_of(asked, Phase::Connect).await? {
            if let [Value::Text(packet_max), started] = row.as_slice() {
                self.packet_max = packet_max.parse().unwrap_or(self.packet_max);
                if let Value::Text(started) = started {
                    run = started.parse().ok();
                }
            }
        }
        Ok(run)
    }

    async fn make_ours(&mut self, phase: Phase) -> Result<(), SqlError> {
        let is_read_only = self.access == Access::ReadOnly;
        let text = self.settings.session_text(self.flavour, is_read_only);
        let finished = self.command(&text, phase).await?;
        match finished.commits_each() {
            true => Ok(()),
            false => Err(errors::misconfigured(
                "with the option autocommit off nothing would ever be committed; leave it out",
            )),
        }
    }

    pub(crate) fn attach(&mut self, canceller: MysqlCancel) {
        self.canceller = Some(Arc::new(canceller));
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    pub(crate) fn flavour(&self) -> Flavour {
        self.flavour
    }

    pub(crate) fn settings(&self) -> &MysqlSettings {
        &self.settings
    }

    /// Takes the session into use: waits for a cancel that is on its way, and takes away what it left
    /// behind at the server, so that it cannot hit what begins now.
    async fn enter(&mut self) -> Result<(), SqlError> {
        if self.in_doubt || self.open.as_ref().is_some_and(|open| !open.has_ended) {
            return Err(SqlError::internal(
                "the session was used before it was cleaned up",
            ));
        }
        let link = self.link.clone();
        let permit = match link.gate.try_acquire() {
            Ok(permit) => Some(permit),
            Err(_) => link.gate.acquire().await.ok(),
        };
        if self.is_gone() {
            return Err(self.gone());
        }
        self.in_doubt = true;
        self.open = None;
        if link.cancel_was_asked() {
            // Nothing of a statement has left.
            Box::pin(self.absorb_cancel()).await?;
        }
        link.set_busy(true);
        drop(permit);
        Ok(())
    }

    /// Whatever was running has ended.
    fn leave(&mut self) {
        self.link.set_busy(false);
        self.in_doubt = false;
    }

    fn is_gone(&self) -> bool {
        self.link.is_retired()
    }

    fn gone(&self) -> SqlError {
        let cause = self.link.cause().unwrap_or_else(|| "closed".into());
        let message = format!("the connection is closed: {cause}");
        let error = errors::lost(message, Phase::Before);
        match self.in_transaction {
            true => errors::transaction_lost(error),
            false => error,
        }
    }

    /// Names the end of the connection.
    fn broke(&self, broken: &Broken, phase: Phase) -> SqlError {
        let named = errors::broken(broken, phase);
        self.link.retire(named.failure().message.clone());
        match self.in_transaction && phase != Phase::Commit {
            true => errors::transaction_lost(named),
            false => named,
        }
    }

    /// Names an error of the server, and gives the session up if it ended with it.
    fn failed(&self, error: &ServerError, phase: Phase) -> SqlError {
        let context = Context {
            phase,
            flavour: self.flavour,
            cancel_asked: self.link.cancel_was_asked(),
            is_read_only: self.access == Access::ReadOnly,
        };
        let mut named = errors::answered(error, context);
        if self.committed_early && phase == Phase::Commit {
            // What came before in this transaction is there to stay.
            named.detail_mut().failure.sent = mainstay_engine::Sent::Maybe;
        }
        if !errors::ends_session(error, self.flavour) {
            return named;
        }
        self.link.retire(error.message.clone());
        match self.in_transaction && phase != Phase::Commit {
            true => errors::transaction_lost(named),
            false => named,
        }
    }

    /// Runs a command of the driver's own.
    async fn command(&mut self, text: &str, phase: Phase) -> Result<Finished, SqlError> {
        self.channel.query(text);
        self.finish(phase).await
    }

    /// Reads an answer without rows to its end.
    async fn finish(&mut self, phase: Phase) -> Result<Finished, SqlError> {
        let mut finished = Finished::default();
        while !self.channel.is_idle() {
            match self.channel.next().await {
                Ok(Said::Finished(end)) => finished = end,
                Ok(Said::Failed(error)) => return Err(self.failed(&error, phase)),
                Ok(_) => {}
                Err(broken) => return Err(self.broke(&broken, phase)),
            }
        }
        Ok(finished)
    }

    /// Rows of a plain text of the driver's own, which is not kept.
    pub(crate) async fn rows_of(&mut self, text: &str, phase: Phase) -> Result<Vec<Row>, SqlError> {
        self.channel.query(text);
        let mut rows = Vec::new();
        let mut shape: Option<Arc<Shape>> = None;
        while !self.channel.is_idle() {
            match self.channel.next().await {
                Ok(Said::Columns { count, .. }) => {
                    shape = Some(self.described(count, phase).await?);
                }
                Ok(Said::Row(packet)) => {
                    if let Some(shape) = &shape {
                        rows.push(shape.textual(&packet)?);
                    }
                }
                Ok(Said::Failed(error)) => return Err(self.failed(&error, phase)),
                Ok(_) => {}
                Err(broken) => return Err(self.broke(&broken, phase)),
            }
        }
        Ok(rows)
    }

    /// Reads the descriptions of so many columns.
    async fn described(&mut self, count: usize, phase: Phase) -> Result<Arc<Shape>, SqlError> {
        let mut definitions = Vec::with_capacity(count);
        while definitions.len() < count {
            let read = match self.channel.next().await {
                Ok(Said::Column(packet)) => self.channel.definition(&packet),
                Ok(Said::Failed(error)) => return Err(self.failed(&error, phase)),
                Ok(_) => continue,
                Err(broken) => Err(broken),
            };
            definitions.push(read.map_err(|broken| self.broke(&broken, phase))?);
        }
        Ok(Arc::new(Shape::of(&definitions, self.settings.is_utc())))
    }

    /// The columns that a text gives; it is not kept.
    pub(crate) async fn columns_of(
        &mut self,
        text: &str,
    ) -> Result<Arc<[mainstay_sql::Column]>, SqlError> {
        self.prepare(text).await?;
        let shape = self.statements.get(text).and_then(|it| it.shape.clone());
        if let Some(id) = self.statements.remove(text) {
            self.channel.close_statement(id);
        }
        Ok(shape.map_or_else(Arc::default, |shape| shape.columns.clone()))
    }

    /// Has the server parse a text, unless it has. Nothing is executed.
    async fn prepare(&mut self, text: &str) -> Result<(), SqlError> {
        if self.statements.get(text).is_some() {
            return Ok(());
        }
        // Rare and large: kept out of the future of every call.
        Box::pin(self.prepare_anew(text)).await
    }

    async fn prepare_anew(&mut self, text: &str) -> Result<(), SqlError> {
        let verb = admit(text)?;
        self.fits(text.len() + 1)?;
        self.channel.prepare(text);
        let mut prepared = Prepared {
            id: None,
            params: 0,
            verb,
            shape: None,
            is_undone: None,
        };
        let mut columns = 0;
        match self.channel.next().await {
            Ok(Said::Prepared {
                id,
                params,
                columns: described,
            }) => {
                self.preparing = Some(id);
                prepared.id = Some(id);
                prepared.params = params;
                columns = usize::from(described);
            }
            // It runs as plain text.
            Ok(Said::Failed(error)) if error.number == NOT_PREPARABLE => {}
            Ok(Said::Failed(error)) => return Err(self.failed(&error, Phase::Prepare)),
            Ok(_) => return Err(SqlError::internal("a prepare was not answered")),
            Err(broken) => return Err(self.broke(&broken, Phase::Prepare)),
        }
        if columns > 0 {
            prepared.shape = Some(self.described(columns, Phase::Prepare).await?);
        }
        self.finish(Phase::Prepare).await?;
        self.preparing = None;
        if let Some(left) = self.statements.insert(text, prepared) {
            self.channel.close_statement(left);
        }
        Ok(())
    }

    fn fits(&self, length: usize) -> Result<(), SqlError> {
        if length < self.packet_max {
            return Ok(());
        }
        Err(SqlError::caller(
            Code::BadValue,
            format!(
                "the statement with its values is {length} bytes long, and the server takes {}",
                self.packet_max
            ),
            "send less at once, or raise the server's max_allowed_packet",
        ))
    }

    /// Prepares, checks the parameters, hands over.
    async fn hand_over(
        &mut self,
        text: &str,
        params: &[Value],
        handed_over: HandedOver<'_>,
    ) -> Result<Started, SqlError> {
        check_count(params.len())?;
        self.prepare(text).await?;
        let Some(prepared) = self.statements.get(text) else {
            return Err(SqlError::internal("a prepared statement was lost"));
        };
        let (id, verb) = (prepared.id, prepared.verb);
        check(params, prepared.params, self.settings.is_utc())?;
        let Some(id) = id else {
            handed_over();
            self.channel.query(text);
            return Ok(Started {
                verb,
                is_binary: false,
            });
        };
        let packet = execution(id, params);
        self.fits(packet.len())?;
        handed_over();
        self.channel.execute(&packet);
        Ok(Started {
            verb,
            is_binary: true,
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // An idle session says goodbye; a busy one is cut off.
        if self.channel.is_idle() && !self.link.is_retired() {
            self.channel.say_goodbye();
        }
    }
}
