//! Tables as the program prints them: no lines, two spaces between columns.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde_json::Value;

/// A table to be filled.
pub(crate) struct Listing {
    table: Table,
}

impl Listing {
    /// With these columns.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(columns.into_iter().map(one_line).collect::<Vec<_>>());
        Listing { table }
    }

    /// Adds a row.
    pub(crate) fn row<T: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = T>) {
        let cells: Vec<String> = cells
            .into_iter()
            .map(|cell| one_line(cell.as_ref()))
            .collect();
        self.table.add_row(cells);
    }

    /// Sets numbers at the right of their column.
    pub(crate) fn right(&mut self, columns: impl IntoIterator<Item = usize>) {
        for column in columns {
            if let Some(column) = self.table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }

    /// The lines, header first.
    pub(crate) fn lines(mut self) -> Vec<String> {
        for column in self.table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        self.table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }
}

/// A JSON value as a cell: text without quotes, lists with commas.
pub(crate) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => one_line(text),
        Value::Array(items)
            if items
                .iter()
                .all(|item| !item.is_object() && !item.is_array()) =>
        {
            let items: Vec<String> = items.iter().map(cell).collect();
            items.join(", ")
        }
        other => one_line(&other.to_string()),
    }
}

/// Text of a database in one line of a terminal, which it cannot command.
pub(crate) fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' => line.push_str("\\t"),
            char if char.is_control() || matches!(char, '\u{2028}' | '\u{2029}') => {
                line.extend(char.escape_unicode());
            }
            char => line.push(char),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_lines_end_without_spaces() {
        let mut listing = Listing::new(["name", "count"]);
        listing.row(["a", "1"]);
        listing.row(["longer", "1000"]);
        listing.right([1]);
        assert_eq!(
            listing.lines(),
            ["name    count", "a           1", "longer   1000"]
        );
    }

    #[test]
    fn text_of_a_database_cannot_command_the_terminal() {
        assert_eq!(one_line("a\nb\x1b[2J\tc"), "a\\nb\\u{1b}[2J\\tc");
    }
}
