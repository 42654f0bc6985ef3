//! What bodies of calls have in common: options, parameters, filters.

use std::time::Duration;

use mainstay_engine::Safety;
use mainstay_engine::policy::ReadFrom;
use mainstay_sql::{
    AnswerMax, CacheUse, Code, Database, Filter, Kind, Operator, Options, Order, SqlError, Value,
    value,
};
use serde::Deserialize;
use serde_json::Value as Json;

use super::place::Place;
use crate::http::app::App;
use crate::http::caller::{Caller, checked_key};
use crate::http::object::object;
use crate::problem::Problem;

/// A value in memory takes more than its JSON; a collected answer may take this many times
/// `server.answer_max`, so that it is the JSON that is measured.
const MEMORY_PER_JSON: u64 = 4;

/// The object `options` of a body. Its values go before those of headers.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct CallOptions {
    cache: Option<Word>,
    ttl: Option<Word>,
    deadline: Option<Word>,
    session: Option<Word>,
    read_from: Option<Word>,
    safety: Option<Word>,
    idempotency_key: Option<Word>,
}

/// A value that should be a text: what else it is can be told with what would be right.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Word(Json);

impl Word {
    fn text(&self, option: &str, hint: &str) -> Result<&str, Problem> {
        match &self.0 {
            Json::String(text) => Ok(text),
            other => {
                let shown: String = other.to_string().chars().take(40).collect();
                let message = format!("options.{option}: expected a text, got {shown}");
                Err(Problem::bad_request(message, hint))
            }
        }
    }
}

const CACHE: &str =
    "use one of \"off\", \"use\", \"refresh\"; only off is available in this version";
const DURATION: &str = "a number with its unit, such as \"500ms\" or \"2s\"";
const KEY: &str = "send 1 to 256 bytes of text, or leave it out";
const READ_FROM: &str = "use one of any, replica, primary";
const SAFETY: &str = "use one of read, idempotent_write, write";

impl CallOptions {
    /// With what the headers and the limits of the server say.
    pub(super) fn complete(self, caller: &Caller, app: &App) -> Result<Options, Problem> {
        let mut options = caller.options();
        if let Some(word) = &self.cache {
            options.cache = match word.text("cache", CACHE)? {
                "off" => CacheUse::Off,
                "use" => CacheUse::Use,
                "refresh" => CacheUse::Refresh,
                word => return Err(not_one_of("cache", word, CACHE)),
            };
        }
        if let Some(word) = &self.ttl {
            options.ttl = Some(duration("ttl", word.text("ttl", DURATION)?)?);
        }
        if let Some(word) = &self.deadline {
            options.deadline = Some(deadline(word.text("deadline", DURATION)?)?);
        }
        if let Some(key) = &self.session {
            let key = key.text("session", KEY)?;
            options.session = Some(checked_key("options.session", key)?);
        }
        if let Some(key) = &self.idempotency_key {
            let key = key.text("idempotency_key", KEY)?;
            options.idempotency_key = Some(checked_key("options.idempotency_key", key)?);
        }
        if let Some(word) = &self.read_from {
            let word = word.text("read_from", READ_FROM)?;
            let parsed = ReadFrom::parse(word);
            let parsed = parsed.ok_or_else(|| not_one_of("read_from", word, READ_FROM));
            options.read_from = Some(parsed?);
        }
        if let Some(word) = &self.safety {
            options.safety = Some(match word.text("safety", SAFETY)? {
                "read" => Safety::Read,
                "idempotent_write" => Safety::IdempotentWrite,
                "write" => Safety::Write,
                word => return Err(not_one_of("safety", word, SAFETY)),
            });
        }
        if caller.holder.only_reads() {
            if options.safety.is_some_and(|safety| !safety.is_read()) {
                return Err(caller.holder.refuse_write());
            }
            // A read stays one: the session refuses whatever the text does beyond it.
            options.safety = Some(Safety::Read);
        }
        options.answer_max = AnswerMax {
            rows: u64::MAX,
            bytes: app.settings().answer_max.saturating_mul(MEMORY_PER_JSON),
        };
        options.stream_idle = Some(app.settings().stream_idle);
        Ok(options)
    }
}

fn not_one_of(option: &str, word: &str, hint: &str) -> Problem {
    let word: String = word.chars().take(40).collect();
    Problem::bad_request(format!("options.{option}: unknown value {word:?}"), hint)
}

fn duration(option: &str, text: &str) -> Result<Duration, Problem> {
    mainstay_config::duration(text).ok_or_else(|| {
        let text: String = text.chars().take(40).collect();
        Problem::bad_request(
            format!("options.{option}: {text:?} is not a duration"),
            DURATION,
        )
    })
}

/// How long the call may take: a duration, or a moment in UTC.
fn deadline(text: &str) -> Result<Duration, Problem> {
    let passed = || {
        Problem::bad_request(
            format!("options.deadline: {text} has passed before the call began"),
            "give a duration above 0 or a moment to come",
        )
    };
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        let left = moment.duration_since(jiff::Timestamp::now());
        let left = Duration::try_from(left).map_err(|_| passed())?;
        return (!left.is_zero()).then_some(left).ok_or_else(passed);
    }
    let time = duration("deadline", text)?;
    (!time.is_zero()).then_some(time).ok_or_else(passed)
}

/// A statement as it comes in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatementBody {
    pub(super) sql: String,
    #[serde(default)]
    pub(super) params: Vec<Json>,
    #[serde(default, deserialize_with = "object")]
    pub(super) options: CallOptions,
}

impl StatementBody {
    /// The text, once it can be one.
    pub(super) fn text(&self) -> Result<&str, Problem> {
        checked_text(&self.sql)
    }
}

