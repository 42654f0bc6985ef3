//! The program itself is killed with jobs open and while it accepts them: each is answered and ends.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::api::{Api, counted};
use super::peers::{Client, Work, Worker};
use super::world::{Kind, PRIMARY, STANDBY, World};
use crate::program::Server;

/// Jobs that are open when the program is killed.
const JOBS: usize = 500;
/// Every so-manyth gets no result from any target.
const STALLED: usize = 50;
/// Until the last job has ended, on a machine that does other things as well.
const END: Duration = Duration::from_secs(120);

/// Of slow jobs a result a second, so that they are open for long.
const SLOW: Work = Work {
    results: 8,
    step: Duration::from_secs(1),
};
const QUICK: Work = Work {
    results: 2,
    step: Duration::from_millis(100),
};

fn settings(result_timeout: &str) -> String {
    format!(
        "strategy = \"round_robin\"\n[services.compute.timeouts]\nack_timeout = \"2s\"\nheartbeat_interval = \"1s\"\n\
         result_timeout = \"{result_timeout}\"\n[services.compute.operations.run_compute_job]\n\
         safety = \"idempotent_write\"\nkind = \"job\"\njob_key = \"/job_id\"\nlast_result = '/status == \"done\"'\n"
    )
}

/// Asks for a job, as services ask: the broker keeps the request. Gives the request's id.
async fn ask(client: &Client, number: usize, stalls: bool) -> String {
    let body = json!({"job_id": format!("job-{number}"), "stalls": stalls});
    client.send_kept("run_compute_job", &body).await
}

/// Kills the program and starts it again.
async fn restart(world: &World, server: Server, configuration: &str) -> Server {
    server.signal(Signal::SIGKILL);
    drop(server);
    world.serve(configuration).await
}

async fn heard_end_of(client: &Client, jobs: usize) {
    let ended = |ledger: &super::peers::Ledger| (ledger.ends.len() >= jobs).then_some(());
    client.until("the end of every job", END, ended).await;
}

/// Replies that came once more; none but those that the program counted.
fn replies_again(client: &Client, counted: u64) -> usize {
    let ledger = client.ledger.lock().unwrap();
    let (same, others) = ledger.twice();
    assert_eq!(others, 0, "second replies");
    let same_max = usize::try_from(counted).unwrap();
    assert!(same <= same_max, "{same} came twice, {counted} counted");
    same
}

async fn open_jobs_end_after_a_kill(kind: Kind) {
    let world = World::new(kind).await;
    let _primary = Worker::start(&world.broker, PRIMARY, SLOW).await;
    let standby = Worker::start(&world.broker, STANDBY, SLOW).await;
    let configuration = world.configuration(&settings("8s"));
    let server = world.serve(&configuration).await;
    let client = Client::start(&world.broker).await;
    let asks = (0..JOBS).map(|number| ask(&client, number, number % STALLED == 0));
    futures_util::future::join_all(asks).await;
    let is_open = |service: &Value| service["jobs_open"] == JOBS;
    Api::new(&server).until("open jobs", END, is_open).await;
    // A worker dies with the program: its jobs go to the other one.
    drop(standby);
    let server = restart(&world, server, &configuration).await;
    let api = Api::new(&server);
    heard_end_of(&client, JOBS).await;
    let after = api.settled(END).await;
    let again = replies_again(&client, counted(&after, "replies_again"));
    let ledger = client.ledger.lock().unwrap();
    let failed = ledger.ends.values().filter(|it| it.contains(&"job_failed"));
    let failed = failed.count();
    let twice = ledger.ends.values().filter(|it| it.len() > 1).count();
    println!(
        "{kind:?}: {JOBS} jobs open at the kill: {} ended by results, {failed} by job_failed, {} driven again, \
         {} replies published again, {again} came twice, {twice} ends came twice",
        ledger.ends.len() - failed,
        counted(&after, "jobs_redriven"),
        counted(&after, "replies_again"),
    );
    // A machine that is busy may be later with a result than it is waited for.
    assert!(failed >= JOBS / STALLED, "jobs that no target finishes");
    for number in (0..JOBS).step_by(STALLED) {
        assert_eq!(ledger.ends[&format!("job-{number}")], ["job_failed"]);
    }
    assert!(failed < JOBS, "none ended by its results");
    assert!(counted(&after, "jobs_redriven") > 0, "{after:#}");
    assert_eq!(ledger.replies.len(), JOBS);
    assert!(ledger.all().all(|it| !it.has_error));
}

async fn kills_lose_no_job_that_was_asked_for(kind: Kind, seed: u64) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(kind).await;
    let _primary = Worker::start(&world.broker, PRIMARY, QUICK).await;
    let _standby = Worker::start(&world.broker, STANDBY, QUICK).await;
    let configuration = world.configuration(&settings("10s"));
    let mut server = world.serve(&configuration).await;
    let client = Client::start(&world.broker).await;
    let mut again = 0;
    let mut asked = Vec::new();
    for round in 0..KILLS {
        let send = async {
            let mut asked = Vec::new();
            for number in 0..JOBS / KILLS {
                asked.push(ask(&client, round * JOBS + number, false).await);
                sleep(Duration::from_millis(1)).await;
            }
            asked
        };
        let wait = Duration::from_millis(random.u64(5..300));
        let kill = async {
            sleep(wait).await;
            again += Api::new(&server).count("replies_again").await;
            restart(&world, server, &configuration).await
        };
        let (sent, started) = tokio::join!(send, kill);
        asked.extend(sent);
        server = started;
    }
    heard_end_of(&client, asked.len()).await;
    let answered = |ledger: &super::peers::Ledger| {
        let all = asked.iter().all(|id| ledger.replies.contains_key(id));
        all.then_some(())
    };
    client
        .until("a reply to every request", END, answered)
        .await;
    let after = Api::new(&server).settled(END).await;
    again += counted(&after, "replies_again");
    let twice = replies_again(&client, again);
    let ledger = client.ledger.lock().unwrap();
    println!(
        "{kind:?}: {KILLS} kills while {} jobs were accepted: {} errors, {again} replies published again, {twice} came \
         twice",
        asked.len(),
        ledger.all().filter(|it| it.has_error).count()
    );
    assert!(ledger.all().all(|it| !it.has_error), "{ledger:?}");
    let failed = ledger.ends.values().any(|it| it.contains(&"job_failed"));
    assert!(!failed, "{ledger:?}");
}

/// Kills of the program while it accepts jobs.
const KILLS: usize = 4;

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_open_jobs_on_mqtt_end_after_a_kill_of_the_program() {
    open_jobs_end_after_a_kill(Kind::Mqtt).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_open_jobs_on_amqp_end_after_a_kill_of_the_program() {
    open_jobs_end_after_a_kill(Kind::Amqp).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_program_lose_no_job_that_was_asked_for_on_mqtt() {
    kills_lose_no_job_that_was_asked_for(Kind::Mqtt, mainstay_testkit::seed()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kills_of_the_program_lose_no_job_that_was_asked_for_on_amqp() {
    kills_lose_no_job_that_was_asked_for(Kind::Amqp, mainstay_testkit::seed()).await;
}
