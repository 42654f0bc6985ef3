//! What the protocol cannot carry, and answers that cannot be read: neither is a sick server.

use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_engine::tasks::Tasks;
use mainstay_engine::{Blame, Category, Sent};
use mainstay_postgres::PostgresSettings;
use mainstay_sql::{Access, Code, Driver, SqlError, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::place::{Place, driver, run};

fn is_the_callers(error: &SqlError) {
    let failure = error.failure();
    assert_eq!(
        (error.code(), failure.category, failure.blame, failure.sent),
        (
            Code::BadValue,
            Category::Persistent,
            Blame::Caller,
            Sent::No
        ),
        "{error}"
    );
    assert!(
        error
            .detail()
            .hint
            .as_deref()
            .is_some_and(|h| h.contains("unnest")),
        "{error}"
    );
}

#[tokio::test]
async fn more_parameters_than_the_protocol_counts_are_refused_before_anything_is_sent() {
    let place = Place::new().await;
    let mut session = place.writer().await;
    let text = |count: usize| {
        let all: Vec<String> = (1..=count).map(|n| format!("${n}::int4")).collect();
        format!("SELECT num_nulls({})", all.join(","))
    };
    let values = vec![Value::I64(1); 65_536];
    let told = AtomicBool::new(false);
    let error = session
        .run(&text(65_536), &values, Default::default(), &|| {
            told.store(true, Ordering::Relaxed);
        })
        .await
        .unwrap_err();
    is_the_callers(&error);
    assert!(!told.load(Ordering::Relaxed));
    // Too many values for a small text, and a high number without the values.
    is_the_callers(
        &run(&mut session, "SELECT $1::int4", &values)
            .await
            .unwrap_err(),
    );
    is_the_callers(
        &run(&mut session, "SELECT $70000::int4", &[])
            .await
            .unwrap_err(),
    );
    let opened = session.open(&text(65_536), &values, &|| {}).await;
    is_the_callers(&opened.unwrap_err());
    assert!(!session.is_closed());
    let all = format!("SELECT 1 WHERE 1 IN ({})", {
        let all: Vec<String> = (1..=65_535).map(|n| format!("${n}::int4")).collect();
        all.join(",")
    });
    let answer = run(&mut session, &all, &values[1..]).await.unwrap();
    assert_eq!(answer.rows, [[Value::I64(1)]]);
}

/// A server that lets everybody in and answers the first statement with these bytes.
async fn answers(bytes: &'static [u8], tasks: &Tasks) -> PostgresSettings {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut settings = PostgresSettings::new("127.0.0.1", "postgres", "postgres");
    settings.port = listener.local_addr().unwrap().port();
    settings.tls.mode = mainstay_postgres::TlsMode::Off;
    tasks.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let _ = answer(stream, bytes).await;
        }
    });
    settings
}

async fn answer(mut stream: TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    let length = stream.read_i32().await? as usize;
    stream.read_exact(&mut vec![0; length - 4]).await?;
    // Authentication is done, and it is ready.
    stream.write_all(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05I").await?;
    stream.read_u8().await?;
    stream.write_all(bytes).await?;
    // Until the client goes.
    stream.read_to_end(&mut Vec::new()).await.map(drop)
}

#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_the_session_and_weighs_nothing() {
    // Parsed; then parameters that are not what their number says, or a message that has no place there.
    let table: [&[u8]; 2] = [
        b"1\0\0\0\x04t\0\0\0\x0a\0\0\0\0\0\x17n\0\0\0\x04Z\0\0\0\x05I",
        b"1\0\0\0\x042\0\0\0\x04Z\0\0\0\x05I",
    ];
    let tasks = Tasks::new();
    for bytes in table {
        let mut session = driver(answers(bytes, &tasks).await)
            .connect(Access::ReadWrite)
            .await
            .unwrap();
        let error = run(&mut session, "SELECT 1", &[]).await.unwrap_err();
        let failure = error.failure();
        assert_eq!(
            (failure.category, failure.weight(5), failure.sent),
            (Category::Unknown, 0, Sent::YesUnprocessed),
            "{error}"
        );
        assert!(
            session.is_closed() && error.detail().hint.is_some(),
            "{error}"
        );
    }
}
