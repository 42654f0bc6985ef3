//! Takes secrets out of everything that is written: logs, events, audit and error texts.
//!
//! What is recognised by its shape or by the name before it is replaced by `***`; of a statement every
//! literal is replaced by `?` ([`redact_sql`]). In doubt more is taken out than needed.

mod digits;
mod quoted;
mod sql;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use regex::{Captures, Regex};

pub use sql::{Quoting, redact_sql, redact_sql_in};

/// What stands in the place of a secret.
const MASK: &str = "***";

/// What each pattern finds secret is its group `secret`; without one what follows its group `keep`;
/// without either the whole match.
const PATTERNS: &[&str] = &[
    // Private keys, also without their end.
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?s:.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\z)",
    // user:password in URLs; a password may contain an @, and wrongly a slash. A name alone may be a token.
    r#"(?<keep>[A-Za-z][A-Za-z0-9+.\-]*://[^\s:/?#@"'<>]*:)(?<secret>[^\s"'<>]*)@"#,
    r#"(?<keep>[A-Za-z][A-Za-z0-9+.\-]*://)(?<secret>[^\s:/?#@"'<>]+)@"#,
    // Headers whose whole value is secret.
    r#"(?i)(?<keep>(?:authorization|cookie)[\\"']*\s*[:=]\s*)(?:\\+["'][^"'\\]*|"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[^\r\n"']+)"#,
    // A scheme and its credentials, wherever they stand.
    r"(?i)(?<keep>\bbearer\s+)[^\s\x22',;]+",
    // name=value, name: value, "name": "value".
    r#"(?i)(?<keep>(?:passw(?:or)?d|passphrase|passwd|pwd|secret|token|credentials?|(?:api|access|private|signing|encryption|account|auth|shared)[_\-. ]?key|apikey|session[_\-]?id)[\w\-.]*[\\"'\]]*\s*(?:=>|:=|[:=])\s*)(?:\\+["'][^"'\\]*|[A-Za-z]{0,2}"(?:[^"\\]|\\.|"")*"?|[A-Za-z]{0,2}'(?:[^'\\]|\\.|'')*'?|[^\s&;"']+)"#,
    // PASSWORD 'x' and IDENTIFIED BY 'x' of SQL, --password x of command lines.
    r#"(?i)(?<keep>\b(?:password|passwd|identified\s+by(?:\s+password)?|--?[\w\-]*(?:password|token|secret|key))\s+)(?:[A-Za-z]{0,2}'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?)"#,
    r"(?i)(?<keep>--[\w\-]*(?:password|token|secret|key)\s+)[^\s]+",
    // Tokens with a shape of their own: JWT, AWS, GitHub, Slack, Stripe and kin, Google.
    r"\beyJ[\w\-]{4,}\.[\w\-]+(?:\.[\w\-]*)?",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{12,}",
    r"\b(?:gh[pousr]_|github_pat_|glpat-)[\w\-]{10,}",
    r"\bxox[a-z]-[\w\-]{8,}",
    r"\b(?:sk|pk|rk|whsec)[_\-][\w\-]{16,}",
    r"\bAIza[\w\-]{20,}",
];

/// Sought last, so that of a URL with credentials only these go and not its host.
const EMAIL: &str = r"[\w.%+\-]+@[\w\-]+(?:\.[\w\-]+)+";

/// After so many finds of one pattern the rest of a text is taken out: it bounds the work on texts made
/// to be slow.
const FINDS_MAX: usize = 256;

/// Finds secrets in texts. Copies share the patterns, which are compiled at the first text; a text
/// without secrets is not copied.
#[derive(Debug, Clone, Default)]
pub struct Redactor {
    patterns: Arc<OnceLock<Patterns>>,
}

#[derive(Debug)]
struct Patterns {
    in_context: Vec<Regex>,
    email: Regex,
}

impl Patterns {
    fn compile() -> Self {
        let compile = |pattern: &&str| {
            Regex::new(pattern).expect("the patterns are constants that a test compiles")
        };
        Patterns {
            in_context: PATTERNS.iter().map(compile).collect(),
            email: compile(&EMAIL),
        }
    }
}

impl Redactor {
    /// All patterns.
    pub fn new() -> Self {
        Self::default()
    }

    /// The text without passwords, tokens, keys, bearer headers, credentials in URLs, e-mail
    /// addresses, card numbers and US social security numbers.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let patterns = self.patterns.get_or_init(Patterns::compile);
        let mut secrets = digits::secrets(text);
        for pattern in &patterns.in_context {
            find_all(pattern, text, &mut secrets);
        }
        let masked = mask(text, secrets);
        match patterns.email.replace_all(&masked, MASK) {
            Cow::Owned(replaced) => Cow::Owned(replaced),
            Cow::Borrowed(_) => masked,
        }
    }

    /// A back end's message without the values that it quotes, and then without what else looks like a secret.
    /// Quoted names of tables, columns and their kin stay.
    pub fn redact_message<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match quoted::without_quoted(text) {
            Cow::Borrowed(text) => self.redact(text),
            Cow::Owned(replaced) => Cow::Owned(self.redact(&replaced).into_owned()),
        }
    }

    /// A statement without its literals and comments, see [`redact_sql`], and then without what else
    /// looks like a secret.
    pub fn redact_sql<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match redact_sql(text) {
            Cow::Borrowed(text) => self.redact(text),
            Cow::Owned(replaced) => Cow::Owned(self.redact(&replaced).into_owned()),
        }
    }
}

/// Seeks on from the beginning of each secret, not from its end: what looked like the value of one name
/// may be the name before another value.
fn find_all(pattern: &Regex, text: &str, secrets: &mut Vec<Range<usize>>) {
    let mut at = 0;
    for _ in 0..FINDS_MAX {
        let Some(found) = pattern.captures_at(text, at) else {
            return;
        };
        let (whole, secret) = (found.get_match().range(), secret_of(&found));
        at = match secret.start > whole.start {
            true => secret.start,
            false => whole.end,
        };
        secrets.push(secret);
    }
    secrets.push(at..text.len());
}

fn secret_of(found: &Captures<'_>) -> Range<usize> {
    if let Some(secret) = found.name("secret") {
        return secret.range();
    }
    let whole = found.get_match().range();
    match found.name("keep") {
        Some(keep) => keep.end()..whole.end,
        None => whole,
    }
}

/// All are sought in the text as it came, so that no find hides another; those that overlap are one.
fn mask(text: &str, mut secrets: Vec<Range<usize>>) -> Cow<'_, str> {
    secrets.retain(|secret| !secret.is_empty());
    if secrets.is_empty() {
        return Cow::Borrowed(text);
    }
    secrets.sort_unstable_by_key(|secret| secret.start);
    let mut redacted = String::with_capacity(text.len());
    let mut copied = 0;
    let mut secrets = secrets.into_iter().peekable();
    while let Some(mut secret) = secrets.next() {
        while let Some(next) = secrets.next_if(|next| next.start <= secret.end) {
            secret.end = secret.end.max(next.end);
        }
        redacted.push_str(&text[copied..secret.start]);
        redacted.push_str(MASK);
        copied = secret.end;
    }
    redacted.push_str(&text[copied..]);
    Cow::Owned(redacted)
}
