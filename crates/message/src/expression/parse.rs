//! Reading an expression: a scanner and one function a level of precedence.

use serde_json::Value;

use super::{Comparison, ExpressionError, Node, Operand, Pointer};

/// Parentheses and `not` within each other at most: nobody writes more, and reading stays shallow.
const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Pointer(Pointer),
    Literal(Value),
    Comparison(Comparison),
    And,
    Or,
    Not,
    Open,
    Close,
}

struct Reader {
    tokens: Vec<(usize, Token)>,
    next: usize,
    /// Where the text ends, in characters.
    end: usize,
    depth: usize,
}

pub(super) fn parse(text: &str) -> Result<Node, ExpressionError> {
    let mut reader = Reader {
        tokens: scan(text)?,
        next: 0,
        end: text.chars().count(),
        depth: 0,
    };
    let node = reader.any()?;
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.fault("the expression goes on after its end")),
    }
}

impl Reader {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|(_, token)| token)
    }

    fn take(&mut self) -> Option<Token> {
        let token = self.peek().cloned();
        self.next += usize::from(token.is_some());
        token
    }

    fn take_if(&mut self, wanted: &Token) -> bool {
        let fits = self.peek() == Some(wanted);
        self.next += usize::from(fits);
        fits
    }

    fn fault(&self, reason: &str) -> ExpressionError {
        let place = self
            .tokens
            .get(self.next)
            .map_or(self.end, |(place, _)| *place);
        ExpressionError {
            reason: reason.to_owned(),
            place: place + 1,
        }
    }

    fn any(&mut self) -> Result<Node, ExpressionError> {
        let mut nodes = vec![self.all()?];
        while self.take_if(&Token::Or) {
            nodes.push(self.all()?);
        }
        Ok(one_or(nodes, Node::Any))
    }

    fn all(&mut self) -> Result<Node, ExpressionError> {
        let mut nodes = vec![self.not()?];
        while self.take_if(&Token::And) {
            nodes.push(self.not()?);
        }
        Ok(one_or(nodes, Node::All))
    }

    fn not(&mut self) -> Result<Node, ExpressionError> {
        if self.depth >= DEPTH_MAX {
            return Err(self.fault("the expression is nested too deeply"));
        }
        self.depth += 1;
        let node = if self.take_if(&Token::Not) {
            Node::Not(Box::new(self.not()?))
        } else if self.take_if(&Token::Open) {
            let inner = self.any()?;
            if !self.take_if(&Token::Close) {
                return Err(self.fault("')' is missing"));
            }
            inner
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, ExpressionError> {
        let left = self.operand()?;
        let Some(Token::Comparison(comparison)) = self.peek() else {
            return Ok(Node::Is(left));
        };
        let comparison = *comparison;
        self.next += 1;
        Ok(Node::Compare(left, comparison, self.operand()?))
    }

    fn operand(&mut self) -> Result<Operand, ExpressionError> {
        let fault = self.fault("a pointer, a text, a number, true, false or null is expected");
        match self.take() {
            Some(Token::Pointer(pointer)) => Ok(Operand::At(pointer)),
            Some(Token::Literal(value)) => Ok(Operand::Literal(value)),
            _ => Err(fault),
        }
    }
}

fn one_or(mut nodes: Vec<Node>, many: impl Fn(Vec<Node>) -> Node) -> Node {
    match nodes.pop() {
        Some(node) if nodes.is_empty() => node,
        Some(last) => {
            nodes.push(last);
            many(nodes)
        }
        None => many(nodes),
    }
}

fn scan(text: &str) -> Result<Vec<(usize, Token)>, ExpressionError> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start();
        let place = text.chars().count() - rest.chars().count();
        let Some(first) = rest.chars().next() else {
            return Ok(tokens);
        };
        let (token, length) = match first {
            '"' => string(rest),
            '/' => pointer(rest),
            '(' => Ok((Token::Open, 1)),
            ')' => Ok((Token::Close, 1)),
            '=' | '!' | '<' | '>' | '&' | '|' => operator(rest),
            _ => word(rest),
        }
        .map_err(|reason| ExpressionError {
            reason,
            place: place + 1,
        })?;
        tokens.push((place, token));
        rest = &rest[length..];
    }
}

type Scanned = Result<(Token, usize), String>;

/// A JSON text.
fn string(rest: &str) -> Scanned {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            '"' if !escaped => {
                let literal = &rest[..=at];
                let value = serde_json::from_str(literal)
                    .map_err(|error| format!("{literal} is no JSON text ({error})"))?;
                return Ok((Token::Literal(value), at + 1));
            }
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    Err("the text has no closing '\"'".into())
}

/// Up to a space, a parenthesis or an operator, which stand in a pointer's names only as `\u0020` would:
/// not at all.
fn pointer(rest: &str) -> Scanned {
    let ends = |c: char| c.is_whitespace() || "()=!<>&|\"".contains(c);
    let length = rest.find(ends).unwrap_or(rest.len());
    let pointer = Pointer::parse(&rest[..length]).map_err(|error| error.reason)?;
    Ok((Token::Pointer(pointer), length))
}

fn operator(rest: &str) -> Scanned {
    const OPERATORS: [(&str, Token); 9] = [
        ("==", Token::Comparison(Comparison::Equal)),
        ("!=", Token::Comparison(Comparison::Unequal)),
        ("<=", Token::Comparison(Comparison::LessOrEqual)),
        (">=", Token::Comparison(Comparison::GreaterOrEqual)),
        ("<", Token::Comparison(Comparison::Less)),
        (">", Token::Comparison(Comparison::Greater)),
        ("&&", Token::And),
        ("||", Token::Or),
        ("!", Token::Not),
    ];
    let known = OPERATORS
        .into_iter()
        .find(|(text, _)| rest.starts_with(text));
    known
        .map(|(text, token)| (token, text.len()))
        .ok_or_else(|| "one of == != < <= > >= is expected".into())
}

fn word(rest: &str) -> Scanned {
    let ends = |c: char| c.is_whitespace() || "()=!<>&|\"/".contains(c);
    let length = rest.find(ends).unwrap_or(rest.len());
    let word = &rest[..length];
    let token = match word {
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        "body" => Token::Pointer(Pointer::parse("").map_err(|error| error.reason)?),
        _ => match serde_json::from_str(word) {
            Ok(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => Token::Literal(value),
            _ => {
                return Err(format!(
                    "{word:?} is not understood (texts stand in \"quotes\")"
                ));
            }
        },
    };
    Ok((token, length))
}
