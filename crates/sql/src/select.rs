//! Reading the rows of an entity by filters, in order, page by page.

use std::sync::Arc;

use crate::catalog::Entity;
use crate::database::Answer;
use crate::dialect::Dialect;
use crate::error::SqlError;
use crate::filter::{Filter, Order, Page, write_filters};
use crate::sql_text::SqlText;
use crate::value::Value;

/// Which rows of an entity.
#[derive(Debug, Clone, PartialEq)]
pub struct Find {
    /// The table or view; as `name` or `schema.name`.
    pub entity: Arc<str>,
    /// Conditions that must all hold.
    pub filters: Vec<Filter>,
    /// The order; without one that of the primary key if pages are asked for, else the database's.
    pub order: Vec<Order>,
    /// Only this page, with the totals.
    pub page: Option<Page>,
}

impl Find {
    /// All rows of an entity.
    pub fn all(entity: impl Into<Arc<str>>) -> Self {
        Find {
            entity: entity.into(),
            filters: Vec::new(),
            order: Vec::new(),
            page: None,
        }
    }

    /// Only rows for which this holds too.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filters.push(filter);
        self
    }

    /// In this order.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order.push(order);
        self
    }

    /// Only this page, with the totals. Pages are counted from 1.
    #[must_use]
    pub fn page(mut self, number: u64, size: u64) -> Self {
        self.page = Some(Page { number, size });
        self
    }

    /// The text that reads the rows.
    pub(crate) fn select(
        &self,
        dialect: Dialect,
        entity: &Entity,
    ) -> Result<(String, Vec<Value>), SqlError> {
        let mut text = SqlText::new(dialect);
        text.push("SELECT * FROM ").entity(entity);
        write_filters(&mut text, &self.filters, entity)?;
        self.write_order(&mut text, entity)?;
        if let Some(page) = self.page {
            let offset = page.offset()?;
            // Both fit: `offset` has checked them.
            let number = |count: u64| Value::I64(i64::try_from(count).unwrap_or(i64::MAX));
            text.push(" LIMIT ").bind(number(page.size));
            text.push(" OFFSET ").bind(number(offset));
        }
        Ok(text.finish())
    }

    /// The text that counts the rows of all pages.
    pub(crate) fn count(
        &self,
        dialect: Dialect,
        entity: &Entity,
    ) -> Result<(String, Vec<Value>), SqlError> {
        let mut text = SqlText::new(dialect);
        text.push("SELECT count(*) FROM ").entity(entity);
        write_filters(&mut text, &self.filters, entity)?;
        Ok(text.finish())
    }

    /// Pages end with the primary key as a tie-breaker: without it a row could be on two pages or on none.
    fn write_order(&self, text: &mut SqlText, entity: &Entity) -> Result<(), SqlError> {
        let mut columns: Vec<(&str, bool)> = Vec::new();
        for order in &self.order {
            let column = entity.column(&order.field)?;
            columns.push((&column.name, order.descending));
        }
        if self.page.is_some() {
            for key in &entity.primary_key {
                if !columns.iter().any(|(column, _)| column == key) {
                    columns.push((key, false));
                }
            }
        }
        for (index, (column, descending)) in columns.into_iter().enumerate() {
            text.push(if index == 0 { " ORDER BY " } else { ", " });
            text.name(column);
            if descending {
                text.push(" DESC");
            }
        }
        Ok(())
    }
}

/// The rows that were found, and where they stand in the whole.
#[derive(Debug, Clone)]
pub struct Paged {
    /// The rows.
    pub answer: Answer,
    /// The page; `None`: none was asked for, `answer` has all.
    pub page: Option<PageOf>,
}

/// Where a page stands in the whole. Rows that came or went between the count and the read may make it
/// off by those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageOf {
    /// From 1.
    pub number: u64,
    /// Rows of a full page.
    pub size: u64,
    /// Rows of all pages.
    pub total_rows: u64,
    /// Pages.
    pub total_pages: u64,
    /// Whether a page follows.
    pub has_next: bool,
    /// Whether a page with rows comes before.
    pub has_previous: bool,
}

impl PageOf {
    pub(crate) fn new(page: Page, total_rows: u64) -> Self {
        let total_pages = total_rows.div_ceil(page.size.max(1));
        PageOf {
            number: page.number,
            size: page.size,
            total_rows,
            total_pages,
            has_next: page.number < total_pages,
            has_previous: page.number > 1 && total_pages > 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entity(key: &[&str]) -> Entity {
        let column = |name: &str| crate::catalog::EntityColumn {
            name: name.into(),
            column_type: crate::value::ColumnType::I64,
            native: "int".into(),
            nullable: false,
            default: None,
            generated: false,
        };
        Entity {
            schema: None,
            name: "t".into(),
            is_view: false,
            columns: vec![column("a"), column("b")],
            primary_key: key.iter().map(|&name| name.to_owned()).collect(),
            indexes: Vec::new(),
        }
    }

    #[test]
    fn a_page_has_a_total_order_where_there_is_a_key() {
        for (find, key, expected) in [
            (Find::all("t"), &["a"][..], "SELECT * FROM \"t\""),
            (
                Find::all("t").page(2, 10),
                &["a"],
                "SELECT * FROM \"t\" ORDER BY \"a\" LIMIT ?1 OFFSET ?2",
            ),
            (
                Find::all("t").order(Order::descending("B")).page(2, 10),
                &["a"],
                "SELECT * FROM \"t\" ORDER BY \"b\" DESC, \"a\" LIMIT ?1 OFFSET ?2",
            ),
            (
                Find::all("t").order(Order::ascending("a")).page(1, 1),
                &["a"],
                "SELECT * FROM \"t\" ORDER BY \"a\" LIMIT ?1 OFFSET ?2",
            ),
            (
                Find::all("t").page(1, 1),
                &[],
                "SELECT * FROM \"t\" LIMIT ?1 OFFSET ?2",
            ),
        ] {
            let (text, _) = find.select(Dialect::Sqlite, &entity(key)).unwrap();
            assert_eq!(text, expected);
        }
        let (_, params) = Find::all("t")
            .filter(Filter::equal("a", Value::I64(7)))
            .page(3, 10)
            .select(Dialect::Sqlite, &entity(&[]))
            .unwrap();
        assert_eq!(params, [Value::I64(7), Value::I64(10), Value::I64(20)]);
    }

    #[test]
    fn totals_are_counted_without_order_and_page() {
        let find = Find::all("t")
            .filter(Filter::equal("a", Value::I64(7)))
            .order(Order::ascending("b"))
            .page(3, 10);
        let (text, params) = find.count(Dialect::Postgres, &entity(&["a"])).unwrap();
        assert_eq!(text, "SELECT count(*) FROM \"t\" WHERE \"a\" = $1");
        assert_eq!(params, [Value::I64(7)]);
    }

    #[test]
    fn a_page_knows_its_neighbours() {
        let of = |number, total| PageOf::new(Page { number, size: 10 }, total);
        for (number, total, pages, next, previous) in [
            (1, 0, 0, false, false),
            (1, 10, 1, false, false),
            (1, 11, 2, true, false),
            (2, 11, 2, false, true),
            (5, 11, 2, false, true),
        ] {
            let page = of(number, total);
            assert_eq!(
                (page.total_pages, page.has_next, page.has_previous),
                (pages, next, previous),
                "{number} of {total}"
            );
        }
    }
}
