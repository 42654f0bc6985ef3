use super::*;

fn class(dialect: Dialect, text: &str) -> Arc<Class> {
    Classifier::new(dialect).classify(text, None)
}

fn safety(dialect: Dialect, text: &str) -> Safety {
    class(dialect, text).safety
}

#[test]
fn only_what_provably_changes_nothing_is_a_read() {
    use Dialect::{Postgres, Sqlite};
    for (dialect, text) in [
        (Postgres, "SELECT 1"),
        (
            Postgres,
            "select * from orders where id = $1 order by id limit 3",
        ),
        (Postgres, "VALUES (1), (2)"),
        (Postgres, "TABLE orders"),
        (Postgres, "SHOW server_version"),
        (Postgres, "EXPLAIN DELETE FROM orders"),
        (
            Postgres,
            "WITH a AS (SELECT 1) SELECT * FROM a UNION ALL SELECT 2",
        ),
        (
            Postgres,
            "SELECT count(*), max(n), coalesce(a, b) FROM t GROUP BY c HAVING count(*) > 1",
        ),
        (
            Postgres,
            "SELECT random(), clock_timestamp(), gen_random_uuid(), pg_sleep(0)",
        ),
        (Postgres, "SELECT 'insert; update' AS \"delete\" -- drop"),
        (Postgres, "SELECT $$DELETE FROM t$$"),
        (
            Sqlite,
            "SELECT json_extract(a, '$.b'), datetime('now') FROM t",
        ),
        (Sqlite, "SELECT * FROM json_each('[1]')"),
        (Sqlite, "EXPLAIN QUERY PLAN SELECT 1"),
        (Sqlite, "SELECT * FROM \"order\" WHERE id = ?1"),
    ] {
        let class = class(dialect, text);
        assert_eq!(class.safety, Safety::Read, "{text}");
        assert_eq!(class.access, Access::ReadOnly, "{text}");
    }
    for (dialect, text) in [
        (Postgres, ""),
        (Postgres, "   -- nothing"),
        (Postgres, "INSERT INTO t VALUES (1)"),
        (Postgres, "SELECT * FROM t FOR UPDATE"),
        (Postgres, "SELECT * FROM t FOR SHARE"),
        (Postgres, "SELECT * FROM (SELECT * FROM t FOR UPDATE) AS x"),
        (Postgres, "SELECT * INTO u FROM t"),
        (
            Postgres,
            "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d",
        ),
        (
            Postgres,
            "WITH a AS (WITH d AS (UPDATE t SET a = 1 RETURNING *) SELECT * FROM d) SELECT * FROM a",
        ),
        (
            Postgres,
            "SELECT (WITH d AS (INSERT INTO t VALUES (1) RETURNING 1) SELECT * FROM d)",
        ),
        (Postgres, "EXPLAIN ANALYZE SELECT 1"),
        (Postgres, "EXPLAIN (ANALYZE, BUFFERS) DELETE FROM t"),
        (Postgres, "SELECT nextval('s')"),
        (Postgres, "SELECT pg_notify('a', 'b')"),
        (Postgres, "SELECT my_function(1)"),
        (Postgres, "SELECT * FROM my_function(1)"),
        (Postgres, "SELECT mine.count(1)"),
        (
            Postgres,
            "SELECT 1 WHERE EXISTS (SELECT set_config('a', 'b', false))",
        ),
        (Postgres, "SELECT 1; DELETE FROM t"),
        (Postgres, "SELECT 'open quote"),
        (Postgres, "CALL p()"),
        (Postgres, "DO $$ BEGIN DELETE FROM t; END $$"),
        (Postgres, "COPY t FROM STDIN"),
        (Postgres, "LOCK TABLE t"),
        (Postgres, "NOTIFY a"),
        (Postgres, "this is not SQL"),
        (Sqlite, "PRAGMA journal_mode = WAL"),
        (Sqlite, "SELECT load_extension('x')"),
        (Sqlite, "SELECT my_own()"),
        (Sqlite, "REPLACE INTO t VALUES (1)"),
        (Sqlite, "ATTACH 'x' AS y"),
    ] {
        assert_eq!(safety(dialect, text), Safety::Write, "{text}");
    }
}

