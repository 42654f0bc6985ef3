//! The served document is true: what it describes is there, and asks and answers as it says.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::contract::{Contract, Exchange};
use super::rig::Rig;
use super::services;

/// Every operation: method, path, operation.
pub(super) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            all.push((method.to_uppercase(), path.clone(), operation.clone()));
        }
    }
    all
}

/// A path with names that exist in the place of its braces.
fn filled(path: &str) -> String {
    let path = path.replace("{source}", "s").replace("{entity}", "t");
    let path = path.replace("{endpoint}", "reader").replace("{id}", "x");
    path.replace("{service}", "compute")
        .replace("{target}", "one")
}

#[tokio::test]
async fn the_document_is_served_to_anybody_and_is_the_one_that_the_routes_are_made_from() {
    let rig = Rig::start().await;
    let reply = rig.client.get("/openapi.json").await;
    assert_eq!(reply.headers["content-type"], "application/json");
    let served = reply.good();
    assert_eq!(served, mainstay_server::openapi());
    assert_eq!(served["openapi"], "3.1.0");
    rig.end().await;
}

#[tokio::test]
async fn every_described_route_is_there_and_no_other_method_of_it() {
    let rig = Rig::start().await;
    let contract = Contract::new();
    let all = operations(contract.document());
    assert!(all.len() > 45, "{}", all.len());
    let mut wrong = Vec::new();
    for (_, path, _) in &all {
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            // Its stream would not end.
            if path == "/v1/events" && method == "GET" {
                continue;
            }
            let is_described = all.iter().any(|(m, p, _)| (&**m, p) == (method, path));
            let reply = rig.client.send(method, &filled(path), &[], "[]").await;
            if let Some(allow) = reply.headers.get("allow") {
                let allow = allow.to_str().unwrap();
                let takes = |(m, p, _): &(String, String, Value)| p == path && allow.contains(&**m);
                assert!(all.iter().any(takes), "{path}: {allow}");
            } else {
                assert_ne!(
                    reply.status, 405,
                    "{method} {path} does not say what it takes"
                );
            }
            let is_there = !reply.is_problem(405, "method_not_allowed")
                && !reply.is_problem(404, "unknown_route");
            if is_there != is_described {
                wrong.push(format!("{method} {path}: {reply:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    rig.end().await;
}

/// The fields that a reader of a body knows, by its own word.
fn known_fields(detail: &str) -> BTreeSet<String> {
    let (_, fields) = detail
        .split_once("expected ")
        .unwrap_or_else(|| panic!("{detail}"));
    let parts = fields.split('`').enumerate();
    let named = parts.filter(|(at, _)| at % 2 == 1);
    named.map(|(_, name)| name.to_owned()).collect()
}

#[tokio::test]
async fn the_fields_of_every_body_are_those_that_the_routes_read() {
    let rig = Rig::with("", &services::service()).await;
    let contract = Contract::new();
    let document = contract.document();
    let fields = |schema: &Value| -> BTreeSet<String> {
        let pointer = schema["$ref"].as_str().unwrap();
        let schema = document.pointer(&pointer[1..]).unwrap();
        schema["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    let mut bodies = 0;
    for (method, path, operation) in operations(document) {
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        let free = ["NewPolicy", "NewEndpoint", "NewTarget"];
        let is_free = |name: &str| schema["$ref"].as_str().unwrap().ends_with(name);
        if schema.is_null() || free.iter().any(|name| is_free(name)) {
            continue;
        }
        bodies += 1;
        let odd = r#"{"~": 1}"#;
        let reply = rig.client.send(&method, &filled(&path), &[], odd).await;
        let problem = reply.bad(400, "bad_request");
        let known = known_fields(problem["detail"].as_str().unwrap());
        assert_eq!(known, fields(schema), "{method} {path}");
    }
    assert!(bodies > 17, "{bodies}");
    // What stands within.
    let within = [
        ("query", json!({"options": {"~": 1}}), "Options"),
        ("find", json!({"filters": [{"~": 1}]}), "Filter"),
        ("find", json!({"order": [{"~": 1}]}), "Order"),
        ("find", json!({"page": {"~": 1}}), "Page"),
        ("update_many", json!({"changes": [{"~": 1}]}), "Change"),
        ("create_entity", json!({"entity": {"~": 1}}), "Entity"),
        (
            "create_entity",
            json!({"entity": {"columns": [{"~": 1}]}}),
            "EntityColumn",
        ),
        (
            "create_entity",
            json!({"entity": {"indexes": [{"~": 1}]}}),
            "Index",
        ),
    ];
    for (verb, body, schema) in within {
        let problem = rig.client.verb(verb, body).await.bad(400, "bad_request");
        let known = known_fields(problem["detail"].as_str().unwrap());
        let schema = json!({"$ref": format!("#/components/schemas/{schema}")});
        assert_eq!(known, fields(&schema), "{verb}");
    }
    rig.end().await;
}

#[test]
fn every_code_of_a_problem_is_listed_with_its_status() {
    let document = mainstay_server::openapi();
    let code = &document["components"]["schemas"]["Problem"]["properties"]["code"];
    let listed = code["enum"].as_array().unwrap();
    let mut count = 0;
    for (name, status) in mainstay_server::Problem::codes() {
        count += 1;
        assert!(listed.contains(&json!(name)), "{name}");
        assert_eq!(code["x-status"][name], status, "{name}");
    }
    assert_eq!(count, listed.len());
}

/// A judge that finds nothing wrong would prove nothing.
#[test]
fn an_exchange_that_is_not_as_described_is_found() {
    let contract = Contract::new();
    let row = r#"{"columns": [{"name": "a", "type": "i64"}], "rows": [[1]], "meta": {"endpoint": "a", "attempts": 1, "cache": "off", "elapsed_ms": 1, "correlation_id": null, "policy_version": 1}}"#;
    let good = Exchange {
        method: "POST",
        path: "/v1/sources/s/query",
        sent: br#"{"sql": "SELECT 1"}"#,
        status: 200,
        media: "application/json",
        answered: row,
    };
    contract.hold(&good);
    let wrong = [
        Exchange {
            path: "/v1/sources/s/queries",
            ..good
        },
        Exchange {
            method: "GET",
            ..good
        },
        Exchange {
            sent: br#"{"sqll": "SELECT 1"}"#,
            ..good
        },
        Exchange {
            status: 201,
            ..good
        },
        Exchange {
            media: "text/plain",
            ..good
        },
        Exchange {
            answered: r#"{"columns": []}"#,
            ..good
        },
        Exchange {
            answered: "",
            ..good
        },
        Exchange {
            media: "application/x-ndjson",
            answered: "{\"done\": 1}\n",
            ..good
        },
        Exchange {
            media: "application/problem+json",
            answered: r#"{"code": "odd"}"#,
            ..good
        },
    ];
    for (number, exchange) in wrong.into_iter().enumerate() {
        assert!(contract.judge(&exchange).is_err(), "case {number}");
    }
}
