//! `status`: the sources and endpoints of a running server.

use std::time::Duration;

use anyhow::Context;
use serde::Deserialize;

use crate::client::{Client, Target};
#[cfg(unix)]
use crate::daemon::{self, Holder};
use crate::exit::Exit;
use crate::output::{self, Paint, Picture};
use crate::settings::counted;
use crate::table::Listing;

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(1);

/// Show the sources and endpoints of a running server
///
/// Role, health check, circuit, lag behind the primary, attempts in flight, and of the last minute: the
/// time that half and 99 % of the attempts took at most, and the share that failed. REQUESTS counts
/// attempts since the start.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay status
  mainstay status --watch
  mainstay status --json --url http://127.0.0.1:7718
  mainstay status --background       the server that `mainstay start` has started")]
pub(crate) struct Arguments {
    /// Look again every second until Ctrl-C
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "watch")]
    json: bool,
    /// Only whether it answers; no key is shown, and TLS needs no authority; exit code 1 if not
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    alive: bool,
    /// The server that `start` has started, by its pid file instead of --url; exit code 1 if none runs
    #[cfg(unix)]
    #[arg(long)]
    background: bool,
    #[cfg(unix)]
    #[command(flatten)]
    place: daemon::Place,
    #[command(flatten)]
    target: Target,
}

/// What the pid file says of the server that `start` has started.
struct Daemon {
    url: String,
    line: String,
}

#[derive(Deserialize)]
struct Source {
    name: String,
    driver: String,
    state: String,
    promotion: String,
    members: Vec<Member>,
}

#[derive(Deserialize)]
struct Member {
    endpoint: String,
    role: String,
    health: String,
    circuit: String,
    trial_in_ms: Option<u64>,
    draining: bool,
    in_flight: u32,
    lag_ms: Option<u64>,
    check_error: Option<String>,
    stats: Stats,
}

#[derive(Deserialize)]
struct Stats {
    calls: u64,
    window_errors_percent: f64,
    p50_us: Option<u64>,
    p99_us: Option<u64>,
}

/// Shows it, once or until Ctrl-C.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let daemon = match find_daemon(&arguments).await? {
        Ok(daemon) => daemon,
        Err(exit) => return Ok(exit),
    };
    if arguments.alive {
        let url = daemon.as_ref().map(|server| server.url.as_str());
        arguments.target.prober(url)?.alive().await?;
        output::say("it answers")?;
        return Ok(Exit::Ok);
    }
    let client = match &daemon {
        Some(server) => arguments.target.client_of(&server.url)?,
        None => arguments.target.client()?,
    };
    if arguments.json {
        let all = serde_json::json!({"sources": documents(&client).await?});
        output::say(&serde_json::to_string_pretty(&all)?)?;
        return Ok(Exit::Ok);
    }
    if arguments.watch {
        return watch(&client).await;
    }
    if let Some(server) = &daemon {
        output::say(&server.line)?;
    }
    let sources = sources(&client).await?;
    output::say(&lines(&client, &sources, Paint::stdout()).join("\n"))?;
    Ok(Exit::Ok)
}

#[cfg(not(unix))]
async fn find_daemon(_: &Arguments) -> anyhow::Result<Result<Option<Daemon>, Exit>> {
    Ok(Ok(None))
}

/// The server that `start` has started, where it is asked for.
#[cfg(unix)]
async fn find_daemon(arguments: &Arguments) -> anyhow::Result<Result<Option<Daemon>, Exit>> {
    if !arguments.background {
        return Ok(Ok(None));
    }
    let path = match arguments.place.pid_file() {
        Ok(path) => path,
        Err(exit) => return Ok(Err(exit)),
    };
    let record = match daemon::holder(&path).await? {
        Holder::Server(_, record) => record,
        Holder::Nobody => {
            output::complain(&format!(
                "mainstay: no server is running ({}); start one with `mainstay start`",
                path.display()
            ));
            return Ok(Err(Exit::Failed));
        }
        Holder::Unsaid => anyhow::bail!(daemon::unsaid(&path)),
    };
    if record.told.is_empty() {
        anyhow::bail!(
            "the server (pid {}) is still starting; try again",
            record.pid
        );
    }
    let line = format!("pid {} · log {}", record.pid, record.log.display());
    Ok(Ok(Some(Daemon {
        url: record.told,
        line,
    })))
}

async fn watch(client: &Client) -> anyhow::Result<Exit> {
    // Whoever watches waits for a server that restarts; one that was never there is an error.
    let mut now = sources(client).await;
    if now.is_err() {
        return Err(now.err().unwrap_or_else(|| anyhow::anyhow!("no answer")));
    }
    let mut picture = Picture::default();
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    tick.tick().await;
    let ended = tokio::signal::ctrl_c();
    tokio::pin!(ended);
    loop {
        show(&mut picture, client, &now)?;
        tokio::select! {
            _ = &mut ended => return Ok(Exit::Ok),
            _ = tick.tick() => {}
        }
        now = tokio::select! {
            _ = &mut ended => return Ok(Exit::Ok),
            now = sources(client) => now,
        };
    }
}

