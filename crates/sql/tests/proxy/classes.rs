//! What a proxy knows about functions holds at its endpoints too: a read leaves no session to be reset.

use std::collections::HashMap;
use std::sync::Arc;

use mainstay_engine::Safety;
use mainstay_sql::catalog::{Describe, Description, Volatility};
use mainstay_sql::{Access, Begin, Database, Dialect, Options, Request, Scope, Value, Verbs, Work};

use crate::{Bench, bench_of, settings, write};

const PADDED: &str = "SELECT lpad($1, 5, 'x')";

fn bench() -> Bench {
    let bench = bench_of(Dialect::Postgres, settings());
    let known = HashMap::from([
        ("lpad".to_owned(), Volatility::Immutable),
        ("changes".to_owned(), Volatility::Volatile),
    ]);
    let known = Description::Functions(Arc::new(known));
    bench.driver.describes(Describe::Functions, known);
    bench
}

/// Everything that a caller can do with a statement.
async fn every_way(bench: &Bench, text: &str) {
    let (proxy, params) = (&bench.proxy, || vec![Value::Text("a".into())]);
    let options = || Options {
        safety: Some(Safety::Write),
        ..Options::default()
    };
    proxy.query(text, params(), options()).await.unwrap();
    let streamed = proxy.stream_query(text, params(), options()).await;
    let mut stream = streamed.unwrap();
    while stream.next().await.unwrap().is_some() {}
    proxy.script(text, options()).await.unwrap();
    proxy
        .run(Safety::Write, options(), |mut lent| async move {
            lent.query(text, vec![]).await
        })
        .await
        .unwrap();
    let begun = proxy.begin(&Begin::default(), Scope::default()).await;
    let mut transaction = begun.unwrap();
    let request = Request {
        work: Work::Statement {
            text: text.into(),
            params: params(),
        },
        access: Access::ReadWrite,
        ..write()
    };
    transaction.run(&request).await.unwrap();
    transaction.commit().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_read_with_functions_of_the_catalog_leaves_no_session_to_be_reset() {
    let bench = bench();
    every_way(&bench, PADDED).await;
    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    let counts = bench.driver.counts();
    assert_eq!(counts.statements, 5, "{:?}", bench.driver.log());
    assert_eq!(counts.resets, 0, "{:?}", bench.driver.log());
}

#[tokio::test(start_paused = true)]
async fn what_may_change_its_session_is_reset_each_time() {
    for text in ["SELECT changes($1)", "SELECT unknown($1)"] {
        let bench = bench();
        every_way(&bench, text).await;
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        let counts = bench.driver.counts();
        assert_eq!(counts.resets, 5, "{:?}", bench.driver.log());
    }
}