/// Refuses a statement that changes something to those that only read. A SELECT whose functions are not
/// known is left to its session, which is read-only.
pub(super) fn refuse_write(place: &Place, caller: &Caller, sql: &str) -> Result<(), Problem> {
    if !caller.holder.only_reads() {
        return Ok(());
    }
    let class = place.served.proxy().schema().classify(sql);
    let may_read = class.kind == Kind::Select && !class.unknown_functions.is_empty();
    match class.safety.is_read() || may_read {
        true => Ok(()),
        false => Err(caller.holder.refuse_write()),
    }
}

/// Refuses what begins or ends a transaction, which has routes of its own.
pub(super) fn refuse_control(place: &Place, sql: &str) -> Result<(), Problem> {
    let class = place.served.proxy().schema().classify(sql);
    if !class.is_transaction_control {
        return Ok(());
    }
    let routes = format!("/v1/sources/{}/transactions", place.served.name());
    Err(Problem::new(
        "bad_statement",
        "BEGIN, COMMIT, ROLLBACK and SAVEPOINT are not run as statements",
        format!(
            "POST {routes} begins a transaction; it goes on at {routes}/ID/query, execute and savepoint, and ends at commit or rollback"
        ),
    ))
}

/// A text of SQL that a database can be given.
pub(super) fn checked_text(sql: &str) -> Result<&str, Problem> {
    if sql.trim_ascii().is_empty() {
        return Err(Problem::new(
            "bad_statement",
            "the statement is empty",
            "send SQL in the field sql",
        ));
    }
    if let Some(at) = sql.find('\0') {
        return Err(Problem::new(
            "bad_statement",
            format!("the statement has a NUL byte at {at}"),
            "leave it out; bytes belong into parameters of type bytes",
        ));
    }
    Ok(sql)
}

/// Parameters, each with its place in what may be wrong.
pub(super) fn params(params: &[Json]) -> Result<Vec<Value>, SqlError> {
    let numbered = params.iter().enumerate();
    numbered
        .map(|(index, json)| {
            let number = (index + 1).to_string();
            value::from_json(json, None).map_err(|error| error.place("parameter", number))
        })
        .collect()
}

/// A condition as it comes in.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FilterBody {
    field: String,
    #[serde(default = "equal")]
    operator: String,
    value: Option<Json>,
    values: Option<Vec<Json>>,
}

fn equal() -> String {
    "=".to_owned()
}

/// Conditions that must all hold.
pub(super) fn filters(bodies: Vec<FilterBody>) -> Result<Vec<Filter>, SqlError> {
    bodies.into_iter().map(filter).collect()
}

fn filter(body: FilterBody) -> Result<Filter, SqlError> {
    let operator = Operator::parse(&body.operator)?;
    let values = match (body.value, body.values) {
        (Some(_), Some(_)) => {
            return Err(SqlError::caller(
                Code::BadRequest,
                format!("the filter of {:?} has value and values", body.field),
                "give one of the two",
            ));
        }
        (Some(one), None) => vec![one],
        (None, several) => several.unwrap_or_default(),
    };
    let of_field = |error: SqlError| error.place("field", body.field.clone());
    let values: Result<Vec<Value>, SqlError> = values
        .iter()
        .map(|json| value::from_json(json, None).map_err(of_field))
        .collect();
    Ok(Filter::new(body.field.clone(), operator, values?))
}

/// One column that rows are ordered by.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OrderBody {
    field: String,
    #[serde(default)]
    descending: bool,
}

impl From<OrderBody> for Order {
    fn from(body: OrderBody) -> Self {
        Order {
            field: body.field,
            descending: body.descending,
        }
    }
}

/// Columns with their values, in the order of their names.
pub(super) fn record(
    fields: &serde_json::Map<String, Json>,
) -> Result<Vec<(String, Value)>, SqlError> {
    let fields = fields.iter();
    fields
        .map(|(name, json)| {
            let value = value::from_json(json, None);
            let value = value.map_err(|error| error.place("column", name.clone()))?;
            Ok((name.clone(), value))
        })
        .collect()
}

/// Refuses a list that is longer than one request may have.
pub(super) fn check_count(what: &str, count: usize, max: u32) -> Result<(), Problem> {
    if u64::try_from(count).is_ok_and(|count| count <= u64::from(max)) {
        return Ok(());
    }
    Err(Problem::bad_request(
        format!("{count} {what} in one request; at most {max} are taken"),
        "send them in several requests, or raise the limit in [server]",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadlines_are_durations_or_moments_to_come() {
        assert_eq!(deadline("250ms").unwrap(), Duration::from_millis(250));
        let soon = (jiff::Timestamp::now() + Duration::from_secs(60)).to_string();
        assert!(deadline(&soon).unwrap() > Duration::from_secs(50));
        for wrong in ["0s", "0", "500", "-1s", "", "2001-01-01T00:00:00Z", "soon"] {
            assert_eq!(
                deadline(wrong).unwrap_err().code(),
                "bad_request",
                "{wrong}"
            );
        }
    }

    #[test]
    fn a_filter_has_one_value_or_several() {
        let parse = |json: &str| filter(serde_json::from_str(json).unwrap());
        let one = parse(r#"{"field": "a", "value": 1}"#).unwrap();
        assert_eq!((one.operator, one.values.len()), (Operator::Equal, 1));
        let two = parse(r#"{"field": "a", "operator": "between", "values": [1, 2]}"#).unwrap();
        assert_eq!(two.values.len(), 2);
        assert!(parse(r#"{"field": "a", "value": 1, "values": [1]}"#).is_err());
        assert!(parse(r#"{"field": "a", "operator": "=="}"#).is_err());
        let typed = r#"{"field": "a", "value": {"type": "i64", "value": "x"}}"#;
        assert_eq!(parse(typed).unwrap_err().code(), Code::BadValue);
    }
}