fn show(
    picture: &mut Picture,
    client: &Client,
    now: &anyhow::Result<Vec<Source>>,
) -> std::io::Result<()> {
    let paint = Paint::stdout();
    let mut lines = match now {
        Ok(sources) => lines(client, sources, paint),
        Err(error) => vec![paint.red(&output::cut(&format!("{error:#}"), output::width()))],
    };
    if !output::is_terminal() {
        lines.push(String::new());
        return output::say(&lines.join("\n"));
    }
    lines.push(paint.dim("every second, Ctrl-C ends"));
    picture.draw(&lines)
}

async fn documents(client: &Client) -> anyhow::Result<Vec<serde_json::Value>> {
    let list = client.get("/v1/sources").await?;
    let mut documents = Vec::new();
    for source in list["sources"].as_array().into_iter().flatten() {
        let name = source["name"].as_str().unwrap_or_default();
        let path = format!("/v1/sources/{}", crate::client::encoded(name));
        documents.push(client.get(&path).await?);
    }
    Ok(documents)
}

async fn sources(client: &Client) -> anyhow::Result<Vec<Source>> {
    let documents = documents(client).await?.into_iter();
    let sources: Result<Vec<Source>, _> = documents.map(serde_json::from_value).collect();
    sources.context("the answer is not what this version expects; is the server of another one?")
}

fn lines(client: &Client, sources: &[Source], paint: Paint) -> Vec<String> {
    let endpoints = sources.iter().map(|source| source.members.len()).sum();
    let mut lines = vec![
        paint.bold(&format!(
            "{} · {} · {}",
            client.url(),
            counted(sources.len(), "source"),
            counted(endpoints, "endpoint")
        )),
        String::new(),
    ];
    let mut listing = Listing::new([
        "SOURCE",
        "ENDPOINT",
        "ROLE",
        "HEALTH",
        "CIRCUIT",
        "LAG",
        "IN FLIGHT",
        "P50",
        "P99",
        "ERRORS",
        "REQUESTS",
    ]);
    for source in sources {
        for (number, member) in source.members.iter().enumerate() {
            let name = if number == 0 {
                source.name.as_str()
            } else {
                ""
            };
            listing.row(row(name, member));
        }
    }
    listing.right(5..11);
    let rows = listing.lines();
    let members = sources.iter().flat_map(|source| &source.members);
    lines.extend(rows.iter().take(1).map(|header| paint.bold(header)));
    lines.extend(rows.iter().skip(1).zip(members).map(|(row, member)| {
        let is_bad = member.health == "down" || member.circuit == "open";
        match is_bad {
            true => paint.red(row),
            false if member.health == "unknown" || member.draining => paint.yellow(row),
            false => row.clone(),
        }
    }));
    lines.extend(reasons(sources, paint));
    for source in sources.iter().filter(|source| source.state != "open") {
        let note = format!(
            "{}: {} ({}, promotion {})",
            source.name, source.state, source.driver, source.promotion
        );
        lines.push(paint.yellow(&note));
    }
    lines
}

/// Why health checks fail, a line each.
fn reasons(sources: &[Source], paint: Paint) -> Vec<String> {
    let told = |source: &Source, member: &Member| {
        let error = member.check_error.as_deref()?;
        let error = error.replace(char::is_control, " ");
        let line = format!("{}.{}: {error}", source.name, member.endpoint);
        let line = output::cut(&line, output::width());
        Some(match member.health.as_str() {
            "down" => paint.red(&line),
            _ => paint.yellow(&line),
        })
    };
    let all = sources.iter().flat_map(|source| {
        let members = source.members.iter();
        members.filter_map(move |member| told(source, member))
    });
    all.collect()
}

fn row(source: &str, member: &Member) -> [String; 11] {
    let circuit = match member.trial_in_ms {
        Some(wait) => format!("{}, trial in {}", member.circuit, time(wait * 1000)),
        None => member.circuit.clone(),
    };
    let health = match member.draining {
        true => format!("{}, draining", member.health),
        false => member.health.clone(),
    };
    let measured = |micros: Option<u64>| micros.map_or("-".to_owned(), time);
    let stats = &member.stats;
    [
        source.to_owned(),
        member.endpoint.clone(),
        member.role.clone(),
        health,
        circuit,
        measured(member.lag_ms.map(|lag| lag * 1000)),
        member.in_flight.to_string(),
        measured(stats.p50_us),
        measured(stats.p99_us),
        format!("{:.1} %", stats.window_errors_percent),
        stats.calls.to_string(),
    ]
}

/// A time as people read it.
pub(crate) fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.1} s", micros as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_unit_that_people_would_choose() {
        for (micros, text) in [
            (0, "0 µs"),
            (999, "999 µs"),
            (1_500, "1.5 ms"),
            (2_340_000, "2.3 s"),
        ] {
            assert_eq!(time(micros), text);
        }
    }
}
