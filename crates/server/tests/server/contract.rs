//! The served document as a judge: every exchange of the tests is held against it.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::Validator;
use parking_lot::Mutex;
use serde_json::{Value, json};

/// The document with the schemas that were needed so far.
#[derive(Clone)]
pub(super) struct Contract {
    document: Arc<Value>,
    validators: Arc<Mutex<HashMap<String, Arc<Validator>>>>,
}

/// One exchange as it went over the wire.
pub(super) struct Exchange<'a> {
    pub(super) method: &'a str,
    pub(super) path: &'a str,
    pub(super) sent: &'a [u8],
    pub(super) status: u16,
    pub(super) media: &'a str,
    pub(super) answered: &'a str,
}

impl Contract {
    pub(super) fn new() -> Self {
        Contract {
            document: Arc::new(mainstay_server::openapi()),
            validators: Arc::default(),
        }
    }

    pub(super) fn document(&self) -> &Value {
        &self.document
    }

    /// The operation that a request is for; `None`: there is no such route.
    pub(super) fn operation(&self, method: &str, path: &str) -> Option<&Value> {
        let path = path.split('?').next().unwrap();
        let method = if method == "HEAD" { "GET" } else { method };
        let paths = self.document["paths"].as_object().unwrap();
        let fits = |template: &str| {
            let (wanted, given) = (template.split('/'), path.split('/'));
            let same = |(wanted, given): (&str, &str)| {
                wanted == given || (wanted.starts_with('{') && !given.is_empty())
            };
            template.matches('/').count() == path.matches('/').count()
                && wanted.zip(given).all(same)
        };
        let found = paths.iter().find(|(template, _)| fits(template))?;
        found.1.get(method.to_lowercase())
    }

    /// Whether a value is one of a schema of the document; what is wrong with it otherwise.
    pub(super) fn check(&self, schema: &Value, value: &Value) -> Result<(), String> {
        let key = schema.to_string();
        let known = self.validators.lock().get(&key).cloned();
        let validator = known.unwrap_or_else(|| {
            let mut whole = schema.clone();
            whole["components"] = self.document["components"].clone();
            let made = Arc::new(jsonschema::draft202012::new(&whole).unwrap());
            self.validators.lock().insert(key, Arc::clone(&made));
            made
        });
        validator.validate(value).map_err(|error| {
            let shown: String = value.to_string().chars().take(2000).collect();
            format!("{error} at {}: {shown}", error.instance_path())
        })
    }

    /// Holds an exchange against the document.
    ///
    /// # Panics
    /// It is not as described.
    pub(super) fn hold(&self, exchange: &Exchange<'_>) {
        if let Err(wrong) = self.judge(exchange) {
            let Exchange {
                method,
                path,
                status,
                ..
            } = exchange;
            panic!("{method} {path}, answered {status}, is not as described: {wrong}");
        }
    }

    /// What an exchange has that the document does not say.
    pub(super) fn judge(&self, exchange: &Exchange<'_>) -> Result<(), String> {
        if exchange.method == "HEAD" {
            return Ok(());
        }
        let operation = self.operation(exchange.method, exchange.path);
        if exchange.media == "application/problem+json" {
            let problem = parse(exchange.answered)?;
            return self.check(&reference("Problem"), &problem);
        }
        let operation = operation.ok_or("the route is not described")?;
        let status = exchange.status.to_string();
        let answers = operation["responses"].get(&status);
        let media = exchange.media.split(';').next().unwrap();
        let content = answers.ok_or("its status is not described")?["content"].get(media);
        let content = content.ok_or_else(|| format!("nor is its media type {media:?}"))?;
        match media {
            "application/json" => self.check(&content["schema"], &parse(exchange.answered)?)?,
            "application/x-ndjson" => {
                for line in exchange.answered.lines() {
                    self.check(&content["x-line-schema"], &parse(line)?)?;
                }
            }
            _ => {}
        }
        let body = &operation["requestBody"];
        if exchange.status >= 300 || body.is_null() {
            return Ok(());
        }
        // What went well was a body as described. An empty one is read as {}.
        let sent = std::str::from_utf8(exchange.sent).map_err(|error| error.to_string())?;
        let sent = if sent.trim().is_empty() { "{}" } else { sent };
        let schema = &body["content"]["application/json"]["schema"];
        self.check(schema, &parse(sent)?)
    }
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error}: {text}"))
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}
