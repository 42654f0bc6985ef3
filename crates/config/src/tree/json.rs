//! JSON. `serde_json` judges the syntax; the text, then known to be right, is walked once more for
//! the places, which `serde_json` does not keep.

use super::lines::Lines;
use super::{DEPTH_MAX, Entry, Node, Parsed, Table, Tree, Value, given_twice, join, too_deep};
use crate::mark::{Mark, Origin};
use crate::problem::{Problem, Wrong};

pub(super) fn parse(origin: Origin, text: &str) -> Parsed {
    let lines = Lines::new(origin, text);
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        return Parsed::failed(syntax(&lines, &error));
    }
    let mut walk = Walk {
        text,
        at: 0,
        lines,
        problems: Vec::new(),
    };
    match walk.node("", 0) {
        Ok(Node {
            value: Value::Table(root),
            ..
        }) => Parsed {
            tree: Some(Tree { root }),
            problems: walk.problems,
        },
        Ok(node) => Parsed::failed(Problem::error(
            &node.mark,
            "",
            Wrong::new(format!("expected an object, got {}", node.value.kind()))
                .hint("begin with { and the tables as keys"),
        )),
        Err(problem) => Parsed::failed(problem),
    }
}

fn syntax(lines: &Lines<'_>, error: &serde_json::Error) -> Problem {
    let full = error.to_string();
    let message = full.split(" at line ").next().unwrap_or(&full).to_owned();
    let wrong = Wrong::new(format!("not JSON: {message}"))
        .hint("keys and text stand in double quotes, no comma after the last entry, no comments");
    Problem::error(&lines.at(error.line(), error.column()), "", wrong)
}

/// A walk over text that is known to be JSON.
struct Walk<'a> {
    text: &'a str,
    at: usize,
    lines: Lines<'a>,
    problems: Vec<Problem>,
}

impl Walk<'_> {
    fn node(&mut self, path: &str, depth: usize) -> Result<Node, Problem> {
        self.space();
        let mark = self.lines.mark(self.at);
        if depth > DEPTH_MAX {
            return Err(too_deep(&mark));
        }
        let value = match self.peek() {
            Some(b'{') => Value::Table(self.object(path, depth)?),
            Some(b'[') => Value::List(self.array(path, depth)?),
            Some(b'"') => Value::Text(self.string(&mark)?),
            _ => self.word(&mark)?,
        };
        Ok(Node { value, mark })
    }

    fn object(&mut self, path: &str, depth: usize) -> Result<Table, Problem> {
        let mut table = Table::default();
        self.at += 1;
        while self.more(b'}') {
            let mark = self.lines.mark(self.at);
            let name = self.string(&mark)?;
            self.space();
            self.at += 1; // the colon
            let path = join(path, &name);
            let node = self.node(&path, depth + 1)?;
            let entry = Entry {
                mark: mark.clone(),
                node,
            };
            if let Err(first) = table.insert(name, entry) {
                self.problems.push(given_twice(&mark, path, Some(&first)));
            }
        }
        Ok(table)
    }

    fn array(&mut self, path: &str, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        self.at += 1;
        while self.more(b']') {
            items.push(self.node(path, depth + 1)?);
        }
        Ok(items)
    }

    /// Steps to the next member; past the end of the object or array it is false.
    fn more(&mut self, end: u8) -> bool {
        self.space();
        if self.peek() == Some(b',') {
            self.at += 1;
            self.space();
        }
        match self.peek() {
            Some(byte) if byte != end => true,
            _ => {
                self.at += 1;
                false
            }
        }
    }

    fn string(&mut self, mark: &Mark) -> Result<String, Problem> {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.peek() {
            self.at += if byte == b'\\' { 2 } else { 1 };
            if byte == b'"' {
                break;
            }
        }
        let quoted = self.text.get(start..self.at).unwrap_or_default();
        serde_json::from_str(quoted)
            .map_err(|_| Problem::error(mark, "", "not JSON: text without end"))
    }

    fn word(&mut self, mark: &Mark) -> Result<Value, Problem> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest
            .find(|c: char| c.is_whitespace() || matches!(c, ',' | ']' | '}'))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        self.at += end;
        match word {
            "null" => Ok(Value::Empty),
            "true" => Ok(Value::Bool(true)),
            "false" => Ok(Value::Bool(false)),
            number => number
                .parse()
                .map(Value::Integer)
                .or_else(|_| number.parse().map(Value::Number))
                .map_err(|_| Problem::error(mark, "", format!("not JSON: {number}"))),
        }
    }

    fn space(&mut self) {
        while self.peek().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }
}
