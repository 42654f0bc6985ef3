use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::{Safety, Sent};
use mainstay_sql::catalog::{Describe, Description};
use mainstay_sql::stream::{Batch, BatchMax};
use mainstay_sql::{
    Access, Answer, AnswerMax, Begin, BoxFuture, Cancel, Code, Column, Connection, Database,
    Dialect, Driver, HandedOver, Options, Position, Probe, Request, Scope, SqlError, Value, Verbs,
    Verdict, Work,
};

use super::Fixture;
use super::bench::{Bench, pooled};

/// A read as the classifier sees it; the server gets what stands behind it.
const MASK: &str = "SELECT 'masked' AS ";

/// A driver whose statements with a mask reach the server without it: what a text does that the classifier
/// was wrong about.
struct Unmasking(Arc<dyn Driver>);

impl Driver for Unmasking {
    fn dialect(&self) -> Dialect {
        self.0.dialect()
    }

    fn connect(&self, access: Access) -> BoxFuture<'_, Result<Box<dyn Connection>, SqlError>> {
        Box::pin(async move {
            let connection = self.0.connect(access).await?;
            Ok(Box::new(Unmasked(connection)) as Box<dyn Connection>)
        })
    }

    fn address(&self) -> String {
        self.0.address()
    }
}

struct Unmasked(Box<dyn Connection>);

fn unmasked(text: &str) -> &str {
    let hidden = text
        .strip_prefix(MASK)
        .and_then(|name| name.strip_prefix(['"', '`']));
    hidden.map_or(text, |name| name.trim_end_matches(['"', '`']))
}

/// A text that the classifier takes for a read.
fn masked(bench: &Bench, text: &str) -> String {
    format!("{MASK}{}", bench.dialect().quote(text))
}

impl Connection for Unmasked {
    fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    fn check(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.0.check()
    }

    fn reset(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.0.reset()
    }

    fn clean_up(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.0.clean_up()
    }

    fn canceller(&self) -> Arc<dyn Cancel> {
        self.0.canceller()
    }

    fn run<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        max: AnswerMax,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Answer, SqlError>> {
        self.0.run(unmasked(text), params, max, handed_over)
    }

    fn open<'a>(
        &'a mut self,
        text: &'a str,
        params: &'a [Value],
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<Arc<[Column]>, SqlError>> {
        self.0.open(unmasked(text), params, handed_over)
    }

    fn next_batch(&mut self, max: BatchMax) -> BoxFuture<'_, Result<Option<Batch>, SqlError>> {
        self.0.next_batch(max)
    }

    fn begin<'a>(&'a mut self, begin: &'a Begin) -> BoxFuture<'a, Result<(), SqlError>> {
        self.0.begin(begin)
    }

    fn commit<'a>(
        &'a mut self,
        handed_over: HandedOver<'a>,
    ) -> BoxFuture<'a, Result<(), SqlError>> {
        self.0.commit(handed_over)
    }

    fn rollback(&mut self) -> BoxFuture<'_, Result<(), SqlError>> {
        self.0.rollback()
    }

    fn describe<'a>(
        &'a mut self,
        what: &'a Describe,
    ) -> BoxFuture<'a, Result<Description, SqlError>> {
        self.0.describe(what)
    }

    fn probe(&mut self) -> BoxFuture<'_, Result<Probe, SqlError>> {
        self.0.probe()
    }

    fn position(&mut self) -> BoxFuture<'_, Result<Option<Position>, SqlError>> {
        self.0.position()
    }
}

fn request(text: &str, safety: Safety) -> Request {
    Request {
        class: None,
        name: "conformance".into(),
        work: Work::Statement {
            text: text.into(),
            params: Vec::new(),
        },
        safety,
        access: Access::ReadWrite,
        options: Options::default(),
        answer_max: AnswerMax::default(),
    }
}

/// Statements after which nothing would be committed any more unless somebody says so.
fn openers(dialect: Dialect) -> &'static [&'static str] {
    match dialect {
        Dialect::Postgres => &["BEGIN", "START TRANSACTION ISOLATION LEVEL SERIALIZABLE"],
        Dialect::MySql => &["BEGIN", "START TRANSACTION", "SET autocommit = 0"],
        _ => &["BEGIN", "BEGIN IMMEDIATE", "SAVEPOINT mine"],
    }
}

/// What the caller of such a statement must read: it has no effect.
fn assert_undone(opener: &str, error: &SqlError) {
    assert_eq!(error.code(), Code::BadStatement, "{opener}: {error}");
    assert_eq!(error.sent(), Sent::YesUnprocessed, "{opener}: {error}");
    assert_eq!(error.failure().weight(5), 0, "{opener}: {error}");
    assert!(error.detail().hint.is_some(), "{opener}: {error}");
}

