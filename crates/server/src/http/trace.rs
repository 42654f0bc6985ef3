//! W3C trace context: read strictly by its rules (<https://www.w3.org/TR/trace-context/>). What is malformed
//! is passed over and a new trace begun, as they ask for.

use std::fmt;

use axum::http::{HeaderMap, HeaderValue};
use mainstay_engine::{Chance, CorrelationId};

const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";
/// Bytes of a `traceparent` of version 00.
const LENGTH: usize = 55;
/// The one flag that is passed on: the trace is recorded.
const SAMPLED: u8 = 1;
/// Members of a `tracestate` at most.
const MEMBERS_MAX: usize = 32;
/// Bytes of one key or value of a `tracestate` at most.
const PART_BYTES_MAX: usize = 256;
/// Bytes of a whole `tracestate` that is passed on; the rules ask for 512 at least.
const STATE_BYTES_MAX: usize = 8192;

/// The trace that a request belongs to, with what this server adds to it.
#[derive(Debug, Clone)]
pub(super) struct Trace {
    id: u128,
    /// This server's own part of the trace.
    span: u64,
    flags: u8,
    /// As it came, if it was valid.
    state: Option<HeaderValue>,
}

impl Trace {
    /// The trace of a request that names one; `None`: it names none, or not by the rules.
    pub(super) fn read(headers: &HeaderMap, chance: &Chance) -> Option<Self> {
        let mut given = headers.get_all(TRACEPARENT).into_iter();
        let parent = given.next()?;
        if given.next().is_some() {
            return None;
        }
        let (id, flags) = parent_of(parent.as_bytes())?;
        Some(Trace {
            id,
            span: span(chance),
            flags,
            state: state_of(headers),
        })
    }

    /// A new trace under an id that answers and log lines carry already.
    pub(super) fn begin(id: CorrelationId, chance: &Chance) -> Self {
        // All zeros would be no trace.
        let id = if id.0 == 0 { chance.u128() | 1 } else { id.0 };
        Trace {
            id,
            span: span(chance),
            flags: 0,
            state: None,
        }
    }

    /// Its id, in the place of a correlation id.
    pub(super) fn id(&self) -> CorrelationId {
        CorrelationId(self.id)
    }

    /// Says it in the headers of an answer.
    pub(super) fn write(self, headers: &mut HeaderMap) {
        if let Ok(parent) = HeaderValue::try_from(self.to_string()) {
            headers.insert(TRACEPARENT, parent);
        }
        if let Some(state) = self.state {
            headers.insert(TRACESTATE, state);
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trace {
            id, span, flags, ..
        } = self;
        write!(f, "00-{id:032x}-{span:016x}-{flags:02x}")
    }
}

fn span(chance: &Chance) -> u64 {
    chance.draw().max(1)
}

/// Trace id and flags of a `traceparent`. A later version is read as far as this one knows it.
fn parent_of(value: &[u8]) -> Option<(u128, u8)> {
    let (known, later) = value.split_at_checked(LENGTH)?;
    let version = &known[..2];
    let has_its_shape = match version {
        b"ff" => false,
        b"00" => later.is_empty(),
        _ => later.is_empty() || later.starts_with(b"-"),
    };
    let is_apart = [2, 35, 52].iter().all(|at| known[*at] == b'-');
    let parts = [&known[..2], &known[3..35], &known[36..52], &known[53..]];
    let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let are_hex = parts.iter().all(|part| part.iter().all(is_hex));
    if !(has_its_shape && is_apart && are_hex) {
        return None;
    }
    let number = |part: &[u8]| u128::from_str_radix(std::str::from_utf8(part).ok()?, 16).ok();
    let (id, span) = (number(parts[1])?, number(parts[2])?);
    let flags = u8::try_from(number(parts[3])?).ok()?;
    (id != 0 && span != 0).then_some((id, flags & SAMPLED))
}

/// The whole `tracestate`; one that breaks a rule is left out whole.
fn state_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let values: Vec<&[u8]> = headers
        .get_all(TRACESTATE)
        .into_iter()
        .map(HeaderValue::as_bytes)
        .collect();
    let whole = values.join(&b","[..]);
    if whole.len() > STATE_BYTES_MAX {
        return None;
    }
    let mut keys = Vec::new();
    for member in whole.split(|byte| *byte == b',') {
        let member = member.trim_ascii();
        if member.is_empty() {
            continue;
        }
        let at = member.iter().position(|byte| *byte == b'=')?;
        let (key, value) = (&member[..at], &member[at + 1..]);
        let is_too_much = keys.len() == MEMBERS_MAX;
        if is_too_much || !is_key(key) || !is_value(value) || keys.contains(&key) {
            return None;
        }
        keys.push(key);
    }
    match keys.is_empty() {
        true => None,
        false => HeaderValue::from_bytes(&whole).ok(),
    }
}

