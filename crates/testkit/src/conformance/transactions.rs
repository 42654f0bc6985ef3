use mainstay_engine::{Safety, Sent};
use mainstay_sql::{
    Access, AnswerMax, Begin, Code, Database, Dialect, Options, Record, Request, Scope, Value,
    Verbs, Work,
};

use super::Fixture;
use super::bench::Bench;
use crate::cut::cut_at;

fn write(text: &str) -> Request {
    Request {
        class: None,
        name: "conformance".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety: Safety::Write,
        access: Access::ReadWrite,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

/// Others see what was committed, and nothing before or else.
pub async fn a_commit_is_seen_and_a_rollback_is_not(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_commit", "id BIGINT").await;
    let mut other = bench.reader().await;
    session.0.begin(&Begin::default()).await.unwrap();
    session
        .run("INSERT INTO conformance_commit VALUES (1)")
        .await
        .unwrap();
    assert_eq!(other.count("conformance_commit").await, 0);
    session.0.commit(&|| {}).await.unwrap();
    assert_eq!(other.count("conformance_commit").await, 1);
    session.0.begin(&Begin::default()).await.unwrap();
    session
        .run("INSERT INTO conformance_commit VALUES (2)")
        .await
        .unwrap();
    session.0.rollback().await.unwrap();
    assert_eq!(other.count("conformance_commit").await, 1);
    session.assert_usable().await;
}

/// What came after a savepoint is undone, what came before stays.
pub async fn savepoints_undo_a_part(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_savepoint", "id BIGINT PRIMARY KEY")
        .await;
    let plain = bench.pooled();
    let mut transaction = plain
        .begin(&Begin::default(), Scope::default())
        .await
        .unwrap();
    let insert = write("INSERT INTO conformance_savepoint VALUES (1)");
    transaction.run(&insert).await.unwrap();
    transaction.savepoint("a \"b\" c").await.unwrap();
    let error = transaction.run(&insert).await.unwrap_err();
    assert_eq!(error.code(), Code::Constraint, "{error}");
    transaction.rollback_to("a \"b\" c").await.unwrap();
    transaction
        .run(&write("INSERT INTO conformance_savepoint VALUES (2)"))
        .await
        .unwrap();
    transaction.release("a \"b\" c").await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(session.count("conformance_savepoint").await, 2);
}

/// A BEGIN that is dropped at any await point leaves no transaction open once it was cleaned up: the next
/// insert is seen by others at once.
pub async fn a_begin_that_is_dropped_leaks_no_transaction(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_begin", "id BIGINT").await;
    let mut other = bench.reader().await;
    for k in 1..1000 {
        let ended = cut_at(k, session.0.begin(&Begin::default())).await;
        session.0.clean_up().await.unwrap();
        session
            .run("INSERT INTO conformance_begin VALUES (1)")
            .await
            .unwrap();
        assert_eq!(
            other.count("conformance_begin").await,
            k as i64,
            "cut at {k}"
        );
        if let Some(began) = ended {
            began.unwrap();
            return;
        }
    }
    panic!("BEGIN does not end");
}

/// A transaction that is dropped is rolled back, and its connection is good for the next caller.
pub async fn a_transaction_that_is_dropped_is_rolled_back(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench.table("conformance_dropped", "id BIGINT").await;
    let plain = bench.pooled();
    for _ in 0..5 {
        let mut transaction = plain
            .begin(&Begin::default(), Scope::default())
            .await
            .unwrap();
        let insert = write("INSERT INTO conformance_dropped VALUES (1)");
        transaction.run(&insert).await.unwrap();
    }
    let kept = "INSERT INTO conformance_dropped VALUES (2)";
    plain
        .execute(kept, vec![], Options::default())
        .await
        .unwrap();
    assert_eq!(session.count("conformance_dropped").await, 1);
}

/// A script ends at its first failure, names it, and leaves nothing of itself where the database can undo
/// it.
pub async fn a_script_stops_at_its_first_failure_and_undoes_the_rest(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_script", "id BIGINT PRIMARY KEY")
        .await;
    let plain = bench.pooled();
    let good = "INSERT INTO conformance_script VALUES (1); -- ;\nINSERT INTO conformance_script VALUES (2);";
    let answer = plain.script(good, Options::default()).await.unwrap();
    assert_eq!(answer.results.len(), 2);
    let bad = "INSERT INTO conformance_script VALUES (3); \
               INSERT INTO conformance_script VALUES (1); \
               INSERT INTO conformance_script VALUES (4)";
    let error = plain.script(bad, Options::default()).await.unwrap_err();
    assert_eq!(error.code(), Code::Constraint, "{error}");
    assert!(
        error
            .detail()
            .place
            .contains(&("statement", "2".to_owned())),
        "{error:?}"
    );
    if bench.dialect() != Dialect::MySql {
        assert_eq!(error.sent(), Sent::YesUnprocessed, "{error}");
        assert_eq!(session.count("conformance_script").await, 2);
    }
}

/// Many inserts are one transaction.
pub async fn many_rows_are_written_whole_or_not_at_all(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut session = bench
        .table("conformance_many", "id BIGINT PRIMARY KEY")
        .await;
    let plain = bench.pooled();
    let records = |ids: &[i64]| -> Vec<Record> {
        ids.iter()
            .map(|id| vec![("id".to_owned(), Value::I64(*id))])
            .collect()
    };
    let options = Options::default;
    let good = records(&[1, 2, 3]);
    let answer = plain
        .insert_many("conformance_many", &good, options(), None)
        .await
        .unwrap();
    assert_eq!(answer.affected, Some(3));
    let bad = records(&[4, 5, 1, 6]);
    let error = plain
        .insert_many("conformance_many", &bad, options(), None)
        .await
        .unwrap_err();
    assert_eq!(
        (error.code(), error.sent()),
        (Code::Constraint, Sent::YesUnprocessed),
        "{error}"
    );
    assert_eq!(session.count("conformance_many").await, 3);
}
