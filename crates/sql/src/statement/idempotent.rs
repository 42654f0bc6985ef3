//! Which writes have twice the effect of once. Only what can be shown from the text counts.

use sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, ConflictTarget, Delete, DoUpdate, Expr,
    FromTable, Insert, ObjectName, OnConflictAction, OnInsert, SetExpr, Statement, TableFactor,
    TableObject, UnaryOperator, Value,
};

use super::DeleteBy;

/// An INSERT of constants whose unique key is among them, and which on conflict does nothing or sets
/// columns to what it would have inserted.
///
/// `SET n = n + 1` is none, and neither is `SET n = 5` beside an inserted 3: the first run would leave
/// 3, the second 5. A key column that is not inserted may get a new value from its default each time. A
/// NULL among the values defeats the key; parameters are looked at when they are known.
pub(super) fn is_upsert(insert: &Insert) -> bool {
    let Some(OnInsert::OnConflict(conflict)) = &insert.on else {
        return false;
    };
    let Some(ConflictTarget::Columns {
        columns: keys,
        predicate: None,
    }) = &conflict.conflict_target
    else {
        return false;
    };
    let plain = insert.or.is_none()
        && !insert.ignore
        && !insert.replace_into
        && matches!(insert.table, TableObject::TableName(_));
    let columns: Vec<String> = insert.columns.iter().filter_map(single).collect();
    let all_keys_inserted = !keys.is_empty()
        && keys
            .iter()
            .all(|key| columns.contains(&key.value.to_lowercase()));
    plain && all_keys_inserted && inserts_constants(insert) && {
        match &conflict.action {
            // RETURNING gives the row the first time and nothing the second.
            OnConflictAction::DoNothing => insert.returning.is_none(),
            OnConflictAction::DoUpdate(update) => repeats_inserted(update, &columns),
        }
    }
}

fn single(name: &ObjectName) -> Option<String> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(|ident| ident.value.to_lowercase()),
        _ => None,
    }
}

fn inserts_constants(insert: &Insert) -> bool {
    let Some(source) = &insert.source else {
        return false;
    };
    let SetExpr::Values(values) = source.body.as_ref() else {
        return false;
    };
    source.with.is_none()
        && values.rows.iter().all(|row| {
            row.content.len() == insert.columns.len() && row.content.iter().all(is_constant)
        })
}

fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => !matches!(value.value, Value::Null),
        Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr,
        }
        | Expr::Cast { expr, .. }
        | Expr::Nested(expr) => is_constant(expr),
        Expr::TypedString(_) => true,
        _ => false,
    }
}

/// Every assignment is `column = excluded.column` of a column that was inserted.
fn repeats_inserted(update: &DoUpdate, columns: &[String]) -> bool {
    update.selection.is_none()
        && update
            .assignments
            .iter()
            .all(|assignment| repeats_one(assignment, columns))
}

fn repeats_one(assignment: &Assignment, columns: &[String]) -> bool {
    let AssignmentTarget::ColumnName(target) = &assignment.target else {
        return false;
    };
    let (Some(target), Expr::CompoundIdentifier(parts)) = (single(target), &assignment.value)
    else {
        return false;
    };
    let [table, column] = parts.as_slice() else {
        return false;
    };
    table.value.eq_ignore_ascii_case("excluded")
        && column.value.to_lowercase() == target
        && columns.contains(&target)
}

/// The columns of a DELETE whose condition is equalities with constants and nothing else.
pub(super) fn delete_by(statement: &Statement) -> Option<DeleteBy> {
    let Statement::Delete(delete) = statement else {
        return None;
    };
    let entity = only_table(delete)?;
    let mut columns = Vec::new();
    collect_equalities(delete.selection.as_ref()?, &mut columns)?;
    Some(DeleteBy { entity, columns })
}

fn only_table(delete: &Delete) -> Option<String> {
    let (FromTable::WithFromKeyword(tables) | FromTable::WithoutKeyword(tables)) = &delete.from;
    let plain = delete.tables.is_empty()
        && delete.using.is_none()
        && delete.order_by.is_empty()
        && delete.limit.is_none()
        && delete.returning.is_none();
    match tables.as_slice() {
        [table] if plain && table.joins.is_empty() => match &table.relation {
            TableFactor::Table { name, .. } => Some(name.to_string()),
            _ => None,
        },
        _ => None,
    }
}

fn collect_equalities(expr: &Expr, columns: &mut Vec<String>) -> Option<()> {
    match expr {
        Expr::Nested(inner) => collect_equalities(inner, columns),
        Expr::BinaryOp {
            left,
            op: BinaryOperator::And,
            right,
        } => {
            collect_equalities(left, columns)?;
            collect_equalities(right, columns)
        }
        Expr::BinaryOp {
            left,
            op: BinaryOperator::Eq,
            right,
        } if is_constant(right) => {
            columns.push(column_name(left)?);
            Some(())
        }
        _ => None,
    }
}

fn column_name(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(ident) => Some(ident.value.clone()),
        Expr::CompoundIdentifier(parts) => parts.last().map(|ident| ident.value.clone()),
        _ => None,
    }
}
