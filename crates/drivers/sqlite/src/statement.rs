//! Running one statement on the worker.

use std::sync::Arc;

use mainstay_engine::Sent;
use mainstay_sql::{Answer, AnswerMax, Batch, BatchMax, Collected, Column, Row, Value};
use rusqlite::{CachedStatement, Rows, Statement};

use crate::error::{self, Fault, Stage, fault};
use crate::plan::{self, Plan, Verb};
use crate::session::{Session, Tx};
use crate::value::{self, Param};

/// A prepared statement with its parameters bound.
pub(crate) struct Ready<'s> {
    pub(crate) statement: CachedStatement<'s>,
    pub(crate) stage: Stage,
}

impl Session {
    /// Prepares a statement and binds its parameters.
    pub(crate) fn prepare(&self, text: &str, params: &[Param]) -> Result<Ready<'_>, Fault> {
        if self.tx.get() == Tx::Lost {
            return Err(error::transaction_lost().into());
        }
        // A transaction goes on with what it has begun on.
        if self.connection.is_autocommit() && self.gate.is_file_gone_lately() {
            return Err(error::moved(Stage::Statement));
        }
        let prepare = || self.connection.prepare_cached(text);
        let prepared = self.guard.preparing(prepare);
        let mut statement = prepared.map_err(|error| fault(Stage::Statement, &error))?;
        let stage = self.stage(text, &statement);
        if stage == Stage::Autocommit {
            self.check_file(stage)?;
        }
        bind(&mut statement, params)?;
        Ok(Ready { statement, stage })
    }

    /// What an error of the statement will prove.
    fn stage(&self, text: &str, statement: &Statement<'_>) -> Stage {
        match plan::verb(text) {
            Verb::Commit => Stage::Autocommit,
            _ if statement.readonly() || !self.connection.is_autocommit() => Stage::Statement,
            _ => Stage::Autocommit,
        }
    }

    /// Runs a statement and collects its answer.
    pub(crate) fn run(
        &self,
        text: &str,
        params: &[Param],
        max: AnswerMax,
    ) -> Result<Answer, Fault> {
        let Ready {
            mut statement,
            stage,
        } = self.prepare(text, params)?;
        let changes = !statement.readonly();
        let mut cursor = Cursor::new(self, text, statement.raw_query(), stage);
        let rows = collect(&mut cursor, max, changes)?;
        let columns = cursor.columns.take();
        drop(cursor);
        let plan = match columns {
            Some(columns) if !changes => return Ok(answer(columns, rows)),
            _ => self.plan(text, &statement)?,
        };
        let mut answer = answer(Arc::clone(&plan.columns), rows);
        if changes {
            self.count(&plan, &mut answer);
        }
        Ok(answer)
    }

    /// What was changed and which key the change made.
    fn count(&self, plan: &Plan, answer: &mut Answer) {
        if !matches!(plan.verb, Verb::Insert | Verb::Change) {
            // It may have changed the schema, and with it what the plans say about keys.
            self.plans.borrow_mut().clear();
            return;
        }
        let changed = self.connection.changes();
        answer.affected = Some(changed);
        if plan.gives_key && changed == 1 {
            answer.keys = vec![Value::I64(self.connection.last_insert_rowid())];
        }
    }

    /// The plan of a statement that has been stepped: before, its columns may be those of an old schema.
    fn plan(&self, text: &str, statement: &Statement<'_>) -> Result<Plan, Fault> {
        if let Some(plan) = self.plans.borrow().get(text, statement) {
            return Ok(plan.clone());
        }
        let verb = plan::verb(text);
        let gives_key = match (verb, plan::insert_target(text)) {
            (Verb::Insert, Some(table)) if !statement.readonly() => self.has_key(&table)?,
            _ => false,
        };
        let plan = Plan {
            verb,
            columns: plan::columns(statement),
            gives_key,
        };
        self.plans.borrow_mut().put(text, plan.clone());
        Ok(plan)
    }

    /// Whether the table has an INTEGER PRIMARY KEY: a primary key of one column without an index of its own,
    /// in a table with row numbers. Two tables of that name, one of them temporary: not known.
    fn has_key(&self, table: &str) -> Result<bool, Fault> {
        let text = "SELECT count(*) FROM pragma_table_list(?1) AS t, pragma_table_info(?1) AS c \
                    WHERE t.type = 'table' AND t.wr = 0 AND c.pk > 0 AND NOT EXISTS \
                    (SELECT 1 FROM pragma_index_list(?1) AS i WHERE i.origin = 'pk')";
        self.connection
            .prepare_cached(text)
            .and_then(|mut statement| statement.query_row([table], |row| row.get::<_, i64>(0)))
            .map(|count| count == 1)
            .map_err(|error| fault(Stage::Statement, &error))
    }
}