#[test]
fn functions_are_judged_by_the_catalog_of_the_database() {
    let known = HashMap::from([
        ("mine".to_owned(), Volatility::Stable),
        ("writes".to_owned(), Volatility::Volatile),
        ("count".to_owned(), Volatility::Volatile),
    ]);
    let classifier = Classifier::new(Dialect::Postgres);
    let text = "SELECT mine(1)";
    assert_eq!(classifier.classify(text, None).safety, Safety::Write);
    assert_eq!(classifier.classify(text, None).unknown_functions, ["mine"]);
    assert_eq!(classifier.classify(text, Some(&known)).safety, Safety::Read);
    assert_eq!(
        classifier.classify(text, None).safety,
        Safety::Read,
        "remembered"
    );
    for text in ["SELECT writes(1)", "SELECT count(1)", "SELECT nobody(1)"] {
        assert_eq!(
            classifier.classify(text, Some(&known)).safety,
            Safety::Write,
            "{text}"
        );
    }
    classifier.forget();
    assert_eq!(classifier.classify(text, None).safety, Safety::Write);
}

#[test]
fn only_upserts_that_repeat_what_they_inserted_are_idempotent() {
    for text in [
        "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = excluded.n",
        "INSERT INTO t (id, n) VALUES (1, -2), (3, 4) ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n RETURNING n",
    ] {
        assert_eq!(
            safety(Dialect::Postgres, text),
            Safety::IdempotentWrite,
            "{text}"
        );
    }
    for text in [
        "INSERT INTO t (id, n) VALUES ($1, $2)",
        "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT DO NOTHING",
        "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING RETURNING id",
        "INSERT INTO t (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = t.n + 1",
        "INSERT INTO t (id, n) VALUES ($1, 3) ON CONFLICT (id) DO UPDATE SET n = 5",
        "INSERT INTO t (id, n) VALUES ($1, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.n + 1",
        "INSERT INTO t (id, n) VALUES ($1, 3) ON CONFLICT (id) DO UPDATE SET n = excluded.id",
        "INSERT INTO t (id, n) VALUES (NULL, 3) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (n) VALUES (3) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t VALUES (1, 3) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (id, n) VALUES (nextval('s'), 3) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (id, n) VALUES (1, now()) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (id, n) SELECT id, n FROM u ON CONFLICT (id) DO NOTHING",
        "WITH x AS (SELECT 1) INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO NOTHING",
        "INSERT INTO t (id) VALUES (1) ON CONFLICT (id) DO NOTHING; INSERT INTO t VALUES (2)",
        "INSERT OR REPLACE INTO t (id) VALUES (1)",
        "UPDATE t SET n = 1 WHERE id = 1",
    ] {
        assert_eq!(safety(Dialect::Postgres, text), Safety::Write, "{text}");
        assert_eq!(safety(Dialect::Sqlite, text), Safety::Write, "{text}");
    }
}

#[test]
fn an_upsert_with_a_null_and_a_delete_without_the_whole_key_are_writes() {
    let entity = Entity {
        schema: None,
        name: "t".into(),
        is_view: false,
        columns: Vec::new(),
        primary_key: vec!["a".into(), "b".into()],
        indexes: Vec::new(),
    };
    let upsert = class(
        Dialect::Postgres,
        "INSERT INTO t (id) VALUES ($1) ON CONFLICT (id) DO NOTHING",
    );
    assert_eq!(
        upsert.safety_with(&[Value::I64(1)], None),
        Safety::IdempotentWrite
    );
    assert_eq!(upsert.safety_with(&[Value::Null], None), Safety::Write);
    for (text, expected) in [
        (
            "DELETE FROM t WHERE a = $1 AND (B = $2)",
            Safety::IdempotentWrite,
        ),
        (
            "DELETE FROM t WHERE a = 1 AND b = 2 AND c = 3",
            Safety::IdempotentWrite,
        ),
        ("DELETE FROM t WHERE a = $1", Safety::Write),
        ("DELETE FROM t WHERE a = $1 OR b = $2", Safety::Write),
        ("DELETE FROM t WHERE a = $1 AND b = random()", Safety::Write),
        (
            "DELETE FROM t WHERE a = $1 AND b = (SELECT 1)",
            Safety::Write,
        ),
        (
            "DELETE FROM t USING u WHERE a = $1 AND b = 1",
            Safety::Write,
        ),
        ("DELETE FROM t", Safety::Write),
    ] {
        let class = class(Dialect::Postgres, text);
        assert_eq!(class.safety_with(&[], Some(&entity)), expected, "{text}");
        assert_eq!(class.safety_with(&[], None), Safety::Write, "{text}");
    }
}

