//! A server that is read-only: whatever met it is counted once, has one entry, and has the roles looked up
//! where it was to write.

use mainstay_engine::{Category, Failure, Role, Safety, Sent};
use mainstay_sql::catalog::Describe;
use mainstay_sql::{
    Access, AnswerMax, Begin, Code, Database, Options, Request, Scope, SqlError, Verbs, Verdict,
    Work,
};
use mainstay_testkit::scripted::{Point, Reply};

use super::pair::{Pair, pair};

fn read_only() -> SqlError {
    let failure = Failure::new(Category::Persistent, "read-only transaction")
        .code("25006")
        .sent(Sent::YesUnprocessed);
    SqlError::new(Code::BadStatement, failure).verdict(Verdict::ReadOnly)
}

#[derive(Debug, Clone, Copy)]
enum Way {
    Collect,
    Stream,
    Begin,
    Lend,
    Describe,
}

fn request(access: Access) -> Request {
    Request {
        class: None,
        name: "test".into(),
        work: Work::Statement {
            text: "SELECT 1".into(),
            params: Vec::new(),
        },
        safety: match access {
            Access::ReadOnly => Safety::Read,
            Access::ReadWrite => Safety::Write,
        },
        access,
        // Declared, so that it is run as nothing else.
        options: Options {
            safety: (access == Access::ReadOnly).then_some(Safety::Read),
            ..Options::default()
        },
        answer_max: AnswerMax::default(),
    }
}

async fn go(pair: &Pair, way: Way, access: Access) -> SqlError {
    let proxy = &pair.proxy;
    let request = request(access);
    let begin = Begin {
        access,
        ..Begin::default()
    };
    let ended = match way {
        Way::Collect => proxy.collect(&request, Scope::default()).await.map(drop),
        Way::Stream => proxy.stream(&request, Scope::default()).await.map(drop),
        Way::Begin => proxy.begin(&begin, Scope::default()).await.map(drop),
        Way::Lend => {
            let lent = proxy.run(
                request.safety,
                Options::default(),
                async |mut lent: mainstay_sql::Lent| lent.query("SELECT 1", vec![]).await.map(drop),
            );
            lent.await
        }
        Way::Describe => {
            let described = proxy.describe(&Describe::Entities, Scope::default());
            described.await.map(drop)
        }
    };
    ended.unwrap_err()
}

#[tokio::test(start_paused = true)]
async fn every_way_to_a_read_only_server_has_its_count_and_its_entry() {
    use Access::{ReadOnly, ReadWrite};
    for (way, access) in [
        (Way::Collect, ReadOnly),
        (Way::Collect, ReadWrite),
        (Way::Stream, ReadOnly),
        (Way::Stream, ReadWrite),
        (Way::Begin, ReadOnly),
        (Way::Begin, ReadWrite),
        (Way::Lend, ReadOnly),
        (Way::Lend, ReadWrite),
        (Way::Describe, ReadOnly),
    ] {
        let pair = pair(Role::Replica);
        for driver in &pair.drivers {
            for point in [Point::Run, Point::Open, Point::Begin, Point::Describe] {
                driver.always(point, Reply::fails(read_only()));
            }
        }
        let error = go(&pair, way, access).await;
        let code = match access {
            ReadOnly => Code::BadStatement,
            ReadWrite => Code::NoPrimary,
        };
        assert_eq!(
            (error.code(), error.sent()),
            (code, Sent::YesUnprocessed),
            "{way:?} {access:?}: {error}"
        );
        let says_when = error.failure().retry_after.is_some();
        assert_eq!(says_when, access == ReadWrite, "{way:?} {access:?}");
        assert!(
            error.detail().correlation_id.is_some(),
            "{way:?} {access:?}"
        );
        let source = pair.proxy.source();
        assert_eq!(source.counts().read().calls, 1, "{way:?} {access:?}");
        let entries = source.recent_audit().last(10, |_| true);
        assert_eq!(entries.len(), 1, "{way:?} {access:?}");
        let id = error.detail().correlation_id;
        assert_eq!(Some(entries[0].correlation_id), id, "{way:?} {access:?}");
    }
}
