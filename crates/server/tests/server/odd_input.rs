//! Odd requests to each kind of database: every one has its code, nothing breaks, no circuit opens.

use std::sync::Arc;
use std::time::Duration;

use mainstay_testkit::mariadb::{MariadbOptions, MariadbServer};
use mainstay_testkit::postgres::{PostgresOptions, PostgresServer};
use serde_json::{Value, json};

use super::client::Reply;
use super::rig::{Rig, eventually, head, options, source};

const KINDS: [Kind; 3] = [Kind::Sqlite, Kind::Postgres, Kind::Mariadb];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sqlite,
    Postgres,
    Mariadb,
}

/// What stands behind, kept until the end.
enum Behind {
    Nothing,
    Postgres(#[allow(dead_code, reason = "ends when it is dropped")] PostgresServer),
    Mariadb(#[allow(dead_code, reason = "ends when it is dropped")] MariadbServer),
}

/// A server over one kind of database, with a table `t` of one row.
struct Place {
    kind: Kind,
    rig: Rig,
    _behind: Behind,
}

impl Place {
    async fn start(kind: Kind) -> Place {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        let (behind, of) = match kind {
            Kind::Sqlite => (Behind::Nothing, source(folder.path())),
            Kind::Postgres => {
                let server = PostgresServer::start(PostgresOptions::new()).await.unwrap();
                let of = format!(
                    "[sources.s]\ndriver = \"postgres\"\nhost = \"127.0.0.1\"\nport = {}\ndatabase = \"postgres\"\n\
                     user = \"postgres\"\ntls = \"off\"\n[sources.s.endpoints.a]\n",
                    server.port()
                );
                (Behind::Postgres(server), of)
            }
            Kind::Mariadb => {
                let server = MariadbServer::start(MariadbOptions::new()).await.unwrap();
                let of = format!(
                    "[sources.s]\n[sources.s.endpoints.a]\nurl = \"mariadb://root@127.0.0.1:{}/test?ssl-mode=DISABLED\"\n",
                    server.port()
                );
                (Behind::Mariadb(server), of)
            }
        };
        let of = of.replacen(
            "[sources.s]\n",
            "[sources.s]\ntransaction_idle = \"300ms\"\n",
            1,
        );
        let text = format!(
            "{}{of}[sources.s.policy.health]\ninterval = \"200ms\"\n",
            head(folder.path())
        );
        let rig = Rig::from_options(folder, options(text)).await.unwrap();
        eventually("there is a primary", async || {
            !rig.client.get("/v1/sources/s").await.good()["primary"].is_null()
        })
        .await;
        let place = Place {
            kind,
            rig,
            _behind: behind,
        };
        let table = "CREATE TABLE t (id INTEGER PRIMARY KEY, name VARCHAR(100) NOT NULL, size DOUBLE PRECISION)";
        place.ask("execute", json!({"sql": table})).await.good();
        let row = json!({"entity": "t", "values": {"id": 1, "name": "one", "size": 0}});
        place.ask("insert", row).await.good();
        place
    }

    async fn ask(&self, verb: &str, body: Value) -> Reply {
        self.rig.client.verb(verb, body).await
    }

    /// A statement with placeholders of this database.
    fn sql(&self, text: &str) -> String {
        match self.kind {
            Kind::Postgres => text.to_owned(),
            _ => text.replace("$1::int", "?").replace("$2::int", "?"),
        }
    }

    /// Refused as the caller's mistake, with one of these codes.
    #[track_caller]
    fn refused(&self, what: &str, reply: Reply, codes: &[&str]) -> Value {
        let problem = reply.json();
        let code = problem["code"].as_str().unwrap_or_default();
        assert!(
            codes.contains(&code) && reply.is_problem(reply.status.as_u16(), code),
            "{:?} {what}: not one of {codes:?}: {reply:?}",
            self.kind
        );
        problem
    }

    async fn count(&self) -> Value {
        let body = json!({"sql": "SELECT count(*) FROM t", "options": {"read_from": "primary"}});
        self.ask("scalar", body).await.good()["value"].clone()
    }

    /// Nothing of it weighs on an endpoint, and no connection is lost or held.
    async fn end(self) {
        let source = self.rig.client.get("/v1/sources/s").await.good();
        for member in source["members"].as_array().unwrap() {
            assert_eq!(member["circuit"], "closed", "{member}");
        }
        eventually("all is given back", async || {
            let shown = self.rig.client.get("/v1/sources/s/metrics").await.good();
            let mut endpoints = shown["endpoints"].as_array().unwrap().iter();
            endpoints.all(|endpoint| endpoint["pool"]["active"] == 0)
        })
        .await;
        assert_eq!(self.count().await, 1);
        self.rig.end().await;
    }
}

#[tokio::test]
async fn a_million_parameters_and_a_wrong_number_of_them_are_refused() {
    for kind in KINDS {
        let place = Place::start(kind).await;
        let million: Vec<u32> = (0..1_000_000).collect();
        let codes = &["bad_statement", "bad_value", "bad_request"];
        let reply = place
            .ask("query", json!({"sql": "SELECT 1", "params": million}))
            .await;
        place.refused("a million of none", reply, codes);
        let filter = json!({"field": "id", "operator": "in", "values": million});
        let reply = place
            .ask("find", json!({"entity": "t", "filters": [filter]}))
            .await;
        place.refused("a million in a filter", reply, codes);
        let two = place.sql("SELECT $1::int + $2::int AS sum");
        for params in [json!([]), json!([1]), json!([1, 2, 3])] {
            let reply = place
                .ask("query", json!({"sql": two, "params": params}))
                .await;
            let problem = place.refused(&params.to_string(), reply, codes);
            assert_eq!(
                problem["sent"].as_str().map(|sent| sent != "maybe"),
                Some(true),
                "{problem}"
            );
        }
        let good = place
            .ask("query", json!({"sql": two, "params": [1, 2]}))
            .await
            .good();
        assert_eq!(good["rows"][0].as_array().unwrap().len(), 1, "{good}");
        place.end().await;
    }
}

/// Compared as a number, every text that is none is 0 on MySQL: a filter would choose rows that nobody meant.
#[tokio::test]
async fn a_filter_on_a_column_of_another_type_is_refused() {
    for kind in KINDS {
        let place = Place::start(kind).await;
        let values = [
            ("size", json!("abc")),
            ("id", json!("abc")),
            ("id", json!("")),
            ("size", json!({"a": 1})),
            ("id", json!({"type": "bytes", "value": "AP8="})),
            (
                "id",
                json!({"type": "timestamp", "value": "2026-11-29T23:15:00"}),
            ),
            ("id", json!([1, 2])),
            ("name", json!(0)),
            ("name", json!(true)),
            ("name", json!(1.5)),
        ];
        for (field, value) in values {
            for operator in ["=", "<>", "<", ">="] {
                let filter = json!([{"field": field, "operator": operator, "value": value}]);
                let bodies = [
                    ("find", json!({"entity": "t", "filters": filter})),
                    ("delete", json!({"entity": "t", "filters": filter})),
                    (
                        "update",
                        json!({"entity": "t", "filters": filter, "set": {"size": 1}}),
                    ),
                ];
                for (verb, body) in bodies {
                    let what = format!("{verb} {field} {operator} {value}");
                    let problem = place.refused(&what, place.ask(verb, body).await, &["bad_value"]);
                    assert_eq!(problem["sent"], "no", "{problem}");
                }
            }
            let filter = json!({"field": field, "operator": "in", "values": [1, "1", value]});
            let body = json!({"entity": "t", "filters": [filter]});
            place.refused("in", place.ask("find", body).await, &["bad_value"]);
        }
        // What is a number is one, however it is written.
        for value in [
            json!(1),
            json!(1.0),
            json!("1"),
            json!({"type": "decimal", "value": "1"}),
        ] {
            let filter = json!([{"field": "id", "value": value}]);
            let body = json!({"entity": "t", "filters": filter});
            let found = place.ask("find", body).await.good();
            assert_eq!(found["rows"], json!([[1, "one", 0.0]]), "{kind:?} {value}");
        }
        place.end().await;
    }
}

/// Names that would end another one, or a statement.
const NAMES: [&str; 6] = [
    "t\"; DROP TABLE t; --",
    "t`; DROP TABLE t; --",
    "t'",
    "\"t\"",
    "a\"b`c'd]e",
    "\u{e9}\u{1F600} \\ %",
];

#[tokio::test]
async fn names_with_quotes_are_names_and_those_with_nul_are_none() {
    for kind in KINDS {
        let place = Place::start(kind).await;
        let client = &place.rig.client;
        let encoded =
            |name: &str| -> String { name.bytes().map(|byte| format!("%{byte:02X}")).collect() };
        for name in NAMES {
            // A name beyond the characters of MariaDB's own tables can be none.
            let is_beyond = kind == Kind::Mariadb && name.contains('\u{1F600}');
            let unknown: &[&str] = match is_beyond {
                true => &["bad_statement"],
                false => &["unknown_entity", "bad_request"],
            };
            place.refused(
                name,
                place.ask("find", json!({"entity": name})).await,
                unknown,
            );
            place.refused(
                name,
                place.ask("drop_entity", json!({"entity": name})).await,
                unknown,
            );
            let path = format!("/v1/sources/s/entities/{}", encoded(name));
            place.refused(name, client.get(&path).await, unknown);
            let column = &["unknown_column"];
            let filter = json!({"entity": "t", "filters": [{"field": name, "value": 1}]});
            place.refused(name, place.ask("find", filter).await, column);
            let order = json!({"entity": "t", "order": [{"field": name}]});
            place.refused(name, place.ask("find", order).await, column);
            let insert = json!({"entity": "t", "values": {"id": 2, name: 1}});
            place.refused(name, place.ask("insert", insert).await, column);

            if is_beyond {
                continue;
            }
            // As the name of something that is there.
            let made =
                json!({"entity": {"name": name, "columns": [{"name": name, "type": "i64"}]}});
            place.ask("create_entity", made).await.good();
            let insert = json!({"entity": name, "values": {name: 7}});
            place.ask("insert", insert).await.good();
            let found = json!({"entity": name, "filters": [{"field": name, "value": 7}]});
            let found = place.ask("find", found).await.good();
            assert_eq!(
                (&found["columns"][0]["name"], &found["rows"]),
                (&json!(name), &json!([[7]]))
            );
            client.get(&format!("{path}/ddl")).await.good();
            place
                .ask("drop_entity", json!({"entity": name}))
                .await
                .good();
        }
        let nul = "a\u{0}b";
        let codes = &["bad_request", "unknown_column", "unknown_entity"];
        place.refused(
            "nul",
            place.ask("find", json!({"entity": nul})).await,
            codes,
        );
        let filter = json!({"entity": "t", "filters": [{"field": nul, "value": 1}]});
        place.refused("nul", place.ask("find", filter).await, codes);
        let made = json!({"entity": {"name": nul, "columns": [{"name": "a", "type": "i64"}]}});
        place.refused("nul", place.ask("create_entity", made).await, codes);
        let made = json!({"entity": {"name": "u", "columns": [{"name": nul, "type": "i64"}]}});
        place.refused("nul", place.ask("create_entity", made).await, codes);
        place.end().await;
    }
}

async fn begun(place: &Place) -> String {
    let begun = place.ask("transactions", json!({})).await.good();
    format!("transactions/{}", begun["transaction"].as_str().unwrap())
}

#[tokio::test]
async fn a_transaction_that_ended_is_unknown_whatever_is_asked_of_it() {
    for kind in KINDS {
        let place = Place::start(kind).await;
        let insert = json!({"sql": "INSERT INTO t (id, name) VALUES (9, 'nine')"});
        let delete = json!({"sql": "DELETE FROM t WHERE id = 9"});
        let expired = begun(&place).await;
        place
            .ask(&format!("{expired}/execute"), insert.clone())
            .await
            .good();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let committed = begun(&place).await;
        place
            .ask(&format!("{committed}/execute"), insert.clone())
            .await
            .good();
        place
            .ask(&format!("{committed}/commit"), json!({}))
            .await
            .good();
        let rolled_back = begun(&place).await;
        place
            .ask(&format!("{rolled_back}/execute"), delete.clone())
            .await
            .good();
        place
            .ask(&format!("{rolled_back}/rollback"), json!({}))
            .await
            .good();
        for id in [&expired, &committed, &rolled_back] {
            for (what, body) in [
                ("commit", json!({})),
                ("commit", json!({})),
                ("rollback", json!({})),
                ("query", json!({"sql": "SELECT 1"})),
                ("execute", delete.clone()),
                ("savepoint", json!({"name": "a"})),
            ] {
                let reply = place.ask(&format!("{id}/{what}"), body).await;
                let problem = place.refused(what, reply, &["unknown_transaction"]);
                assert_eq!(problem["sent"], "no", "{problem}");
            }
        }
        // What was committed once is there once; the others left nothing.
        assert_eq!(place.count().await, 2);
        place.ask("execute", delete).await.good();
        place.end().await;
    }
}

#[tokio::test]
async fn deep_json_is_refused_at_any_depth_that_is_too_much() {
    let place = Place::start(Kind::Sqlite).await;
    let client = &place.rig.client;
    for depth in [128, 10_000, 1_000_000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let deep = open.repeat(depth) + "1" + &close.repeat(depth);
            for (verb, body) in [
                (
                    "query",
                    format!("{{\"sql\": \"SELECT 1\", \"params\": [{deep}]}}"),
                ),
                (
                    "insert",
                    format!("{{\"entity\": \"t\", \"values\": {{\"name\": {deep}}}}}"),
                ),
                ("query", format!("{{\"options\": {deep}}}")),
                ("query", deep.clone()),
            ] {
                let path = format!("/v1/sources/s/{verb}");
                let reply = client.send("POST", &path, &[], body).await;
                place.refused(verb, reply, &["bad_request"]);
            }
        }
    }
    place.end().await;
}

/// A list in the place of an object would be read as its fields in their order.
#[tokio::test]
async fn a_list_is_no_object_in_the_body_or_anywhere_in_it() {
    let rig = Rig::start().await;
    let table = [
        ("execute", json!(["DELETE FROM t"])),
        ("transactions", json!([])),
        ("query", json!({"sql": "SELECT 1", "options": ["off"]})),
        ("transactions", json!({"options": []})),
        ("find", json!({"entity": "t", "filters": [["id", "=", 1]]})),
        ("find", json!({"entity": "t", "order": [["id"]]})),
        ("find", json!({"entity": "t", "page": [1, 2]})),
        (
            "update_many",
            json!({"entity": "t", "changes": [[[], {"name": "a"}]]}),
        ),
        ("create_entity", json!({"entity": [null, "u", false, []]})),
        (
            "create_entity",
            json!({"entity": {"name": "u", "columns": [["a", "i64"]]}}),
        ),
    ];
    for (verb, body) in table {
        let problem = rig.client.verb(verb, body.clone()).await;
        let problem = problem.bad(400, "bad_request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(
            detail.contains("expected an object"),
            "{verb} {body}: {detail}"
        );
    }
    rig.end().await;
}