/// `key`, or `tenant@system`.
fn is_key(key: &[u8]) -> bool {
    let is_inner = |byte: &u8| {
        byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || matches!(byte, b'_' | b'-' | b'*' | b'/')
    };
    let mut parts = key.split(|byte| *byte == b'@');
    let (first, system, more) = (parts.next(), parts.next(), parts.next());
    let begins = |part: &[u8], digit: bool| {
        let first = part.first();
        first.is_some_and(|byte| byte.is_ascii_lowercase() || (digit && byte.is_ascii_digit()))
    };
    let fits = |part: &[u8], digit: bool, max: usize| {
        part.len() <= max && begins(part, digit) && part.iter().all(is_inner)
    };
    match (first, system, more) {
        (Some(key), None, None) => fits(key, true, PART_BYTES_MAX),
        (Some(tenant), Some(system), None) => fits(tenant, true, 241) && fits(system, false, 14),
        _ => false,
    }
}

fn is_value(value: &[u8]) -> bool {
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b',' | b'=');
    (1..=PART_BYTES_MAX).contains(&value.len()) && value.iter().all(is_printable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        headers
    }

    #[test]
    fn a_traceparent_is_read_by_the_rules_and_passed_over_where_it_breaks_one() {
        let good = format!("00-{ID}-00f067aa0ba902b7-01");
        let table = [
            (good.clone(), Some("01")),
            (good.replace("-01", "-00"), Some("00")),
            // Flags that are not known are not passed on.
            (good.replace("-01", "-ff"), Some("01")),
            (good.replace("00-4", "cc-4"), Some("01")),
            (good.replace("00-4", "cc-4") + "-what-comes", Some("01")),
            (good.replace("00-4", "cc-4") + "what-comes", None),
            (good.replace("00-4", "ff-4"), None),
            (good.replace("00-4", "0-4"), None),
            (good.clone() + "-01", None),
            (good.clone() + "0", None),
            (good.to_uppercase(), None),
            (good.replace("4bf9", "4BF9"), None),
            (good.replace(ID, &"0".repeat(32)), None),
            (good.replace("00f067aa0ba902b7", &"0".repeat(16)), None),
            (good.replace("4bf9", "4bg9"), None),
            (good.replace("-00f0", "_00f0"), None),
            (good.replace("4bf9", "+bf9"), None),
            (good[..54].to_owned(), None),
            ("00-0-0-0".to_owned(), None),
            ("\u{e9}".repeat(28), None),
            (String::new(), None),
        ];
        let chance = Chance::seeded(1);
        for (value, flags) in table {
            let read = Trace::read(&headers(&[("traceparent", &value)]), &chance);
            let told = read.map(|trace| trace.to_string());
            assert_eq!(told.is_some(), flags.is_some(), "{value}: {told:?}");
            if let (Some(told), Some(flags)) = (told, flags) {
                assert_eq!(
                    (&told[..36], &told[52..]),
                    (&*format!("00-{ID}-"), &*format!("-{flags}"))
                );
                assert_ne!(&told[36..52], "00f067aa0ba902b7", "a span of its own");
            }
        }
        let twice = headers(&[("traceparent", &good), ("traceparent", &good)]);
        assert!(Trace::read(&twice, &chance).is_none());
    }

    #[test]
    fn a_tracestate_is_passed_on_as_it_came_or_not_at_all() {
        let good = format!("00-{ID}-00f067aa0ba902b7-01");
        let many = |count: usize| {
            let members: Vec<String> = (0..count).map(|at| format!("k{at}=v")).collect();
            members.join(",")
        };
        let (most, too_many) = (many(32), many(33));
        let long = format!("a={}", "x".repeat(257));
        let table: [(&[&str], Option<&str>); 16] = [
            (&["rojo=00f067aa0ba902b7"], Some("rojo=00f067aa0ba902b7")),
            (&["a=1", "b=2"], Some("a=1,b=2")),
            (&["a=1, ,b=2"], Some("a=1, ,b=2")),
            (&["fw529a3039@dt=x y"], Some("fw529a3039@dt=x y")),
            (&["1a-_*/=!"], Some("1a-_*/=!")),
            (&[&most], Some(&most)),
            (&[&too_many], None),
            (&["a=1,a=2"], None),
            (&["A=1"], None),
            (&["a"], None),
            (&["a="], None),
            (&["=1"], None),
            (&["a@1b=1"], None),
            (&["a=\u{e9}"], None),
            (&[&long], None),
            (&[""], None),
        ];
        let chance = Chance::seeded(1);
        for (states, expected) in table {
            let mut pairs = vec![("traceparent", good.as_str())];
            pairs.extend(states.iter().map(|state| ("tracestate", *state)));
            let mut answer = HeaderMap::new();
            let trace = Trace::read(&headers(&pairs), &chance).unwrap();
            trace.write(&mut answer);
            let told = answer.get("tracestate").map(|told| told.to_str().unwrap());
            assert_eq!(told, expected, "{states:?}");
        }
        let alone = headers(&[("tracestate", "a=1")]);
        assert!(Trace::read(&alone, &chance).is_none());
    }

    #[test]
    fn a_new_trace_has_the_id_that_answers_carry() {
        let chance = Chance::seeded(1);
        let told = Trace::begin(CorrelationId(0xab), &chance).to_string();
        assert!(told.starts_with(&format!("00-{:032x}-", 0xab)), "{told}");
        assert!(told.ends_with("-00"), "{told}");
        assert_ne!(Trace::begin(CorrelationId(0), &chance).id().0, 0);
    }
}
