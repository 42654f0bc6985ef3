//! One event at a server is one failure to its circuit, however many callers met it, and with whatever.

use std::time::Duration;

use futures_util::future::join_all;
use mainstay_engine::Role;
use mainstay_sql::{Begin, Database, Options, Scope, SqlError, Verbs};
use mainstay_testkit::scripted::reply::connection_lost;
use mainstay_testkit::scripted::{Point, Reply};

use super::pair::{Pair, pair};

const CALLERS: usize = 9;

/// What callers are at when their connections break.
#[derive(Debug, Clone, Copy)]
enum Work {
    Statement,
    Script,
    Begin,
    Commit,
}

impl Work {
    fn point(self) -> Point {
        match self {
            Work::Statement | Work::Script => Point::Run,
            Work::Begin => Point::Begin,
            Work::Commit => Point::Commit,
        }
    }

    async fn run(self, pair: &Pair) -> Result<(), SqlError> {
        let options = Options::default;
        match self {
            Work::Statement => {
                let text = "UPDATE t SET a = 1";
                pair.proxy.execute(text, Vec::new(), options()).await?;
            }
            Work::Script => {
                let text = "UPDATE t SET a = 1; UPDATE t SET a = 2";
                pair.proxy.script(text, options()).await?;
            }
            Work::Begin | Work::Commit => {
                let begun = pair
                    .proxy
                    .begin(&Begin::default(), Scope::default())
                    .await?;
                begun.commit().await?;
            }
        }
        Ok(())
    }

    /// All callers meet it at once.
    async fn break_all(self, pair: &Pair) -> usize {
        for _ in 0..CALLERS {
            let reply = Reply::breaks(connection_lost()).wait_before(Duration::from_millis(50));
            pair.drivers[0].next(self.point(), reply);
        }
        let ended = join_all((0..CALLERS).map(|_| self.run(pair))).await;
        ended.iter().filter(|ended| ended.is_err()).count()
    }
}

fn opened(pair: &Pair) -> u64 {
    pair.proxy.source().status()[0].stats.circuit_opened
}

#[tokio::test(start_paused = true)]
async fn connections_that_a_restart_breaks_at_once_weigh_as_one_failure() {
    for work in [Work::Statement, Work::Script, Work::Begin, Work::Commit] {
        let pair = pair(Role::Replica);
        for restart in 1..=3 {
            let failed = work.break_all(&pair).await;
            // What never got to its COMMIT is undone, and tried again.
            let expected = match work {
                Work::Begin | Work::Script => 0,
                Work::Statement | Work::Commit => CALLERS,
            };
            assert_eq!(failed, expected, "{work:?}, restart {restart}");
            assert_eq!(opened(&pair), 0, "{work:?}, restart {restart}");
            Work::Statement.run(&pair).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_after_the_other_they_are_failures_of_their_own() {
    let pair = pair(Role::Replica);
    for _ in 0..CALLERS {
        let reply = Reply::breaks(connection_lost());
        pair.drivers[0].next(Point::Run, reply);
        Work::Statement.run(&pair).await.unwrap_err();
    }
    assert_eq!(opened(&pair), 1);
}
