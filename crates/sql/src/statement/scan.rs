//! Walks over a parsed statement and notes what it touches.

use std::ops::ControlFlow;

use sqlparser::ast::{
    Expr, FromTable, ObjectName, Query, Select, Statement, TableFactor, TableObject, Visit, Visitor,
};

/// The name of a called function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FunctionName {
    /// Lower case, from the schema to the name.
    parts: Vec<String>,
}

impl FunctionName {
    fn of(name: &ObjectName) -> Self {
        let parts = name
            .0
            .iter()
            .map(|part| match part.as_ident() {
                Some(ident) => ident.value.to_lowercase(),
                None => part.to_string().to_lowercase(),
            })
            .collect();
        FunctionName { parts }
    }

    pub(super) fn last_part(&self) -> &str {
        self.parts.last().map_or("", String::as_str)
    }

    /// Whether it can only be one of the database's own.
    pub(super) fn may_be_built_in(&self) -> bool {
        match self.parts.as_slice() {
            [_] => true,
            [schema, _] => schema == "pg_catalog",
            _ => false,
        }
    }
}

/// What a statement touches.
#[derive(Debug, Default)]
pub(super) struct Scan {
    pub(super) functions: Vec<FunctionName>,
    pub(super) reads: Vec<String>,
    pub(super) writes: Vec<String>,
    /// A data-modifying part, a lock or SELECT INTO was found below the root.
    pub(super) changes: bool,
    depth: usize,
}

impl Scan {
    pub(super) fn of(statement: &Statement) -> Self {
        let mut scan = Scan::default();
        let _ = statement.visit(&mut scan);
        scan
    }

    fn note_written(&mut self, statement: &Statement) {
        match statement {
            Statement::Insert(insert) => {
                if let TableObject::TableName(name) = &insert.table {
                    self.writes.push(name.to_string());
                }
            }
            Statement::Update(update) => self.note_factor(&update.table.relation),
            Statement::Delete(delete) => {
                self.writes
                    .extend(delete.tables.iter().map(ToString::to_string));
                let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) =
                    &delete.from;
                for table in tables {
                    self.note_factor(&table.relation);
                }
            }
            Statement::Merge(merge) => self.note_factor(&merge.table),
            _ => {}
        }
    }

    fn note_factor(&mut self, table: &TableFactor) {
        if let TableFactor::Table { name, .. } = table {
            self.writes.push(name.to_string());
        }
    }
}

impl Visitor for Scan {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        if self.depth > 0 {
            self.changes = true;
        }
        self.depth += 1;
        self.note_written(statement);
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        if !query.locks.is_empty() {
            self.changes = true;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if select.into.is_some() {
            self.changes = true;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.reads.push(relation.to_string());
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table {
                name,
                args: Some(_),
                ..
            }
            | TableFactor::Function { name, .. } => self.functions.push(FunctionName::of(name)),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr {
            self.functions.push(FunctionName::of(&function.name));
        }
        ControlFlow::Continue(())
    }
}
