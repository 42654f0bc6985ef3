//! Many statements under seeded faults: what the proxy says agrees with the server.

use super::*;

#[tokio::test]
async fn seeded_faults_over_many_statements_never_contradict_the_server() {
    let server = server().await;
    let plan = fault::seeded(1, 200, Fault::all(Duration::from_millis(5)), is_run);
    let proxy = FaultProxy::start(server.port(), plan).unwrap();
    let mut connected = session(&proxy).await;
    let mut acknowledged = Vec::new();
    for id in 0..300_i64 {
        let insert = format!("INSERT INTO t VALUES ({id})");
        match timeout(Duration::from_millis(100), connected.sql(&insert)).await {
            Ok(Ok(_)) => acknowledged.push(id),
            _ => connected = session(&proxy).await,
        }
    }
    drop(connected);
    proxy.settle().await.unwrap();
    let there = ids(&server).await;
    let there: Vec<i64> = there.split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(
        acknowledged.iter().all(|id| there.contains(id)),
        "none acknowledged is missing"
    );
    let struck = proxy.struck();
    assert!(struck.len() > 30, "{} struck", struck.len());
    for struck in &struck {
        let id = struck
            .moment
            .text
            .trim_end_matches(')')
            .rsplit('(')
            .next()
            .unwrap();
        let there = there.contains(&id.parse().unwrap());
        assert_eq!(struck.forwarded, there, "{struck:?}");
        assert_eq!(
            struck.answer == Some(Answer::Completed("INSERT 0 1".to_owned())),
            there
        );
    }
    let counts = proxy.counts();
    assert_eq!(
        counts.cuts + counts.hangs + counts.delays,
        struck.len() as u64
    );
}

/// One client's transactions, an insert each; gives the ids whose commit was acknowledged, and those
/// of which the client gave up waiting.
async fn insert_in_transactions(
    proxy: &FaultProxy,
    ids: std::ops::Range<i64>,
) -> (Vec<i64>, Vec<i64>) {
    let (mut acknowledged, mut given_up) = (Vec::new(), Vec::new());
    let mut connected: Option<Session> = None;
    for id in ids {
        let attempt = async {
            let mut session = match connected.take() {
                Some(session) => session,
                None => Session::connect(&proxy.url("postgres")).await?,
            };
            let insert = session.prepare("INSERT INTO t VALUES ($1)").await?;
            let transaction = session.transaction().await?;
            transaction.execute(&insert, &[&id]).await?;
            transaction.commit().await?;
            drop(insert);
            anyhow::Ok(session)
        };
        match timeout(NEVER, attempt).await {
            Ok(Ok(session)) => {
                connected = Some(session);
                acknowledged.push(id);
            }
            Ok(Err(_)) => {}
            Err(_) => given_up.push(id),
        }
    }
    (acknowledged, given_up)
}

#[tokio::test]
async fn transactions_of_many_clients_under_faults_end_as_the_ledger_says() {
    let server = server().await;
    let plan = fault::seeded(2, 100, Fault::all(Duration::from_millis(5)), |_| true);
    let proxy = FaultProxy::start(server.port(), plan).unwrap();
    let clients =
        (0..8).map(|client| insert_in_transactions(&proxy, client * 25..client * 25 + 25));
    let done = futures_util::future::join_all(clients).await;
    let (acknowledged, given_up): (Vec<_>, Vec<_>) = done.into_iter().unzip();
    let (acknowledged, given_up) = (acknowledged.concat(), given_up.concat());
    proxy.settle().await.unwrap();

    let there = ids(&server).await;
    let there: Vec<i64> = there.split(' ').map(|id| id.parse().unwrap()).collect();
    assert!(
        acknowledged.iter().all(|id| there.contains(id)),
        "none acknowledged is missing"
    );
    // A statement that was struck before a commit says nothing about its transaction, but an insert
    // that was not forwarded is nowhere.
    for struck in proxy
        .struck()
        .iter()
        .filter(|struck| is_run(&struck.moment))
    {
        let id = struck.moment.parameters[0].as_i64().unwrap();
        assert!(struck.forwarded || !there.contains(&id), "{struck:?}");
    }
    let struck = proxy.struck();
    let is_commit = |struck: &&Struck| struck.moment.kind == Kind::Commit;
    let committed = Some(Answer::Completed("COMMIT".to_owned()));
    let unseen = struck
        .iter()
        .filter(is_commit)
        .filter(|struck| struck.answer == committed)
        .count();
    // Whom a slow machine kept waiting does not know either.
    let most = acknowledged.len() + unseen + given_up.len();
    assert!(
        there.len() <= most,
        "{} rows, at most {most} can be",
        there.len()
    );
    let counts = proxy.counts();
    assert!(counts.before_send > 0 && counts.after_send > 0 && counts.before_answer > 0);
}