/// A transaction that a statement opened where none was begun is rolled back, and the caller of the statement
/// is told: in a session, in a stream and through a pool, whose next borrower finds its writes committed.
pub async fn a_transaction_that_nobody_began_is_undone_and_told(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut other = bench.table("conformance_stray", "id BIGINT").await;
    let plain = pooled(Arc::new(Unmasking(fixture.driver())));
    let insert = "INSERT INTO conformance_stray VALUES (1)";
    let mut written = 0;
    for opener in openers(bench.dialect()) {
        let mut session = bench.writer().await;
        let error = session.run(opener).await.unwrap_err();
        assert_undone(opener, &error);
        session.run(insert).await.unwrap();
        let opened = session.0.open(opener, &[], &|| {}).await;
        let error = match opened {
            Ok(_) => session.0.next_batch(BatchMax::default()).await.err(),
            Err(error) => Some(error),
        };
        assert_undone(opener, &error.expect("the stream must not end well"));
        session.run(insert).await.unwrap();
        session.0.begin(&Begin::default()).await.unwrap();
        session.run(insert).await.unwrap();
        session.0.commit(&|| {}).await.unwrap();

        let text = masked(&bench, opener);
        let opens = request(&text, Safety::Write);
        let error = plain.collect(&opens, Scope::default()).await.unwrap_err();
        assert_undone(opener, &error);
        let ran = plain.execute(insert, vec![], Options::default()).await;
        assert_eq!(ran.unwrap().affected, Some(1), "{opener}");
        let opened = plain.stream(&opens, Scope::default()).await;
        assert_undone(opener, &opened.expect_err("the stream must not open"));
        plain
            .execute(insert, vec![], Options::default())
            .await
            .unwrap();
        written += 5;
        let seen = other.count("conformance_stray").await;
        assert_eq!(seen, written, "{opener}: what was acknowledged is there");
    }
    // The connection of the last stream that did not open is cleaned up in the background.
    crate::until::until("no connection is lent", async || {
        plain.pool_stats().active == 0
    })
    .await;
    plain.close(Duration::from_secs(1)).await;
}

/// A statement that ends the transaction that it runs in takes it from its holder, who is told that nobody
/// knows what became of it; the connection is good for the next one.
pub async fn a_transaction_that_a_statement_ended_is_lost(fixture: &dyn Fixture) {
    let bench = Bench::of(fixture);
    let mut other = bench.table("conformance_ended", "id BIGINT").await;
    let plain = pooled(Arc::new(Unmasking(fixture.driver())));
    let insert = request("INSERT INTO conformance_ended VALUES (1)", Safety::Write);
    for (ender, left) in [("COMMIT", 1), ("ROLLBACK", 1), ("COMMIT", 2)] {
        let begun = plain.begin(&Begin::default(), Scope::default()).await;
        let mut transaction = begun.unwrap();
        transaction.run(&insert).await.unwrap();
        let ends = request(&masked(&bench, ender), Safety::Write);
        let error = transaction.run(&ends).await.unwrap_err();
        assert_eq!(error.code(), Code::TransactionLost, "{ender}: {error}");
        assert_eq!(error.sent(), Sent::Maybe, "{ender}: {error}");
        assert_eq!(error.detail().verdict, Verdict::TransactionEnded, "{ender}");
        // Nothing more of it runs, least of all outside of a transaction.
        let error = transaction.run(&insert).await.unwrap_err();
        assert_eq!(error.code(), Code::TransactionLost, "{ender}: {error}");
        let error = transaction.commit().await.unwrap_err();
        assert_eq!(error.code(), Code::TransactionLost, "{ender}: {error}");
        assert_eq!(error.sent(), Sent::Maybe, "{ender}: {error}");
        assert_eq!(other.count("conformance_ended").await, left, "{ender}");
    }
    // In a batch too, where it is not taken for a proof that all was rolled back.
    let batch = Request {
        work: Work::Script {
            statements: vec![
                "INSERT INTO conformance_ended VALUES (2)".into(),
                masked(&bench, "COMMIT").into(),
            ],
        },
        ..insert
    };
    let error = plain.collect(&batch, Scope::default()).await.unwrap_err();
    assert_eq!(error.sent(), Sent::Maybe, "{error}");
    assert_eq!(other.count("conformance_ended").await, 3);
    plain.close(Duration::from_secs(1)).await;
}
