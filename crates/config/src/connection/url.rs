//! URLs of endpoints: `postgres://user:password@host:port/database?sslmode=…`, the same with `mysql` or
//! `mariadb`, `sqlite:path`.
//! No message shows more of a URL than its scheme and the names in its query: it may hold a password. Of
//! one that is kept with the secrets nothing is shown, since it may be no URL at all.

use crate::problem::Wrong;

/// The same for a text that is kept with the secrets: what is wrong with it is told without any of it.
pub(crate) fn parse_secret(text: &str) -> Result<Vec<(String, String)>, Wrong> {
    parse(text).map_err(|_| {
        Wrong::new("what is kept there is no URL that this version can use").hint(KNOWN)
    })
}

/// The connection keys that a URL stands for. A key that is given twice in it is an error.
pub(crate) fn parse(text: &str) -> Result<Vec<(String, String)>, Wrong> {
    let Some((scheme, rest)) = text.split_once(':') else {
        return Err(Wrong::new("the URL has no scheme").hint(KNOWN));
    };
    let parts = match scheme {
        "postgres" | "postgresql" => in_server("postgres", rest)?,
        "mysql" | "mariadb" => in_server("mysql", rest)?,
        "sqlite" => sqlite(rest)?,
        _ => {
            let word: String = scheme.chars().take(20).collect();
            return match crate::Driver::named(scheme) {
                // A driver that is known, but has no URLs of that name.
                Ok(_) => Err(Wrong::new(format!("unknown scheme {word:?}")).hint(KNOWN)),
                Err(wrong) if wrong.message.ends_with("in this version") => Err(wrong),
                Err(_) => Err(Wrong::new(format!("unknown scheme {word:?}")).hint(KNOWN)),
            };
        }
    };
    let mut names: Vec<&str> = parts.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(Wrong::new(format!("the URL gives {} twice", pair[0]))),
        None => Ok(parts),
    }
}

const KNOWN: &str = "known: postgres://user@host:5432/database, mysql://user@host:3306/database, \
     mariadb://user@host:3306/database, sqlite:path";

type Parts = Vec<(String, String)>;

fn part(parts: &mut Parts, name: &str, value: &str) -> Result<(), Wrong> {
    if !value.is_empty() {
        parts.push((name.to_owned(), decoded(value)?));
    }
    Ok(())
}

fn sqlite(rest: &str) -> Result<Parts, Wrong> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if path.is_empty() {
        return Err(Wrong::new("the URL names no file").hint("such as sqlite:./orders.db"));
    }
    let mut parts = vec![("driver".to_owned(), "sqlite".to_owned())];
    part(&mut parts, "path", path)?;
    for (name, value) in pairs(query) {
        part(&mut parts, &format!("options.{}", decoded(name)?), value)?;
    }
    Ok(parts)
}

fn in_server(driver: &str, rest: &str) -> Result<Parts, Wrong> {
    let rest = rest
        .strip_prefix("//")
        .ok_or_else(|| Wrong::new("the URL lacks // behind its scheme").hint(KNOWN))?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let mut parts = vec![("driver".to_owned(), driver.to_owned())];
    let (login, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    part(&mut parts, "user", user)?;
    part(&mut parts, "password", password)?;
    server(&mut parts, host)?;
    part(&mut parts, "database", database)?;
    for (name, value) in pairs(query) {
        query_part(&mut parts, &decoded(name)?, value)?;
    }
    Ok(parts)
}

fn server(parts: &mut Parts, host: &str) -> Result<(), Wrong> {
    if host.contains(',') {
        return Err(Wrong::new("the URL names several hosts").hint("one endpoint for each"));
    }
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, rest) = rest
                .split_once(']')
                .ok_or_else(|| Wrong::new("the URL lacks ] behind the address"))?;
            (name, rest.strip_prefix(':').unwrap_or(rest))
        }
        None => host.split_once(':').unwrap_or((host, "")),
    };
    part(parts, "host", name)?;
    part(parts, "port", port)
}

fn query_part(parts: &mut Parts, name: &str, value: &str) -> Result<(), Wrong> {
    let mapped = match name {
        // PostgreSQL's words, MySQL's words, our own.
        "sslmode" | "ssl-mode" | "ssl_mode" | "tls" => {
            let mode = match value.to_ascii_lowercase().as_str() {
                "off" | "disable" | "disabled" => "off",
                "allow" | "prefer" | "preferred" => "prefer",
                "require" | "required" => "require",
                "verify-ca" | "verify_ca" => "verify-ca",
                "verify-full" | "verify_identity" => "verify-full",
                _ => {
                    return Err(Wrong::new(format!("the URL's {name} is not known"))
                        .hint("disable, prefer, require, verify-ca or verify-full"));
                }
            };
            return part(parts, "tls", mode);
        }
        "sslrootcert" | "ssl-ca" => "tls_ca",
        "sslcert" | "ssl-cert" => "tls_cert",
        "sslkey" | "ssl-key" => "tls_key",
        "host" | "port" | "user" | "password" | "dbname" => {
            return Err(Wrong::new(format!("{name} stands in the URL's query"))
                .hint("write it in front of the ?, or as a key of its own"));
        }
        other => return part(parts, &format!("options.{other}"), value),
    };
    part(parts, mapped, value)
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Percent-decoding; a plus stays a plus, as in PostgreSQL's own URLs.
fn decoded(text: &str) -> Result<String, Wrong> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match (digit(rest.next()), digit(rest.next())) {
            (Some(high), Some(low)) => bytes.push(u8::try_from(high * 16 + low).unwrap_or(b'?')),
            _ => {
                return Err(Wrong::new("the URL has a % without two hexadecimal digits")
                    .hint("write a % itself as %25"));
            }
        }
    }
    let text =
        String::from_utf8(bytes).map_err(|_| Wrong::new("the URL's escapes are not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(Wrong::new("the URL contains a control character"));
    }
    Ok(text)
}