fn bind(statement: &mut Statement<'_>, params: &[Param]) -> Result<(), Fault> {
    let expected = statement.parameter_count();
    if expected != params.len() {
        let message = format!(
            "parameters: the statement takes {expected} and got {}",
            params.len()
        );
        return Err(error::refused(message, "give one value for each placeholder").into());
    }
    for (index, param) in params.iter().enumerate() {
        statement
            .raw_bind_parameter(index + 1, param)
            .map_err(|error| fault(Stage::Statement, &error))?;
    }
    Ok(())
}

/// All rows within the bounds. A read is left as soon as its answer is too large; a change is carried to its
/// end first, so that what the error says about it is true.
fn collect(cursor: &mut Cursor<'_>, max: AnswerMax, changes: bool) -> Result<Vec<Row>, Fault> {
    let mut rows = Vec::new();
    let mut collected = Collected::default();
    let mut refusal = None;
    while let Some(row) = cursor.next()? {
        if refusal.is_some() {
            continue;
        }
        match max.add(&mut collected, &row) {
            Ok(()) => rows.push(row),
            Err(error) if changes => refusal = Some(error),
            Err(mut error) => {
                error.detail_mut().failure.sent = Sent::YesUnprocessed;
                return Err(error.into());
            }
        }
    }
    match refusal {
        None => Ok(rows),
        Some(error) => Err(error
            .hint("the statement was carried out; only its answer is too large")
            .into()),
    }
}

fn answer(columns: Arc<[Column]>, rows: Vec<Row>) -> Answer {
    Answer {
        columns,
        rows,
        ..Answer::default()
    }
}

/// The rows of a running statement.
pub(crate) struct Cursor<'s> {
    session: &'s Session,
    text: &'s str,
    rows: Rows<'s>,
    stage: Stage,
    /// Known from the first row on.
    pub(crate) columns: Option<Arc<[Column]>>,
    /// A row that was stepped already.
    ahead: Option<Row>,
    has_ended: bool,
}

impl<'s> Cursor<'s> {
    pub(crate) fn new(session: &'s Session, text: &'s str, rows: Rows<'s>, stage: Stage) -> Self {
        Cursor {
            session,
            text,
            rows,
            stage,
            columns: None,
            ahead: None,
            has_ended: false,
        }
    }

    /// Steps to the first row, so that errors come now and the columns are those of the present schema.
    pub(crate) fn start(&mut self) -> Result<Arc<[Column]>, Fault> {
        let columns = match self.rows.as_ref() {
            Some(statement) => plan::columns(statement),
            None => Arc::from([]),
        };
        self.ahead = self.next()?;
        Ok(Arc::clone(self.columns.get_or_insert(columns)))
    }

    /// The next rows, at least one; `None` at the end.
    pub(crate) fn batch(&mut self, max: BatchMax) -> Result<Option<Batch>, Fault> {
        let mut rows = Vec::new();
        let mut bytes = 0;
        while rows.len() < max.rows.max(1) && (rows.is_empty() || bytes < max.bytes) {
            let Some(row) = self.next()? else { break };
            bytes += row.iter().map(Value::size).sum::<usize>();
            rows.push(row);
        }
        Ok((!rows.is_empty()).then_some(Batch { rows }))
    }

    pub(crate) fn next(&mut self) -> Result<Option<Row>, Fault> {
        if let Some(row) = self.ahead.take() {
            return Ok(Some(row));
        }
        if self.has_ended {
            return Ok(None);
        }
        let stepped = self.rows.next();
        let Some(row) = stepped.map_err(|error| fault(self.stage, &error))? else {
            self.has_ended = true;
            return Ok(None);
        };
        if self.columns.is_none() {
            self.columns = Some(self.session.plan(self.text, row.as_ref())?.columns);
        }
        let columns = self.columns.iter().flat_map(|columns| columns.iter());
        let mut values = Row::with_capacity(columns.size_hint().0);
        for (index, column) in columns.enumerate() {
            let held = row
                .get_ref(index)
                .map_err(|error| fault(self.stage, &error))?;
            values.push(value::read(held, &column.column_type));
        }
        Ok(Some(values))
    }
}