#[test]
fn control_statements_are_known_by_their_words_even_where_the_parser_gives_up() {
    for text in [
        "BEGIN",
        "begin immediate",
        "START TRANSACTION ISOLATION LEVEL SERIALIZABLE",
        "COMMIT",
        "END",
        "ROLLBACK TO SAVEPOINT a",
        "ABORT",
        "SAVEPOINT a",
        "RELEASE a",
        "PREPARE TRANSACTION 'x'",
        "/* hidden */ COMMIT",
        "SELECT 1; COMMIT",
    ] {
        let class = class(Dialect::Postgres, text);
        assert!(class.is_transaction_control, "{text}");
        assert_eq!(
            (class.safety, class.kind),
            (Safety::Write, Kind::Control),
            "{text}"
        );
    }
    for text in [
        "SET a = 1",
        "set session b to 2",
        "RESET ALL",
        "DISCARD ALL",
    ] {
        let class = class(Dialect::Postgres, text);
        assert!(class.sets_session && class.is_control(), "{text}");
    }
    for text in [
        "SELECT 1",
        "UPDATE t SET a = 1",
        "PREPARE x AS SELECT 1",
        "CREATE TABLE begin (a int)",
    ] {
        assert!(!class(Dialect::Postgres, text).is_control(), "{text}");
    }
}

#[test]
fn control_statements_are_known_behind_whatever_their_database_takes_for_space() {
    for (dialect, text) in [
        (Dialect::Postgres, "--\rBEGIN"),
        (Dialect::Postgres, "-- x\r\tCOMMIT -- y"),
        (Dialect::Postgres, "SELECT 1 --\r; COMMIT"),
        (Dialect::Postgres, "/* /* */ */ROLLBACK"),
        (Dialect::Postgres, "\u{b}\u{c}SAVEPOINT a"),
        (Dialect::Sqlite, "\u{feff}COMMIT"),
        (Dialect::Sqlite, "--\r\n\u{feff} BEGIN"),
        (Dialect::Sqlite, "/*/*/ END"),
        (Dialect::MySql, "/*!COMMIT*/"),
        (Dialect::MySql, "/*!50000 START */ TRANSACTION"),
        (Dialect::MySql, "/*!99999 SELECT 1 */ COMMIT"),
        (Dialect::MySql, "/*!99999 ' */ ROLLBACK /*!99999 ' */"),
        (Dialect::MySql, "/*M!100100 BEGIN */"),
        (Dialect::MySql, "--\rx\nXA START 'a'"),
        (Dialect::MySql, "# x\nCOMMIT"),
    ] {
        let class = class(dialect, text);
        assert!(class.is_transaction_control, "{dialect:?} {text:?}");
        assert_eq!(
            (class.safety, class.kind),
            (Safety::Write, Kind::Control),
            "{text:?}"
        );
    }
    for (text, expected) in [
        ("SELECT @a := 1", true),
        ("SELECT /* x */ @a", true),
        ("INSERT INTO t VALUES (@b)", true),
        ("SELECT @@version, '@a', `@a` -- @a", false),
        ("SELECT @@session.sql_mode", false),
    ] {
        let class = class(Dialect::MySql, text);
        assert_eq!(class.uses_variables, expected, "{text}");
        assert_eq!(class.leaves_nothing(), !expected, "{text}");
    }
    for text in [
        "SHOW WARNINGS",
        "show count(*) errors",
        "SHOW WARNINGS LIMIT 1",
    ] {
        assert!(class(Dialect::MySql, text).asks_for_warnings, "{text}");
    }
    for text in ["/*!40101 SET NAMES utf8 */", "/*!99999 SELECT */ USE db"] {
        assert!(class(Dialect::MySql, text).sets_session, "{text:?}");
    }
    for (dialect, text) in [
        (Dialect::Sqlite, "SELECT 1 --\rCOMMIT"),
        (Dialect::MySql, "SELECT 5--COMMIT"),
        (Dialect::MySql, "SELECT /*! STRAIGHT_JOIN */ 1"),
        (Dialect::Postgres, "SELECT '--\r'"),
    ] {
        assert!(!class(dialect, text).is_control(), "{dialect:?} {text:?}");
    }
}

