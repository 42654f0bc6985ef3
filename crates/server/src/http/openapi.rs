//! `/openapi.json`: the routes as OpenAPI 3.1, made from the one table that the router is made from. The
//! schemas stand in a file of their own; every exchange of the tests is held against them.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Map, Value, json};

use super::answer;
use super::app::App;
use super::keys::Demand;
use super::route::{Answered, Route};
use super::routes::ROUTES;
use crate::problem::Problem;

const SCHEMAS: &str = include_str!("openapi/schemas.json");

/// Bodies without a field that must be there: an empty one is read as `{}`.
const TAKES_NOTHING_TOO: &[&str] = &["Begin", "ChangeEndpoint", "NewPolicy"];

const ABOUT: &str = "One resilient facade before databases. Every error is an application/problem+json document \
    with a stable code; `sent` says whether the call may have taken effect. x-role: the least role that a key needs.";

/// The document at `/openapi.json`: every route with its parameters, body, answers and the role that it asks
/// for, and every code of a problem.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operations = paths.entry(route.path).or_insert_with(|| json!({}));
        operations[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Mainstay", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT},
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "responses": {
                "Problem": {
                    "description": "What is wrong, whether it may have taken effect, and what to do",
                    "content": {"application/problem+json": {"schema": reference("Problem")}},
                },
            },
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
            },
        },
    })
}

/// The file's schemas, with the codes that there are.
fn schemas() -> Value {
    // A test reads the same text.
    let mut schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let codes: Map<String, Value> = Problem::codes()
        .map(|(code, status)| (code.to_owned(), status.into()))
        .collect();
    let code = &mut schemas["Problem"]["properties"]["code"];
    code["enum"] = codes.keys().cloned().collect();
    code["x-status"] = codes.into();
    schemas
}

fn reference(schema: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{schema}")})
}

fn operation(route: &Route) -> Value {
    let mut operation = json!({
        "operationId": id(route),
        "summary": route.summary,
        "tags": [tag(route.path)],
        "parameters": parameters(route),
        "responses": {
            (route.status.to_string()): answer_of(route),
            "default": {"$ref": "#/components/responses/Problem"},
        },
    });
    if let Some(schema) = route.body {
        operation["requestBody"] = json!({
            "required": !TAKES_NOTHING_TOO.contains(&schema),
            "content": {"application/json": {"schema": reference(schema)}},
        });
    }
    if route.path == "/readyz" {
        operation["responses"]["503"] = answer_of(route);
    }
    match route.demand {
        Demand::Open => operation["security"] = json!([]),
        Demand::Role(role) => {
            operation["security"] = json!([{}, {"bearer": []}, {"key": []}]);
            operation["x-role"] = role.as_str().into();
        }
    }
    operation
}

fn answer_of(route: &Route) -> Value {
    let content = match route.answer {
        Answered::Json(schema) => json!({"application/json": {"schema": reference(schema)}}),
        Answered::JsonOrLines(schema) => json!({
            "application/json": {"schema": reference(schema)},
            // A document of many lines: the schema is that of each.
            "application/x-ndjson": {"x-line-schema": reference("Line")},
        }),
        Answered::Text(media) => json!({(media): {"schema": {"type": "string"}}}),
    };
    json!({"description": route.summary, "content": content})
}

/// Names in the path, what stands behind it, and the headers that every call takes.
fn parameters(route: &Route) -> Vec<Value> {
    let names = route
        .path
        .split('/')
        .filter_map(|step| step.strip_prefix('{')?.strip_suffix('}'));
    let names = names.map(|name| {
        json!({"name": name, "in": "path", "required": true, "schema": {"type": "string", "minLength": 1}})
    });
    let params = route.params.iter().map(|param| {
        let schema = json!({"type": param.kind});
        json!({"name": param.name, "in": "query", "description": param.about, "schema": schema})
    });
    let mut all: Vec<Value> = names.chain(params).collect();
    if route.body.is_some() && route.path.starts_with("/v1/sources/") {
        let header = |name: &str, schema: Value, about: &str| json!({"name": name, "in": "header", "description": about, "schema": schema});
        all.extend([
            header(
                "X-Session",
                reference("Key"),
                "reads see what this session has written",
            ),
            header(
                "X-Deadline-Ms",
                json!({"type": "integer", "minimum": 1}),
                "how long the call may take",
            ),
            header(
                "Idempotency-Key",
                reference("Key"),
                "of a write, where the source keeps keys: sent again with the same key it has its effect once, and the answer of the first time with `Idempotency-Replayed: true`",
            ),
        ]);
    }
    all
}

/// `postSourcesQuery` for `POST /v1/sources/{source}/query`.
fn id(route: &Route) -> String {
    let mut id = route.method.to_lowercase();
    for step in route.path.trim_start_matches("/v1").split('/') {
        let word = step.trim_matches(['{', '}']).replace(".json", "");
        let own = if step.starts_with('{') { "By" } else { "" };
        let words = word.split('_').map(|word| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_uppercase() + rest
        });
        id.push_str(own);
        id.extend(words);
    }
    id
}

fn tag(path: &str) -> &'static str {
    match path {
        path if path.starts_with("/v1/admin") || path.ends_with("/overrides") => "admin",
        path if path.contains("/endpoints") => "endpoints",
        path if path.contains("/transactions") => "transactions",
        path if path.contains("/entities") || path.ends_with("_entity") => "entities",
        path if path.starts_with("/v1/sources/{source}/") && !is_seen(path) => "calls",
        _ => "seeing",
    }
}

fn is_seen(path: &str) -> bool {
    ["/slo", "/metrics", "/audit", "/watchdog"]
        .iter()
        .any(|end| path.ends_with(end))
}

pub(super) async fn serve(State(app): State<Arc<App>>) -> Response {
    answer::json(app.document())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Every reference in a document.
    fn references(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    match member {
                        Value::String(target) if name == "$ref" => {
                            found.insert(target.clone());
                        }
                        member => references(member, found),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| references(item, found)),
            _ => {}
        }
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        let document = openapi();
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        for target in &found {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
        let schemas = document["components"]["schemas"].as_object().unwrap();
        assert!(schemas.len() > 50, "the file was not read");
        for name in schemas.keys() {
            let target = format!("#/components/schemas/{name}");
            assert!(found.contains(&target), "nobody uses {name}");
        }
    }

    #[test]
    fn every_route_is_described_under_a_name_of_its_own() {
        let mut ids = BTreeSet::new();
        for route in ROUTES {
            assert!(!route.summary.is_empty(), "{} {}", route.method, route.path);
            assert!(ids.insert(id(route)), "{} twice", id(route));
            let answer = format!("{}", answer_of(route));
            assert!(
                !answer.contains("/Problem\""),
                "{} has no answer",
                route.path
            );
        }
        assert!(ids.contains("postSourcesBySourceQuery"), "{ids:?}");
    }

    /// A route that is added past the table would be described nowhere and ask nobody for a key.
    #[test]
    fn no_route_is_added_past_the_table() {
        let mut folders = vec![std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src")];
        let mut adds = Vec::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let shipped = text.split("#[cfg(test)]").next().unwrap();
                for word in [".route(", ".nest(", ".route_service(", ".nest_service("] {
                    let count = shipped.matches(word).count();
                    adds.extend(std::iter::repeat_n(path.clone(), count));
                }
            }
        }
        assert_eq!(adds.len(), 1, "{adds:?}");
        assert!(adds[0].ends_with("http/routes.rs"), "{adds:?}");
    }
}
