//! Small expressions on a JSON body, as configuration files have them: JSON pointers, comparisons, and
//! `and`, `or`, `not`.
//!
//! ```text
//! /status == "done"                      a member of the body
//! /progress >= 1 and not /failed         a pointer alone: it is there and neither null nor false
//! body == "ok" or /items/0/state != null
//! ```
//!
//! Pointers are those of RFC 6901; `body` is the whole. What is not there equals nothing, so that `!=`
//! holds and every other comparison does not. Numbers compare as numbers, texts by their code points;
//! values of two kinds are unequal and in no order.

mod parse;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use serde_json::Value;

/// A JSON pointer (RFC 6901) into a body.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Pointer(Arc<str>);

/// An expression that holds for a body or does not.
#[derive(Clone, PartialEq)]
pub struct Expression {
    text: Arc<str>,
    root: Arc<Node>,
}

/// A text that is no expression or pointer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at character {place}; write for example /status == \"done\"")]
pub struct ExpressionError {
    /// What is wrong.
    pub reason: String,
    /// Where, counted from 1.
    pub place: usize,
}

#[derive(Debug, PartialEq)]
enum Node {
    Any(Vec<Node>),
    All(Vec<Node>),
    Not(Box<Node>),
    Is(Operand),
    Compare(Operand, Comparison, Operand),
}

#[derive(Debug, PartialEq)]
enum Operand {
    At(Pointer),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Pointer {
    /// Reads a pointer: empty for the whole, else beginning with `/`.
    ///
    /// # Errors
    /// If it does not begin with `/`, or a `~` stands before anything but 0 and 1.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let fault = |place: usize, reason: &str| ExpressionError {
            reason: reason.to_owned(),
            place: place + 1,
        };
        if !text.is_empty() && !text.starts_with('/') {
            return Err(fault(0, "a JSON pointer begins with '/'"));
        }
        for (place, _) in text.match_indices('~') {
            if !matches!(text.as_bytes().get(place + 1), Some(b'0' | b'1')) {
                return Err(fault(
                    place,
                    "'~' stands in a JSON pointer as ~0, '/' as ~1",
                ));
            }
        }
        Ok(Pointer(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What is there.
    pub fn of<'a>(&self, body: &'a Value) -> Option<&'a Value> {
        body.pointer(&self.0)
    }

    /// What is there, as the text of a key: a text as it is, a number or truth value as JSON writes it.
    pub fn key(&self, body: &Value) -> Option<String> {
        match self.of(body)? {
            Value::String(text) => Some(text.clone()),
            value @ (Value::Number(_) | Value::Bool(_)) => Some(value.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

impl Expression {
    /// Reads an expression.
    ///
    /// # Errors
    /// With the place of what could not be read.
    pub fn parse(text: &str) -> Result<Self, ExpressionError> {
        let root = parse::parse(text)?;
        Ok(Expression {
            text: text.into(),
            root: Arc::new(root),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it holds for a body.
    pub fn holds(&self, body: &Value) -> bool {
        self.root.holds(body)
    }
}

impl Node {
    fn holds(&self, body: &Value) -> bool {
        match self {
            Node::Any(nodes) => nodes.iter().any(|node| node.holds(body)),
            Node::All(nodes) => nodes.iter().all(|node| node.holds(body)),
            Node::Not(node) => !node.holds(body),
            Node::Is(operand) => {
                let value = operand.value(body);
                !matches!(value, None | Some(Value::Null | Value::Bool(false)))
            }
            Node::Compare(left, comparison, right) => {
                comparison.holds(left.value(body), right.value(body))
            }
        }
    }
}

impl Operand {
    fn value<'a>(&'a self, body: &'a Value) -> Option<&'a Value> {
        match self {
            Operand::At(pointer) => pointer.of(body),
            Operand::Literal(value) => Some(value),
        }
    }
}

impl Comparison {
    fn holds(self, left: Option<&Value>, right: Option<&Value>) -> bool {
        let (Some(left), Some(right)) = (left, right) else {
            return self == Comparison::Unequal;
        };
        let order = order(left, right);
        match self {
            Comparison::Equal => is_equal(left, right),
            Comparison::Unequal => !is_equal(left, right),
            Comparison::Less => order == Some(Ordering::Less),
            Comparison::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Comparison::Greater => order == Some(Ordering::Greater),
            Comparison::GreaterOrEqual => {
                matches!(order, Some(Ordering::Greater | Ordering::Equal))
            }
        }
    }
}

fn is_equal(left: &Value, right: &Value) -> bool {
    order(left, right).map_or_else(|| left == right, Ordering::is_eq)
}

/// Of numbers and texts; `None`: in no order.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => match (left.as_i128(), right.as_i128()) {
            (Some(left), Some(right)) => Some(left.cmp(&right)),
            _ => left.as_f64()?.partial_cmp(&right.as_f64()?),
        },
        _ => None,
    }
}

impl fmt::Debug for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

#[cfg(test)]
mod tests;
