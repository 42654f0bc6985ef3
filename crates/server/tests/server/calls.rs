//! Every verb on rows and statements, and the catalog.

use serde_json::json;

use super::rig::Rig;

#[tokio::test]
async fn rows_are_inserted_found_changed_and_deleted() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let one = client
        .verb(
            "insert",
            json!({"entity": "t", "values": {"name": "a", "size": 1.5}}),
        )
        .await;
    let one = one.good();
    assert_eq!((&one["affected"], &one["keys"]), (&json!(1), &json!([1])));
    rig.insert(&["b", "c", "d"]).await;

    let find = json!({
        "entity": "t",
        "filters": [{"field": "name", "operator": "in", "values": ["a", "c", "d"]}],
        "order": [{"field": "name", "descending": true}],
        "page": {"number": 1, "size": 2}
    });
    let found = client.verb("find", find).await.good();
    assert_eq!(found["columns"][1], json!({"name": "name", "type": "text"}));
    assert_eq!(found["rows"], json!([[4, "d", null], [3, "c", null]]));
    let page = json!({
        "number": 1, "size": 2, "total_rows": 3, "total_pages": 2, "has_next": true, "has_previous": false
    });
    assert_eq!(found["page"], page);

    let set = json!({"entity": "t", "filters": [{"field": "id", "value": 2}], "set": {"size": 7}});
    assert_eq!(client.verb("update", set).await.good()["affected"], 1);
    let many = json!({"entity": "t", "changes": [
        {"filters": [{"field": "id", "value": 3}], "set": {"name": "C"}},
        {"filters": [{"field": "id", "value": 4}], "set": {"name": "D"}},
    ]});
    assert_eq!(client.verb("update_many", many).await.good()["affected"], 2);
    let gone = json!({"entity": "t", "filters": [{"field": "id", "operator": "<=", "value": 1}]});
    assert_eq!(client.verb("delete", gone).await.good()["affected"], 1);
    assert_eq!(rig.count().await, 3);

    let mixed =
        json!({"entity": "t", "rows": [{"name": "e"}, {"name": "f", "size": 2}, {"name": "g"}]});
    let mixed = client.verb("insert_many", mixed).await.good();
    let expected = (&json!(3), &json!([5, 6, 7]));
    assert_eq!((&mixed["affected"], &mixed["keys"]), expected);
    assert_eq!(mixed["meta"]["endpoint"], "writer", "{mixed}");
    assert_eq!(rig.count().await, 6);
    rig.end().await;
}

#[tokio::test]
async fn a_statement_says_where_its_answer_came_from() {
    let rig = Rig::start().await;
    rig.insert(&["a", "b"]).await;
    let path = "/v1/sources/s/query";
    let id = "0123456789abcdef0123456789abcdef";
    let body = json!({
        "sql": "SELECT id, name FROM t WHERE name = ?1 AND id < ?2",
        "params": ["b", {"type": "i64", "value": "9007199254740993"}]
    });
    let headers = [
        ("x-correlation-id", id),
        ("x-deadline-ms", "5000"),
        ("x-session", "me"),
    ];
    let reply = rig
        .client
        .send("POST", path, &headers, body.to_string())
        .await;
    assert_eq!(reply.headers["x-correlation-id"], id);
    let answer = reply.good();
    assert_eq!(answer["rows"], json!([[2, "b"]]));
    let meta = &answer["meta"];
    assert_eq!(
        (&meta["attempts"], &meta["cache"]),
        (&json!(1), &json!("off"))
    );
    assert_eq!(meta["correlation_id"], id);
    assert!(meta["elapsed_ms"].is_number() && meta["policy_version"].is_number());

    let entries = rig
        .client
        .get(&format!("/v1/sources/s/audit?correlation_id={id}"))
        .await
        .good();
    assert_eq!(entries["entries"][0]["operation"], "query");
    rig.end().await;
}

#[tokio::test]
async fn one_value_comes_with_its_type_and_an_answer_of_several_is_refused() {
    let rig = Rig::start().await;
    rig.insert(&["a", "b"]).await;
    let scalar = async |sql: &str| rig.client.verb("scalar", json!({"sql": sql})).await;
    let big = scalar("SELECT 9007199254740993").await.good();
    assert_eq!(
        (&big["value"], &big["found"], &big["type"]),
        (&json!("9007199254740993"), &json!(true), &json!("i64"))
    );
    let bytes = scalar("SELECT x'00ff'").await.good();
    assert_eq!(
        (&bytes["value"], &bytes["type"]),
        (&json!("AP8="), &json!("bytes"))
    );
    let none = scalar("SELECT name FROM t WHERE id = 77").await.good();
    assert_eq!(
        (&none["value"], &none["found"]),
        (&json!(null), &json!(false))
    );
    assert_eq!(none["type"], "text");
    scalar("SELECT id FROM t").await.bad(400, "bad_request");
    let audit = rig.client.get("/v1/sources/s/audit?limit=1").await.good();
    assert_eq!(audit["entries"][0]["operation"], "scalar", "{audit}");
    rig.end().await;
}

