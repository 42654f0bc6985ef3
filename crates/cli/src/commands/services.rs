//! `services`: the message services of a running server, their targets and their open jobs.

use anyhow::Context;
use serde::Deserialize;

use crate::client::{Client, Target, encoded};
use crate::exit::Exit;
use crate::output::{self, Paint};
use crate::settings::counted;
use crate::table::Listing;

/// Show the message services of a running server
///
/// For each its connections to brokers and its targets: whether they live, whether new requests go there,
/// how much they have to do, and when something was last heard of them. AT MOST is the work that a target
/// takes at once.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay services
  mainstay services --jobs
  mainstay services --json --url http://127.0.0.1:7718")]
pub(crate) struct Arguments {
    /// Open jobs as well, the oldest 100 of each service
    #[arg(long)]
    jobs: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    target: Target,
}

#[derive(Deserialize)]
struct Service {
    name: String,
    identity: String,
    strategy: String,
    brokers: Vec<Broker>,
    targets: Vec<Member>,
    requests_open: usize,
    jobs_open: usize,
}

#[derive(Deserialize)]
struct Broker {
    name: String,
    state: String,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct Member {
    name: String,
    group: String,
    destination: String,
    state: String,
    aside: bool,
    draining: bool,
    requests_open: usize,
    jobs_open: u32,
    max_in_flight: Option<u32>,
    last_sign_s: Option<f64>,
}

#[derive(Deserialize)]
struct Job {
    id: String,
    operation: String,
    job_key: Option<String>,
    state: String,
    target: Option<String>,
    tried: Vec<String>,
    results: u64,
    left_s: Option<f64>,
}

/// Shows them.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let client = arguments.target.client()?;
    let mut documents = documents(&client).await?;
    if arguments.jobs {
        for service in &mut documents {
            let name = service["name"].as_str().unwrap_or_default();
            let jobs = client
                .get(&format!("/v1/services/{}/jobs", encoded(name)))
                .await?;
            service["jobs"] = jobs["jobs"].clone();
        }
    }
    if arguments.json {
        let all = serde_json::json!({"services": documents});
        output::say(&serde_json::to_string_pretty(&all)?)?;
        return Ok(Exit::Ok);
    }
    let mut lines = Vec::new();
    for document in documents {
        let jobs = document["jobs"].clone();
        let other = "the answer is not what this version expects; is the server of another one?";
        let service: Service = serde_json::from_value(document).context(other)?;
        lines.extend(shown(&service, Paint::stdout()));
        if arguments.jobs {
            lines.extend(jobs_shown(serde_json::from_value(jobs).context(other)?));
        }
        lines.push(String::new());
    }
    if lines.is_empty() {
        lines.push(format!(
            "{} has no message services; write [services.NAME]",
            client.url()
        ));
    }
    output::say(lines.join("\n").trim_end())?;
    Ok(Exit::Ok)
}

async fn documents(client: &Client) -> anyhow::Result<Vec<serde_json::Value>> {
    let list = client.get("/v1/services").await?;
    let mut documents = Vec::new();
    for service in list["services"].as_array().into_iter().flatten() {
        let name = service["name"].as_str().unwrap_or_default();
        documents.push(
            client
                .get(&format!("/v1/services/{}", encoded(name)))
                .await?,
        );
    }
    Ok(documents)
}

fn shown(service: &Service, paint: Paint) -> Vec<String> {
    let mut lines = vec![paint.bold(&format!(
        "{} · {} · {} · {} · {}",
        service.name,
        service.identity,
        service.strategy,
        counted(service.requests_open, "open request"),
        counted(service.jobs_open, "open job"),
    ))];
    for broker in &service.brokers {
        let reason = broker
            .reason
            .as_ref()
            .map(|reason| format!(": {reason}"))
            .unwrap_or_default();
        let line = format!("broker {} is {}{reason}", broker.name, broker.state);
        lines.push(if broker.state == "up" {
            line
        } else {
            paint.red(&line)
        });
    }
    let mut listing = Listing::new([
        "TARGET",
        "GROUP",
        "DESTINATION",
        "STATE",
        "GETS REQUESTS",
        "REQUESTS",
        "JOBS",
        "AT MOST",
        "LAST SIGN",
    ]);
    for target in &service.targets {
        let gets = match (target.draining, target.aside) {
            (true, _) => "no, draining",
            (false, true) => "if nothing else is left",
            (false, false) => "yes",
        };
        listing.row([
            target.name.clone(),
            target.group.clone(),
            target.destination.clone(),
            target.state.clone(),
            gets.to_owned(),
            target.requests_open.to_string(),
            target.jobs_open.to_string(),
            target
                .max_in_flight
                .map_or_else(|| "-".to_owned(), |max| max.to_string()),
            target
                .last_sign_s
                .map_or_else(|| "-".to_owned(), |ago| format!("{ago:.0} s ago")),
        ]);
    }
    listing.right(5..9);
    let rows = listing.lines();
    lines.extend(rows.iter().take(1).map(|header| paint.bold(header)));
    lines.extend(
        rows.iter()
            .skip(1)
            .zip(&service.targets)
            .map(
                |(row, target)| match target.aside || target.state == "dead" {
                    true => paint.red(row),
                    false => row.clone(),
                },
            ),
    );
    lines
}

fn jobs_shown(jobs: Vec<Job>) -> Vec<String> {
    if jobs.is_empty() {
        return Vec::new();
    }
    let mut listing = Listing::new([
        "JOB",
        "KEY",
        "OPERATION",
        "STATE",
        "TARGET",
        "TRIED",
        "RESULTS",
        "LEFT",
    ]);
    for job in jobs {
        listing.row([
            job.id,
            job.job_key.unwrap_or_else(|| "-".to_owned()),
            job.operation,
            job.state,
            job.target.unwrap_or_else(|| "-".to_owned()),
            job.tried.join(", "),
            job.results.to_string(),
            job.left_s
                .map_or_else(|| "-".to_owned(), |left| format!("{left:.0} s")),
        ]);
    }
    listing.right(6..8);
    listing.lines()
}
