//! A statement's text, word by word: enough to find a name in it, never to judge what it does.

/// The words of a statement, without white space and comments.
pub(crate) struct Words<'a>(pub(crate) &'a str);

/// One word.
#[derive(Debug, PartialEq)]
pub(crate) enum Word<'a> {
    /// A keyword, a name or a number.
    Bare(&'a str),
    /// A quoted name or a text, without its quotes.
    Quoted { text: &'a str, quote: char },
    /// Anything else.
    Sign(char),
}

impl Word<'_> {
    /// Whether it is this keyword.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self, Word::Bare(word) if word.eq_ignore_ascii_case(name))
    }

    /// The name that it writes.
    pub(crate) fn name(&self) -> Option<String> {
        match self {
            Word::Bare(name) => Some((*name).to_owned()),
            Word::Quoted { text, quote: ']' } => Some((*text).to_owned()),
            Word::Quoted { text, quote } => {
                let twice: String = [*quote, *quote].iter().collect();
                Some(text.replace(&twice, &quote.to_string()))
            }
            Word::Sign(_) => None,
        }
    }
}

impl<'a> Words<'a> {
    /// Takes the text up to `at`, and drops `skip` bytes behind it.
    fn take(&mut self, at: usize, skip: usize) -> &'a str {
        let (word, rest) = self.0.split_at(at);
        self.0 = rest.get(skip..).unwrap_or("");
        word
    }

    fn quoted(&mut self, quote: char) -> Word<'a> {
        self.0 = &self.0[1..];
        let mut from = 0;
        while let Some(found) = self.0[from..].find(quote) {
            let end = from + found;
            let is_doubled = quote != ']' && self.0[end + 1..].starts_with(quote);
            if !is_doubled {
                let text = self.take(end, 1);
                return Word::Quoted { text, quote };
            }
            from = end + 2;
        }
        let text = self.take(self.0.len(), 0);
        Word::Quoted { text, quote }
    }
}

/// What SQLite takes for a space between words, the mark of byte order too.
fn is_space(c: char) -> bool {
    c.is_ascii_whitespace() || matches!(c, '\u{b}' | '\u{feff}')
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        loop {
            self.0 = self.0.trim_start_matches(is_space);
            if self.0.starts_with("--") {
                let end = self.0.find('\n').unwrap_or(self.0.len());
                self.take(end, 1);
            } else if self.0.starts_with("/*") {
                // The star that opens it does not close it.
                let end = self.0[2..].find("*/").map_or(self.0.len(), |end| end + 2);
                self.take(end, 2);
            } else {
                break;
            }
        }
        let first = self.0.chars().next()?;
        match first {
            '"' | '`' | '\'' => return Some(self.quoted(first)),
            '[' => return Some(self.quoted(']')),
            _ => {}
        }
        let is_part = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || c == '_' || c == '$';
        let end = self.0.find(|c| !is_part(c)).unwrap_or(self.0.len());
        if end == 0 {
            self.take(first.len_utf8(), 0);
            return Some(Word::Sign(first));
        }
        Some(Word::Bare(self.take(end, 0)))
    }
}

/// The expressions of a CREATE INDEX, each as its text.
pub(crate) fn index_expressions(text: &str) -> Vec<String> {
    let mut words = Words(text);
    let opens = |word: &Word<'_>| *word == Word::Sign('(');
    if !words.any(|word| word.is("ON")) || !words.any(|word| opens(&word)) {
        return Vec::new();
    }
    let mut expressions = Vec::new();
    let mut depth = 1;
    let mut from = words.0;
    loop {
        let before = words.0;
        match words.next() {
            Some(Word::Sign('(')) => depth += 1,
            Some(Word::Sign(',')) if depth == 1 => {
                expressions.push(expression(from, before));
                from = words.0;
            }
            Some(Word::Sign(')')) if depth > 1 => depth -= 1,
            Some(Word::Sign(')')) | None => {
                expressions.push(expression(from, before));
                return expressions;
            }
            Some(_) => {}
        }
    }
}

/// What stands between two rests of a text, without its order.
fn expression(from: &str, to: &str) -> String {
    let text = from[..from.len() - to.len()].trim();
    let (rest, last) = text.rsplit_once(char::is_whitespace).unwrap_or((text, ""));
    match last.eq_ignore_ascii_case("ASC") || last.eq_ignore_ascii_case("DESC") {
        true => rest.trim_end().to_owned(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_expressions_of_an_index_are_found() {
        let table: [(&str, &[&str]); 5] = [
            (
                "CREATE INDEX i ON t(a, lower(b), \"c,)\" DESC)",
                &["a", "lower(b)", "\"c,)\""],
            ),
            (
                "create index \"on\" on [t (x] (substr(a, 1, 2) asc) where a > (1)",
                &["substr(a, 1, 2)"],
            ),
            (
                "CREATE INDEX i ON t(a /* , */ || ')')",
                &["a /* , */ || ')'"],
            ),
            ("CREATE INDEX i ON t(a", &["a"]),
            ("nothing", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(index_expressions(text), expected, "{text}");
        }
    }
}
