//! What is found is only called committed when it cannot be lost any more, and a number means something in one
//! run of one server.

use super::*;

fn at(run: &str, is_synchronous: bool) -> Lineage {
    Lineage {
        history: Some("1".to_owned()),
        run: run.to_owned(),
        is_synchronous,
    }
}

/// Tokens that were written, or tried.
fn tokens(bench: &Bench) -> usize {
    let texts = bench.calls(Point::Run);
    texts
        .iter()
        .filter(|text| text.starts_with("INSERT INTO \"mainstay_commits\""))
        .count()
}

#[tokio::test(start_paused = true)]
async fn where_commits_wait_a_token_that_is_there_counts_once_a_later_commit_came_through() {
    for (is_synchronous, later_hangs, code) in [
        (false, false, None),
        (true, false, None),
        (true, true, Some(Code::OutcomeUnknown)),
    ] {
        let bench = bench(by_table(), false);
        bench.driver.set_lineage(at("1", is_synchronous));
        let begun = bench.proxy.begin(&Begin::default(), Scope::default()).await;
        for reply in [Reply::affected(1), Reply::affected(0)] {
            bench.driver.next(Point::Run, reply);
        }
        let lost = Reply::breaks(connection_lost());
        bench.driver.next(Point::Commit, lost);
        if later_hangs {
            bench.driver.always(Point::Commit, Reply::hangs());
        }
        let ended = begun.unwrap().commit().await;
        assert_eq!(ended.map_err(|error| error.code()).err(), code);
        let (tokens, commits) = (tokens(&bench), bench.calls(Point::Commit).len());
        match (is_synchronous, later_hangs) {
            (false, _) => assert_eq!((tokens, commits), (2, 1)),
            (true, false) => assert_eq!((tokens, commits), (3, 2)),
            // Asked again and again.
            (true, true) => assert!(tokens > 3 && commits > 2, "{tokens} {commits}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn where_commits_wait_a_number_that_is_committed_counts_once_a_later_record_came_through() {
    for is_synchronous in [false, true] {
        let bench = bench(Some(CommitProof::new(ProofForm::Xid)), false);
        bench.driver.set_lineage(at("1", is_synchronous));
        let begun = bench.proxy.begin(&Begin::default(), Scope::default()).await;
        for text in ["7", "committed"] {
            let row = vec![Value::Text(text.to_owned())];
            bench.driver.next(Point::Run, Reply::rows(vec![row]));
        }
        let lost = Reply::breaks(connection_lost());
        bench.driver.next(Point::Commit, lost);
        begun.unwrap().commit().await.unwrap();
        let texts = bench.calls(Point::Run);
        let emits = |text: &String| text.contains("pg_logical_emit_message");
        assert_eq!(texts.iter().any(emits), is_synchronous, "{texts:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_of_an_earlier_run_of_the_server_tells_nothing() {
    let bench = bench(Some(CommitProof::new(ProofForm::Xid)), false);
    bench.driver.set_lineage(at("1", false));
    let begun = bench.proxy.begin(&Begin::default(), Scope::default()).await;
    let row = vec![Value::Text("7".to_owned())];
    bench.driver.next(Point::Run, Reply::rows(vec![row]));
    let lost = Reply::breaks(connection_lost());
    bench.driver.next(Point::Commit, lost);
    bench.driver.set_lineage(at("2", false));
    let error = begun.unwrap().commit().await.unwrap_err();
    assert_eq!(error.code(), Code::OutcomeUnknown, "{error}");
    let texts = bench.calls(Point::Run);
    let asks = |text: &String| text.contains("pg_xact_status");
    assert!(!texts.iter().any(asks), "{texts:?}");
}