#[test]
fn a_statement_that_only_some_servers_run_is_a_write_and_is_sent_whole() {
    let text = " /*!50000 SELECT */ 1 ; SELECT /*M! 2 */ ; a";
    assert_eq!(
        safety(Dialect::MySql, "SELECT /*! f(), */ 1"),
        Safety::Write
    );
    let parts = split_script(Dialect::MySql, text);
    let expected = ["/*!50000 SELECT */ 1", "SELECT /*M! 2 */", "a"];
    assert!(parts.iter().map(|part| &**part).eq(expected), "{parts:?}");
}

#[test]
fn a_table_is_read_wherever_its_keyword_stands() {
    for text in [
        "TABLE t",
        "/* é*/table t",
        "(TABLE t)",
        "((/* é*/ table/* ü */t))",
        "TABLE t ORDER BY a",
    ] {
        let class = class(Dialect::Postgres, text);
        assert_eq!(class.safety, Safety::Read, "{text}");
        assert_eq!(class.reads, ["t"], "{text}");
    }
    assert_eq!(safety(Dialect::Postgres, "TABLES t"), Safety::Write);
    assert_eq!(safety(Dialect::Postgres, "(/* é*/table t"), Safety::Write);
}

#[test]
fn what_only_postgresql_undoes_proves_nothing_elsewhere() {
    for text in [
        "EXECUTE p",
        "LOAD DATA INFILE 'a' INTO TABLE t",
        "LOCK TABLES t READ",
    ] {
        assert!(!class(Dialect::MySql, text).proves_on_error, "{text}");
    }
}

#[test]
fn an_error_proves_nothing_where_a_statement_may_have_committed_before_it() {
    for (text, proves) in [
        ("INSERT INTO t VALUES (1)", true),
        ("(SELECT 1)", true),
        ("CREATE INDEX i ON t (a)", true),
        ("CREATE INDEX CONCURRENTLY i ON t (a)", false),
        ("DROP INDEX CONCURRENTLY i", false),
        ("CREATE DATABASE d", false),
        ("ALTER SYSTEM SET a = 1", false),
        ("CALL p()", false),
        ("DO $$ $$", false),
        ("VACUUM t", false),
        ("COMMIT", false),
        ("EXECUTE p(1)", true),
        ("FETCH 1 FROM c", true),
        ("MOVE 1 IN c", true),
        ("LOCK TABLE t IN SHARE MODE", true),
        ("CHECKPOINT", true),
        ("LOAD 'auto_explain'", true),
        ("COPY t (a, \"to\") FROM '/tmp/t' WITH (FORMAT csv)", true),
        ("COPY t TO '/tmp/t'", false),
        ("COPY (SELECT 1) TO PROGRAM 'cat'", false),
        ("COPY t FROM PROGRAM 'true'", false),
        ("EXPLAIN ANALYZE EXECUTE p", false),
        ("INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)", false),
        ("", false),
    ] {
        assert_eq!(
            class(Dialect::Postgres, text).proves_on_error,
            proves,
            "{text}"
        );
    }
}

#[test]
fn single_changes_are_told_from_those_that_leave_something_in_the_session() {
    for (text, single) in [
        ("INSERT INTO t VALUES (nextval('s'))", true),
        ("UPDATE t SET a = lower(b)", true),
        ("DELETE FROM t", true),
        ("DELETE FROM t; DELETE FROM u", false),
        ("INSERT INTO t VALUES (set_config('a', 'b', false))", false),
        ("SELECT 1", false),
        ("CREATE TEMP TABLE t (a int)", false),
        ("LISTEN a", false),
    ] {
        assert_eq!(
            class(Dialect::Postgres, text).is_single_dml,
            single,
            "{text}"
        );
    }
    assert_eq!(
        class(Dialect::Postgres, "CREATE TABLE t (a int)").kind,
        Kind::Ddl
    );
    assert_eq!(class(Dialect::Postgres, "DROP VIEW v").kind, Kind::Ddl);
}

