//! What makes no sense is refused with its code and a hint; nothing breaks and no connection is lost.

use serde_json::json;

use super::rig::Rig;

#[tokio::test]
async fn every_kind_of_bad_body_has_its_code() {
    let rig = Rig::start().await;
    let table = [
        // (verb, body, status, code)
        (
            "query",
            json!({"sql": "SELECT 'open"}),
            400,
            "bad_statement",
        ),
        ("query", json!({"sql": "SELEC 1"}), 400, "bad_statement"),
        ("query", json!({"sql": "  "}), 400, "bad_statement"),
        (
            "query",
            json!({"sql": "SELECT 1\u{0}"}),
            400,
            "bad_statement",
        ),
        ("query", json!({"sql": 7}), 400, "bad_request"),
        ("query", json!({}), 400, "bad_request"),
        (
            "query",
            json!({"sql": "SELECT 1", "sqll": 1}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"cash": "off"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"deadline": "0s"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"deadline": "soon"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"deadline": "2001-01-01T00:00:00Z"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"read_from": "moon"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"safety": "safe"}}),
            400,
            "bad_request",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"cache": "use"}}),
            501,
            "not_available",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "options": {"idempotency_key": "k"}}),
            400,
            "idempotency_unavailable",
        ),
        (
            "query",
            json!({"sql": "SELECT ?1", "params": [{"type": "i64", "value": "x"}]}),
            400,
            "bad_value",
        ),
        (
            "query",
            json!({"sql": "SELECT ?1", "params": [{"type": "moon", "value": 1}]}),
            400,
            "bad_value",
        ),
        (
            "query",
            json!({"sql": "SELECT ?1", "params": [{"type": "bytes", "value": "%"}]}),
            400,
            "bad_value",
        ),
        (
            "query",
            json!({"sql": "SELECT 1", "params": {"a": 1}}),
            400,
            "bad_request",
        ),
        ("execute", json!({"sql": "BEGIN"}), 400, "bad_statement"),
        ("find", json!({"entity": "nothing"}), 404, "unknown_entity"),
        ("find", json!({"entity": ""}), 400, "bad_request"),
        ("find", json!({"entity": "t\u{0}"}), 400, "bad_request"),
        (
            "find",
            json!({"entity": "t", "page": {"number": 0}}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "page": {"number": -1}}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "page": {"size": 0}}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "page": {"size": 10_001}}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "page": {"number": u64::MAX, "size": 10}}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "filters": [{"field": "nam", "value": 1}]}),
            404,
            "unknown_column",
        ),
        (
            "find",
            json!({"entity": "t", "filters": [{"field": "name", "operator": "~", "value": 1}]}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "filters": [{"field": "name", "operator": "between", "value": 1}]}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "filters": [{"field": "name", "value": null}]}),
            400,
            "bad_request",
        ),
        (
            "find",
            json!({"entity": "t", "order": [{"field": "nam"}]}),
            404,
            "unknown_column",
        ),
        (
            "insert",
            json!({"entity": "t", "values": {"nam": 1}}),
            404,
            "unknown_column",
        ),
        (
            "insert",
            json!({"entity": "t", "values": {"name": null}}),
            409,
            "constraint",
        ),
        (
            "insert",
            json!({"entity": "t", "values": {"name": {"type": "f64", "value": "NaN"}}}),
            400,
            "bad_value",
        ),
        (
            "insert",
            json!({"entity": "x", "values": {"a": 1}}),
            404,
            "unknown_entity",
        ),
        (
            "insert_many",
            json!({"entity": "t", "rows": [{"name": "a"}, {"size": 1}]}),
            409,
            "constraint",
        ),
        (
            "update",
            json!({"entity": "t", "set": {"name": "a"}}),
            400,
            "bad_request",
        ),
        ("delete", json!({"entity": "t"}), 400, "bad_request"),
        (
            "script",
            json!({"sql": "SELECT 1; SELEC 2"}),
            400,
            "bad_statement",
        ),
        ("script", json!({"sql": ";;"}), 400, "bad_request"),
        (
            "drop_entity",
            json!({"entity": "nothing"}),
            404,
            "unknown_entity",
        ),
        (
            "create_entity",
            json!({"entity": {"name": "n", "columns": [{"name": "a", "type": "moon"}]}}),
            400,
            "bad_request",
        ),
        (
            "transactions",
            json!({"isolation": "total"}),
            400,
            "bad_request",
        ),
    ];
    let mut wrong = Vec::new();
    for (verb, body, status, code) in table {
        let reply = rig.client.verb(verb, body.clone()).await;
        if !reply.is_problem(status, code) {
            wrong.push(format!("{verb} {body}: not {status} {code}: {reply:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let metrics = rig.client.get("/v1/sources/s/metrics").await.good();
    for endpoint in metrics["endpoints"].as_array().unwrap() {
        assert_eq!(endpoint["pool"]["active"], 0, "{endpoint}");
    }
    let source = rig.client.get("/v1/sources/s").await.good();
    for member in source["members"].as_array().unwrap() {
        assert_eq!(member["circuit"], "closed", "{member}");
    }
    rig.insert(&["still works"]).await;
    rig.end().await;
}

#[tokio::test]
async fn every_kind_of_bad_route_header_and_text_has_its_code() {
    let rig = Rig::start().await;
    const QUERY: &str = "/v1/sources/s/query";
    const ONE: &str = r#"{"sql": "SELECT 1"}"#;
    type Headers = &'static [(&'static str, &'static str)];
    let none: Headers = &[];
    type Case = (
        &'static str,
        &'static str,
        Headers,
        &'static [u8],
        u16,
        &'static str,
    );
    let table: [Case; 23] = [
        ("GET", "/", none, b"", 404, "unknown_route"),
        ("GET", "/v1/nothing", none, b"", 404, "unknown_route"),
        (
            "GET",
            "/v1/sources/s/nothing",
            none,
            b"",
            404,
            "unknown_route",
        ),
        ("GET", QUERY, none, b"", 405, "method_not_allowed"),
        (
            "DELETE",
            "/v1/sources",
            none,
            b"",
            405,
            "method_not_allowed",
        ),
        ("GET", "/v1/sources/none", none, b"", 404, "unknown_source"),
        (
            "POST",
            "/v1/sources/none/query",
            none,
            ONE.as_bytes(),
            404,
            "unknown_source",
        ),
        ("GET", "/v1/sources/s%FF/slo", none, b"", 400, "bad_request"),
        (
            "GET",
            "/v1/sources/s/entities/%00",
            none,
            b"",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/sources/s/entities/none",
            none,
            b"",
            404,
            "unknown_entity",
        ),
        (
            "GET",
            "/v1/sources/s/entities/t?refresh=perhaps",
            none,
            b"",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/sources/s/endpoints/none",
            none,
            b"",
            404,
            "unknown_endpoint",
        ),
        (
            "POST",
            "/v1/sources/s/endpoints/none/drain",
            none,
            b"",
            404,
            "unknown_endpoint",
        ),
        (
            "GET",
            "/v1/sources/s/audit?limit=0",
            none,
            b"",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/sources/s/audit?limits=1",
            none,
            b"",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/v1/events?source=none",
            none,
            b"",
            404,
            "unknown_source",
        ),
        ("POST", QUERY, none, b"\xff\xfe", 400, "bad_request"),
        (
            "POST",
            QUERY,
            none,
            b"{\"sql\": \"SELECT 1\"",
            400,
            "bad_request",
        ),
        ("POST", QUERY, none, b"[]", 400, "bad_request"),
        (
            "POST",
            QUERY,
            &[("x-deadline-ms", "0")],
            ONE.as_bytes(),
            400,
            "bad_request",
        ),
        (
            "POST",
            QUERY,
            &[("x-deadline-ms", "-1")],
            ONE.as_bytes(),
            400,
            "bad_request",
        ),
        (
            "POST",
            QUERY,
            &[("idempotency-key", "k")],
            ONE.as_bytes(),
            400,
            "idempotency_unavailable",
        ),
        (
            "POST",
            QUERY,
            &[("origin", "https://page.example")],
            ONE.as_bytes(),
            403,
            "not_allowed",
        ),
    ];
    let mut others = Vec::new();
    for (method, path, headers, body, status, code) in table {
        let reply = rig.client.send(method, path, headers, body.to_vec()).await;
        if !reply.is_problem(status, code) {
            others.push(format!(
                "{method} {path} {headers:?}: not {status} {code}: {reply:?}"
            ));
        }
    }
    assert!(others.is_empty(), "{}", others.join("\n"));
    let wrong = rig
        .client
        .send("POST", QUERY, &[], "{\n\"sql\": }")
        .await
        .bad(400, "bad_request");
    let place = (&wrong["body_line"], &wrong["body_column"]);
    assert_eq!(place, (&json!(2), &json!(8)));
    assert_eq!(wrong["column"], json!(null));
    rig.end().await;
}

#[tokio::test]
async fn bodies_and_answers_beyond_their_limits_are_refused() {
    let limits = "body_max = \"4KiB\"\nanswer_max = \"2KiB\"\nrows_max = 10\nstatements_max = 2\n";
    let rig = Rig::with(limits, "").await;
    let client = &rig.client;
    let long = json!({"sql": "SELECT ?1", "params": ["x".repeat(5000)]});
    client.verb("query", long).await.bad(413, "body_too_large");
    let many = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 1000) SELECT x FROM c";
    client
        .verb("query", json!({"sql": many}))
        .await
        .bad(413, "answer_too_large");
    let rows: Vec<_> = (0..11).map(|n| json!({"name": n.to_string()})).collect();
    client
        .verb("insert_many", json!({"entity": "t", "rows": rows}))
        .await
        .bad(400, "bad_request");
    client
        .verb("script", json!({"sql": "SELECT 1; SELECT 2; SELECT 3"}))
        .await
        .bad(400, "bad_request");
    assert_eq!(rig.count().await, 0);
    rig.end().await;
}

/// Whoever trusts `sent` writes again after a "no".
#[tokio::test]
async fn a_write_whose_answer_is_refused_never_says_that_nothing_was_done() {
    let rig = Rig::with("answer_max = \"2KiB\"\n", "").await;
    let client = &rig.client;
    let text = "INSERT INTO t (name) VALUES (hex(randomblob(8))) RETURNING hex(zeroblob(5000))";
    for verb in ["execute", "query", "scalar"] {
        let refused = client.verb(verb, json!({"sql": text})).await;
        let refused = refused.bad(413, "answer_too_large");
        assert_eq!(refused["sent"], "maybe", "{verb}: {refused}");
    }
    let two = "INSERT INTO t (name) VALUES (hex(randomblob(8))) RETURNING id, name";
    let refused = client.verb("scalar", json!({"sql": two})).await;
    let refused = refused.bad(400, "bad_request");
    assert_eq!(refused["sent"], "maybe", "{refused}");

    let begun = client.verb("transactions", json!({})).await.good();
    let id = begun["transaction"].as_str().unwrap();
    for what in ["query", "execute"] {
        let path = format!("/v1/sources/s/transactions/{id}/{what}");
        let refused = client.post(&path, json!({"sql": text})).await;
        let refused = refused.bad(413, "answer_too_large");
        assert_eq!(refused["sent"], "maybe", "{what}: {refused}");
    }
    let path = format!("/v1/sources/s/transactions/{id}/commit");
    client.post(&path, json!({})).await.good();
    assert_eq!(rig.count().await, 6);

    let read = json!({"sql": "SELECT hex(zeroblob(5000))"});
    let refused = client.verb("query", read).await;
    assert_ne!(refused.bad(413, "answer_too_large")["sent"], "maybe");
    rig.end().await;
}

#[tokio::test]
async fn session_and_idempotency_keys_have_the_same_bounds_in_bodies_and_in_headers() {
    let rig = Rig::start().await;
    let (longest, too_long) = ("k".repeat(256), "k".repeat(257));
    for option in ["session", "idempotency_key"] {
        for wrong in ["", &too_long] {
            let body = json!({"sql": "SELECT 1", "options": {option: wrong}});
            let problem = rig.client.verb("query", body).await.bad(400, "bad_request");
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.starts_with(&format!("options.{option} ")),
                "{detail}"
            );
            assert!(detail.len() < 100, "{detail}");
        }
    }
    let body = json!({"sql": "SELECT 1", "options": {"session": longest}});
    rig.client.verb("query", body).await.good();
    rig.end().await;
}
