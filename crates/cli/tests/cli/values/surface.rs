//! Ways to ask a database, with one question.

use std::fmt;
use std::sync::Arc;

use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mainstay::sql::{Answer, Column, Options, SqlError, Value, Verbs};
use mainstay::{DataProxy, Sent};
use serde_json::Value as Json;
use tokio::net::TcpStream;

use crate::program;

pub(super) enum Surface {
    Library(DataProxy),
    Stream(DataProxy),
    Blocking(mainstay::blocking::Database<DataProxy>),
    Http(String),
    Lines(String),
    Program(Arc<program::Place>, String),
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Surface::Library(_) => "library",
            Surface::Stream(_) => "stream",
            Surface::Blocking(_) => "blocking",
            Surface::Http(_) => "http",
            Surface::Lines(_) => "lines",
            Surface::Program(..) => "program",
        })
    }
}

/// A parameter for each kind of surface.
#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) json: String,
}

#[derive(Debug)]
pub(super) enum Cell {
    Value(Value),
    Json(Json),
}

#[derive(Debug)]
pub(super) struct Rows {
    /// Names of the types.
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<Vec<Cell>>,
}

#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) has_hint: bool,
    pub(super) in_doubt: bool,
    /// For a reader of a failed test.
    _text: String,
}

/// The longest argument that a system hands to a program, with room to spare.
const ARGUMENT_MAX: usize = 64 << 10;

impl Surface {
    pub(super) async fn ask(&self, sql: &str, given: &[Given]) -> Result<Rows, Refusal> {
        let values = || given.iter().map(|given| given.value.clone()).collect();
        let options = Options::default;
        match self {
            Surface::Library(proxy) => typed(proxy.query(sql, values(), options()).await),
            Surface::Blocking(database) => typed(database.query(sql, values(), options())),
            // Only reads are streamed.
            Surface::Stream(proxy) if !sql.starts_with("SELECT") => {
                typed(proxy.execute(sql, values(), options()).await)
            }
            Surface::Stream(proxy) => stream(proxy, sql, values()).await,
            Surface::Http(address) => {
                let body = body(sql, given);
                let (is_good, text) = post(address, "application/json", body).await;
                let answer: Json = serde_json::from_str(&text).unwrap();
                match is_good {
                    true => Ok(document(&answer)),
                    false => Err(problem(&answer)),
                }
            }
            Surface::Lines(address) => {
                let body = body(sql, given);
                let (is_good, text) = post(address, "application/x-ndjson", body).await;
                match is_good {
                    true => lines(&text),
                    false => Err(problem(&serde_json::from_str(&text).unwrap())),
                }
            }
            Surface::Program(place, url) => run(place, url, sql, given),
        }
    }
}

fn refusal(error: &SqlError) -> Refusal {
    Refusal {
        code: error.code().as_str().to_owned(),
        has_hint: error.detail().hint.is_some(),
        in_doubt: error.sent() == Sent::Maybe,
        _text: error.to_string(),
    }
}

fn names(columns: &[Column]) -> Vec<String> {
    let types = columns.iter().map(|column| column.column_type.to_string());
    types.collect()
}

fn cells(rows: Vec<Vec<Value>>) -> Vec<Vec<Cell>> {
    let row = |row: Vec<Value>| row.into_iter().map(Cell::Value).collect();
    rows.into_iter().map(row).collect()
}

fn typed(answer: Result<Answer, SqlError>) -> Result<Rows, Refusal> {
    let answer = answer.map_err(|error| refusal(&error))?;
    Ok(Rows {
        columns: names(&answer.columns),
        rows: cells(answer.rows),
    })
}

async fn stream(proxy: &DataProxy, sql: &str, params: Vec<Value>) -> Result<Rows, Refusal> {
    let stream = proxy.stream_query(sql, params, Options::default()).await;
    let mut stream = stream.map_err(|error| refusal(&error))?;
    let mut rows = Vec::new();
    while let Some(batch) = stream.next().await.map_err(|error| refusal(&error))? {
        rows.extend(cells(batch.rows));
    }
    Ok(Rows {
        columns: names(&stream.columns),
        rows,
    })
}

fn body(sql: &str, given: &[Given]) -> String {
    format!(
        "{{\"sql\": {}, \"params\": {}}}",
        Json::from(sql),
        array(given)
    )
}

fn array(given: &[Given]) -> String {
    let params: Vec<&str> = given.iter().map(|given| given.json.as_str()).collect();
    format!("[{}]", params.join(", "))
}

async fn post(address: &str, accept: &str, body: String) -> (bool, String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let request = Request::post("/v1/sources/s/query")
        .header("host", "localhost")
        .header("accept", accept)
        .header("connection", "close")
        .body(Full::new(Bytes::from(body)))
        .unwrap();
    let answer = async {
        let (head, body) = sender.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head, body)
    };
    let ((head, body), _) = tokio::join!(answer, connection);
    let text = String::from_utf8(body.to_vec()).unwrap();
    (head.status.is_success(), text)
}

fn problem(document: &Json) -> Refusal {
    Refusal {
        code: document["code"].as_str().unwrap().to_owned(),
        has_hint: document["hint"].is_string(),
        in_doubt: document["sent"] == "maybe",
        _text: document.to_string(),
    }
}

fn types(document: &Json) -> Vec<String> {
    let columns = document["columns"].as_array().unwrap().iter();
    let name = |column: &Json| column["type"].as_str().unwrap().to_owned();
    columns.map(name).collect()
}

fn row(row: &Json) -> Vec<Cell> {
    let cells = row.as_array().unwrap().iter();
    cells.cloned().map(Cell::Json).collect()
}

fn document(answer: &Json) -> Rows {
    Rows {
        columns: types(answer),
        rows: answer["rows"].as_array().unwrap().iter().map(row).collect(),
    }
}

fn lines(text: &str) -> Result<Rows, Refusal> {
    let lines: Vec<Json> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (head, rest) = lines.split_first().unwrap();
    let (last, rows) = rest.split_last().unwrap();
    if last["problem"].is_object() {
        return Err(problem(&last["problem"]));
    }
    assert_eq!(last["done"]["rows"], rows.len(), "{last}");
    Ok(Rows {
        columns: types(head),
        rows: rows.iter().map(row).collect(),
    })
}

/// `mainstay query`.
fn run(place: &program::Place, url: &str, sql: &str, given: &[Given]) -> Result<Rows, Refusal> {
    let mut arguments = vec!["query", "--format", "json", "--url", url, sql];
    if given.iter().any(|given| given.json.len() > ARGUMENT_MAX) {
        place.write("params.json", &array(given));
        arguments.extend(["--params", "params.json"]);
    } else {
        for given in given {
            arguments.extend(["--param", given.json.as_str()]);
        }
    }
    let ended = place.run(&arguments);
    if ended.code == 0 {
        return Ok(document(&serde_json::from_str(&ended.out).unwrap()));
    }
    assert_eq!(ended.code, 1, "{ended:?}");
    // `mainstay: what happened [code]; what it did; what to do`
    let (_, code) = ended.err.split_once(" [").unwrap();
    let code = code.split(']').next().unwrap().to_owned();
    Err(Refusal {
        has_hint: ended.err.contains("; "),
        in_doubt: ended.err.contains("may have taken effect"),
        code,
        _text: ended.err,
    })
}
