//! Starting and ending: with back ends down, with wrong files, with work in flight.

use std::sync::Arc;
use std::time::Duration;

use mainstay_server::{Server, StartError};
use serde_json::json;

use super::client::Client;
use super::rig::{Rig, eventually, file, head, options, source};

#[tokio::test]
async fn with_every_back_end_down_it_starts_says_so_and_recovers() {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let text = source(folder.path()).replace("options = { create = \"true\" }\n", "");
    let policy = "[sources.s.policy.health]\ninterval = \"50ms\"\nurgent_interval = \"50ms\"\n\
                  [sources.s.policy.retry]\ndeadline = \"300ms\"\n";
    let rig = Rig::from(
        folder.clone(),
        format!("{}{text}{policy}", head(folder.path())),
    )
    .await
    .unwrap();
    let client = &rig.client;
    let refused = client.verb("query", json!({"sql": "SELECT 1"})).await;
    assert!(
        [502, 503, 504].contains(&refused.status.as_u16()),
        "{refused:?}"
    );
    eventually("the checks fail", async || {
        client.get("/readyz").await.status == 503
    })
    .await;
    assert!(client.get("/healthz").await.status.is_success());
    mainstay_sqlite::create_sample(&file(folder.path())).unwrap();
    eventually("it recovers", async || {
        let reply = client
            .verb("query", json!({"sql": "SELECT count(*) FROM orders"}))
            .await;
        reply.status.is_success()
    })
    .await;
    eventually("it is ready", async || {
        client.get("/readyz").await.status.is_success()
    })
    .await;
    rig.end().await;
}

#[tokio::test]
async fn a_request_in_flight_is_answered_before_the_end() {
    let rig = Rig::start().await;
    let client = rig.client.clone();
    let slow = "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 3000000) \
                SELECT count(*) FROM c";
    let begun = json!({"read_only": true});
    client.verb("transactions", begun).await.good();
    let answered = async { client.verb("scalar", json!({"sql": slow})).await.good() };
    let ended = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        rig.stop(Duration::from_secs(20)).await
    };
    let (answer, ended) = tokio::join!(answered, ended);
    assert_eq!(answer["value"], 3_000_000);
    assert!(ended.drained && ended.left == 0, "{ended:?}");
    assert_eq!((ended.transactions, ended.requests), (1, 0));
    assert!(
        tokio::net::TcpStream::connect(client.address())
            .await
            .is_err(),
        "it still listens"
    );
}

#[tokio::test]
async fn what_does_not_end_in_time_is_cut() {
    let rig = Rig::start().await;
    let client = rig.client.clone();
    let endless =
        "WITH RECURSIVE c (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT count(*) FROM c";
    let hanging = async {
        let url = "/v1/sources/s/query";
        let body = json!({"sql": endless}).to_string();
        let request = hyper::Request::post(url).header("host", "localhost");
        let request = request.body(http_body_util::Full::from(body)).unwrap();
        let open = tokio::time::timeout(Duration::from_secs(20), client.open(request));
        // Cut, whichever way it shows.
        let _ = futures_util::FutureExt::catch_unwind(std::panic::AssertUnwindSafe(open)).await;
    };
    let ended = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        rig.stop(Duration::from_millis(200)).await
    };
    let ((), ended) = tokio::join!(hanging, ended);
    assert!(!ended.drained);
    assert_eq!((ended.left, ended.transactions, ended.requests), (0, 0, 1));
}

#[tokio::test]
async fn a_wrong_configuration_folder_or_port_is_told_at_the_start() {
    let wrong = Server::start(options(
        "[sources.s]\ndriver = \"moon\"\n[server]\nlisten = 1\n".into(),
    ))
    .await;
    let Err(StartError::Configuration(problems)) = wrong else {
        panic!("{wrong:?}");
    };
    assert!(problems.len() >= 2, "{problems:?}");

    let folder = Arc::new(tempfile::tempdir().unwrap());
    let good = format!("{}{}", head(folder.path()), source(folder.path()));
    std::fs::write(
        folder.path().join("data"),
        "a file where the folder should be",
    )
    .unwrap();
    let wrong = Rig::from(folder.clone(), good.clone()).await.err().unwrap();
    assert!(matches!(wrong, StartError::Assembly(_)), "{wrong:?}");
    assert!(wrong.to_string().contains("data_dir"), "{wrong}");
    std::fs::remove_file(folder.path().join("data")).unwrap();

    let option = good.replace("create =", "craete =");
    let wrong = Rig::from(folder.clone(), option).await.err().unwrap();
    let StartError::Configuration(problems) = wrong else {
        panic!("{wrong:?}");
    };
    let told = problems.iter().map(ToString::to_string).collect::<String>();
    assert!(told.contains("craete") && told.contains("create"), "{told}");

    let rig = Rig::from(folder.clone(), good.clone()).await.unwrap();
    rig.make_table().await;
    let taken = good.replace("127.0.0.1:0", &rig.client.address().to_string());
    let wrong = Server::start(options(taken)).await;
    assert!(matches!(wrong, Err(StartError::Listen { .. })), "{wrong:?}");
    // The one that failed left the file and the other server alone.
    Client::new(rig.client.address())
        .verb("query", json!({"sql": "SELECT 1"}))
        .await
        .good();
    assert_eq!(rig.running().warnings(), []);
    rig.end().await;

    std::fs::write(
        folder.path().join("data/runtime.toml"),
        "[sources.s.policy.circuit]\nfailures = \"x\"\n",
    )
    .unwrap();
    let wrong = Rig::from(folder.clone(), good).await.err().unwrap();
    let StartError::Configuration(problems) = wrong else {
        panic!("{wrong:?}");
    };
    assert!(
        problems[0].to_string().contains("runtime.toml"),
        "{problems:?}"
    );
}