#[tokio::test]
async fn a_script_is_done_whole_or_not_at_all() {
    let rig = Rig::start().await;
    let sql =
        "INSERT INTO t (name) VALUES ('x; y'); INSERT INTO t (name) VALUES ('z'); SELECT * FROM t";
    let done = rig.client.verb("script", json!({"sql": sql})).await.good();
    assert_eq!(done["results"].as_array().unwrap().len(), 3);
    assert_eq!(rig.count().await, 2);
    let sql = "INSERT INTO t (name) VALUES ('new'); INSERT INTO t (name) VALUES ('z')";
    rig.client
        .verb("script", json!({"sql": sql}))
        .await
        .bad(409, "constraint");
    assert_eq!(rig.count().await, 2);
    rig.end().await;
}

#[tokio::test]
async fn the_catalog_is_shown_and_entities_are_made_and_dropped() {
    let rig = Rig::start().await;
    let client = &rig.client;
    let entity = json!({
        "name": "child",
        "columns": [
            {"name": "id", "type": "i64", "nullable": false},
            {"name": "note", "type": "text"},
        ],
        "primary_key": ["id"],
        "indexes": [{"name": "child_note", "columns": ["note"]}],
    });
    client
        .verb("create_entity", json!({"entity": entity}))
        .await
        .good();
    let sql = "CREATE TABLE link (id INTEGER PRIMARY KEY, t_id INTEGER REFERENCES t (id))";
    client.verb("execute", json!({"sql": sql})).await.good();

    let names = client.get("/v1/sources/s/entities").await.good();
    let names: Vec<_> = names["entities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|e| e["name"].clone())
        .collect();
    assert_eq!(names, ["child", "link", "t"]);
    let shown = client
        .get("/v1/sources/s/entities/child?refresh=true")
        .await
        .good();
    assert_eq!(shown["primary_key"], json!(["id"]));
    assert_eq!(shown["columns"][1]["type"], "text");
    let children = client.get("/v1/sources/s/entities/t/children").await.good();
    assert_eq!(children["relations"][0]["from_entity"], "link");
    let keys = client
        .get("/v1/sources/s/entities/link/foreign_keys")
        .await
        .good();
    assert_eq!(keys["relations"][0]["to_entity"], "t");
    let ddl = client.get("/v1/sources/s/entities/child/ddl").await.good();
    assert!(
        ddl["sql"].as_str().unwrap().contains("CREATE TABLE"),
        "{ddl}"
    );

    client
        .verb("drop_entity", json!({"entity": "child"}))
        .await
        .good();
    client
        .get("/v1/sources/s/entities/child")
        .await
        .bad(404, "unknown_entity");
    rig.end().await;
}

#[tokio::test]
async fn the_embedded_source_answers_at_once() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let data = folder.path().join("data");
    let text = format!(
        "{}[sources.demo]\ndriver = \"sqlite\"\npath = {:?}\n[sources.demo.endpoints.writer]\n",
        super::rig::head(folder.path()),
        data.join("demo.db").display().to_string()
    );
    let rig = Rig::from(folder, text).await.unwrap();
    let body = json!({"sql": "SELECT count(*) FROM orders"});
    let rows = rig
        .client
        .post("/v1/sources/demo/scalar", body)
        .await
        .good();
    assert!(rows["value"].as_i64().unwrap() > 1000, "{rows}");
    rig.end().await;
}

#[tokio::test]
async fn a_source_may_say_that_its_writes_can_be_repeated() {
    let folder = std::sync::Arc::new(tempfile::tempdir().unwrap());
    let source = super::rig::source(folder.path());
    let said = "[sources.s]\nsafety = \"idempotent_write\"\n";
    let source = source.replacen("[sources.s]\n", said, 1);
    let text = format!("{}{source}", super::rig::head(folder.path()));
    let rig = Rig::from(folder, text).await.unwrap();
    rig.make_table().await;
    rig.insert(&["a"]).await;
    let declared = json!({"sql": "DELETE FROM t", "options": {"safety": "write"}});
    rig.client.verb("execute", declared).await.good();
    rig.client
        .verb("query", json!({"sql": "SELECT 1"}))
        .await
        .good();
    let entries = rig.client.get("/v1/sources/s/audit").await.good();
    let entries: Vec<_> = entries["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["operation"] != "describe")
        .map(|entry| (entry["safety"].as_str().unwrap(), &entry["safety_declared"]))
        .collect();
    // The source's word is a declaration too; that a SELECT reads is found in its text.
    let expected = [
        ("read", &json!(false)),
        ("write", &json!(true)),
        ("idempotent_write", &json!(true)),
        ("idempotent_write", &json!(true)),
    ];
    assert_eq!(entries, expected);
    rig.end().await;
}
