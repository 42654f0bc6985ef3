//! Messages of back ends quote values of the statement: `invalid input syntax for type integer: "4711x"`.

use std::borrow::Cow;

/// Words before a quoted name of something that the schema has, as PostgreSQL, MySQL and SQLite put it.
const NAMED: &[&str] = &[
    "column",
    "columns",
    "constraint",
    "database",
    "endpoint",
    "extension",
    "field",
    "function",
    "index",
    "key",
    "language",
    "operator",
    "procedure",
    "publication",
    "relation",
    "role",
    "savepoint",
    "schema",
    "sequence",
    "source",
    "subscription",
    "table",
    "tablespace",
    "trigger",
    "type",
    "user",
    "view",
];

/// The message with `?` for everything in quotes but names of what the schema has. A quote without its end
/// takes the rest along; backquotes hold names.
pub(super) fn without_quoted(text: &str) -> Cow<'_, str> {
    if !text.contains(['"', '\'']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '\'']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let quote = &from[..1];
        // As in "doesn't".
        let is_apostrophe = quote == "'" && out.ends_with(char::is_alphanumeric);
        if is_apostrophe {
            out.push_str(quote);
            rest = &from[1..];
            continue;
        }
        let length = length_of(from);
        let whole = &from[..length];
        match is_name(&out) {
            true => out.push_str(whole),
            false => {
                out.push_str(quote);
                out.push('?');
                out.push_str(quote);
            }
        }
        rest = &from[length..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// How long a quoted text is, with its quotes: up to the last of them, as messages do not double quotes that
/// stand in a value.
fn length_of(from: &str) -> usize {
    let quote = from.as_bytes()[0];
    let bytes = from.as_bytes();
    let ends = |at: usize| {
        let next = bytes.get(at + 1);
        bytes[at] == quote
            && next.is_none_or(|next| !next.is_ascii_alphanumeric() && *next != quote)
    };
    (1..bytes.len())
        .find(|at| ends(*at))
        .map_or(from.len(), |at| at + 1)
}

fn is_name(before: &str) -> bool {
    let before = before.trim_end();
    let word = before.rsplit(|c: char| !c.is_alphanumeric()).next();
    word.is_some_and(|word| NAMED.iter().any(|name| name.eq_ignore_ascii_case(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_out_and_names_stay() {
        for (message, expected) in [
            ("no answer within 2s", "no answer within 2s"),
            (
                "invalid input syntax for type integer: \"4711x\"",
                "invalid input syntax for type integer: \"?\"",
            ),
            (
                "unterminated quoted string at or near \"'s3cret\" [42601]",
                "unterminated quoted string at or near \"?\" [42601]",
            ),
            (
                "unterminated quoted string at or near \"'s3cret",
                "unterminated quoted string at or near \"?\"",
            ),
            (
                "Incorrect integer value: 'x' for column `test`.`t`.`id` at row 1",
                "Incorrect integer value: '?' for column `test`.`t`.`id` at row 1",
            ),
            (
                "null value in column \"name\" of relation \"t\" violates not-null constraint",
                "null value in column \"name\" of relation \"t\" violates not-null constraint",
            ),
            (
                "Duplicate entry 'a@b' for key 'PRIMARY'",
                "Duplicate entry '?' for key 'PRIMARY'",
            ),
            (
                "Table 'test.x' doesn't exist",
                "Table 'test.x' doesn't exist",
            ),
            ("invalid value: 'it's mine' here", "invalid value: '?' here"),
            ("value 'Größe' is wrong", "value '?' is wrong"),
        ] {
            assert_eq!(without_quoted(message), expected);
        }
    }
}
