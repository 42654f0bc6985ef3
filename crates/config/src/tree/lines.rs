//! Byte offsets as lines and columns.

use crate::mark::{Mark, Origin};

/// Where the lines of a text begin.
pub(super) struct Lines<'a> {
    origin: Origin,
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(origin: Origin, text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0)
            .chain(breaks.map(|(at, _)| at + 1))
            .collect();
        Lines {
            origin,
            text,
            starts,
        }
    }

    /// The place of a byte; an offset past the end is the end.
    pub(super) fn mark(&self, offset: usize) -> Mark {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let line = self.starts.partition_point(|start| *start <= offset);
        let start = self.starts[line - 1];
        let column = self.text[start..offset].chars().count() + 1;
        Mark::new(self.origin.clone(), number(line), number(column))
    }

    /// The place that a parser gave as line and column, both from 1.
    pub(super) fn at(&self, line: usize, column: usize) -> Mark {
        Mark::new(
            self.origin.clone(),
            number(line.max(1)),
            number(column.max(1)),
        )
    }
}

fn number(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