#[test]
fn fingerprints_ignore_literals_comments_spaces_and_case() {
    let of = |text| class(Dialect::Postgres, text).fingerprint;
    assert_eq!(of("SELECT f(1, 'a') -- x"), of("select  F(2,\n'it''s')"));
    assert_ne!(of("SELECT f(1)"), of("SELECT g(1)"));
    assert_ne!(of("SELECT \"a\""), of("SELECT \"A\""));
}

#[test]
fn entities_read_and_written_are_named() {
    let class = class(
        Dialect::Postgres,
        "INSERT INTO app.orders (id) SELECT id FROM items JOIN parts ON true",
    );
    assert_eq!(class.writes, ["app.orders"]);
    for name in ["items", "parts"] {
        assert!(class.reads.iter().any(|read| read == name), "{name}");
    }
}

#[test]
fn scripts_are_split_only_where_a_statement_ends() {
    let split = |dialect, text: &str| -> Vec<String> {
        split_script(dialect, text)
            .iter()
            .map(|s| s.to_string())
            .collect()
    };
    use Dialect::{MySql, Postgres, Sqlite};
    for (dialect, text, expected) in [
        (Sqlite, "a; b ;; c", vec!["a", "b", "c"]),
        (Sqlite, " ; -- only; comments\n /* ; */", vec![]),
        (
            Sqlite,
            "x ';' ; y \";\" ; [;] `;`",
            vec!["x ';'", "y \";\"", "[;] `;`"],
        ),
        (Sqlite, "x 'it''s;' ; y", vec!["x 'it''s;'", "y"]),
        (Sqlite, "x 'open ; y", vec!["x 'open ; y"]),
        (Sqlite, "x '\\' ; y", vec!["x '\\'", "y"]),
        (Postgres, "x E'\\'' ; y", vec!["x E'\\''", "y"]),
        (MySql, "x '\\';' ; y", vec!["x '\\';'", "y"]),
        (MySql, "x # ; \n ; y", vec!["x", "y"]),
        (
            Postgres,
            "do $$ a; b $$ ; y $1",
            vec!["do $$ a; b $$", "y $1"],
        ),
        (
            Postgres,
            "do $t$ a; $$ b $t$; y",
            vec!["do $t$ a; $$ b $t$", "y"],
        ),
        (
            Postgres,
            "a /* ; /* ; */ ; */ b; c",
            vec!["a /* ; /* ; */ ; */ b", "c"],
        ),
        (
            Postgres,
            "create rule r as on insert to t do also (a; b); c",
            vec!["create rule r as on insert to t do also (a; b)", "c"],
        ),
        (
            Postgres,
            "create function f() returns int begin atomic select 1; select case when true then 1 end; end; c",
            vec![
                "create function f() returns int begin atomic select 1; select case when true then 1 end; end",
                "c",
            ],
        ),
        (
            Sqlite,
            "create temp trigger t after insert on u begin update u set a = case b when 1 then 2 end; delete from v; end; c",
            vec![
                "create temp trigger t after insert on u begin update u set a = case b when 1 then 2 end; delete from v; end",
                "c",
            ],
        ),
        (
            Sqlite,
            "begin; select case when 1 then 2 end; end",
            vec!["begin", "select case when 1 then 2 end", "end"],
        ),
    ] {
        assert_eq!(split(dialect, text), expected, "{text}");
    }
}

#[test]
fn the_cache_is_bounded_and_leaves_out_huge_texts() {
    let classifier = Classifier::new(Dialect::Sqlite);
    for n in 0..3 * CLASSES_MAX {
        classifier.classify(&format!("SELECT {n}"), None);
    }
    assert!(classifier.classes.len() <= CLASSES_MAX);
    let huge = format!("SELECT '{}'", "x".repeat(REMEMBERED_TEXT_MAX));
    assert_eq!(classifier.classify(&huge, None).safety, Safety::Read);
    assert!(!classifier.classes.contains_key(huge.as_str()));
}
