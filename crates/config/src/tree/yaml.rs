//! YAML 1.2, core schema. Anchors, tags and several documents are refused: the other formats have
//! nothing like them, and a few bytes of them can stand for gigabytes.

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::lines::Lines;
use super::{DEPTH_MAX, Entry, Node, Parsed, Table, Tree, Value, given_twice, join, too_deep};
use crate::mark::{Mark, Origin};
use crate::problem::{Problem, Wrong};

pub(super) fn parse(origin: Origin, text: &str) -> Parsed {
    let mut walk = Walk {
        events: Parser::new_from_str(text),
        lines: Lines::new(origin, text),
        problems: Vec::new(),
    };
    match walk.document() {
        Ok(root) => Parsed {
            tree: Some(Tree { root }),
            problems: walk.problems,
        },
        Err(problem) => Parsed::failed(problem),
    }
}

struct Walk<'a> {
    events: Parser<'a, StrInput<'a>>,
    lines: Lines<'a>,
    problems: Vec<Problem>,
}

impl<'a> Walk<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Mark), Problem> {
        match self.events.next_event() {
            Some(Ok((event, span))) => {
                let mark = self.mark(span);
                Ok((event, mark))
            }
            Some(Err(error)) => Err(self.syntax(&error)),
            None => Ok((Event::StreamEnd, self.lines.at(1, 1))),
        }
    }

    fn mark(&self, span: Span) -> Mark {
        self.lines.at(span.start.line(), span.start.col() + 1)
    }

    fn syntax(&self, error: &ScanError) -> Problem {
        let at = error.marker();
        let wrong = Wrong::new(format!("not YAML: {}", error.info()))
            .hint("indent with spaces, a space after each colon, quotes around odd text");
        Problem::error(&self.lines.at(at.line(), at.col() + 1), "", wrong)
    }

    fn document(&mut self) -> Result<Table, Problem> {
        let mut root = Table::default();
        let mut documents = 0;
        loop {
            let (event, mark) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(root),
                Event::DocumentStart(_) if documents > 0 => {
                    let wrong = Wrong::new("a second document").hint("one document a file");
                    return Err(Problem::error(&mark, "", wrong));
                }
                Event::DocumentStart(_) => documents += 1,
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                event => match self.node(event, mark, "", 0)? {
                    Node {
                        value: Value::Table(table),
                        ..
                    } => root = table,
                    Node {
                        value: Value::Empty,
                        ..
                    } => {}
                    node => {
                        let wrong =
                            Wrong::new(format!("expected a mapping, got {}", node.value.kind()))
                                .hint("begin with the tables as keys, such as server:");
                        return Err(Problem::error(&node.mark, "", wrong));
                    }
                },
            }
        }
    }

    fn node(
        &mut self,
        event: Event<'a>,
        mark: Mark,
        path: &str,
        depth: usize,
    ) -> Result<Node, Problem> {
        if depth > DEPTH_MAX {
            return Err(too_deep(&mark));
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, 0, None) => plain(&text),
            Event::Scalar(text, _, 0, None) => Value::Text(text.into_owned()),
            Event::MappingStart(0, None) => Value::Table(self.mapping(path, depth)?),
            Event::SequenceStart(0, None) => Value::List(self.sequence(path, depth)?),
            _ => {
                let wrong = Wrong::new("anchors, aliases and tags are not read")
                    .hint("write the value out");
                return Err(Problem::error(&mark, path, wrong));
            }
        };
        Ok(Node { value, mark })
    }

    fn mapping(&mut self, path: &str, depth: usize) -> Result<Table, Problem> {
        let mut table = Table::default();
        loop {
            let (event, mark) = self.next()?;
            let name = match event {
                Event::MappingEnd | Event::StreamEnd => return Ok(table),
                Event::Scalar(text, _, 0, None) => text.into_owned(),
                _ => {
                    let wrong = Wrong::new("a key that is not plain text").hint("keys are words");
                    return Err(Problem::error(&mark, path, wrong));
                }
            };
            let path = join(path, &name);
            let (event, at) = self.next()?;
            let node = self.node(event, at, &path, depth + 1)?;
            let entry = Entry {
                mark: mark.clone(),
                node,
            };
            if let Err(first) = table.insert(name, entry) {
                self.problems.push(given_twice(&mark, path, Some(&first)));
            }
        }
    }

    fn sequence(&mut self, path: &str, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        loop {
            let (event, mark) = self.next()?;
            match event {
                Event::SequenceEnd | Event::StreamEnd => return Ok(items),
                event => items.push(self.node(event, mark, path, depth + 1)?),
            }
        }
    }
}

/// A plain scalar by the core schema: `yes`, `on` and `off` are text.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Empty,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => number(text).unwrap_or_else(|| Value::Text(text.to_owned())),
    }
}

fn number(text: &str) -> Option<Value> {
    let radix = |prefix: &str, radix: u32| {
        let digits = text.strip_prefix(prefix)?;
        let all = digits.chars().all(|c| c.is_digit(radix));
        if all {
            i128::from_str_radix(digits, radix).ok()
        } else {
            None
        }
    };
    if let Some(integer) = radix("0x", 16).or_else(|| radix("0o", 8)) {
        return Some(Value::Integer(integer));
    }
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    match digits {
        ".inf" | ".Inf" | ".INF" => return Some(Value::Number(f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" => return Some(Value::Number(f64::NAN)),
        _ => {}
    }
    let numeric = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') || !digits.chars().all(numeric)
    {
        return None;
    }
    text.parse()
        .map(Value::Integer)
        .or_else(|_| text.parse().map(Value::Number))
        .ok()
}
