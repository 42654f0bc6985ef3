//! `start`, `stop` and `status --background`, as real processes.

use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::program::{Place, Run, run, send};

/// A folder whose server in the background ends with its test.
pub(crate) struct Ground(pub(crate) Place);

impl Ground {
    pub(crate) fn new() -> Self {
        Ground(Place::new())
    }

    /// With a configuration, on a free port.
    pub(crate) fn with(text: &str) -> Self {
        let ground = Self::new();
        ground.0.write("a.toml", text);
        ground
    }

    pub(crate) fn start(&self, more: &[&str]) -> Run {
        run(&mut self.starting(more))
    }

    fn starting(&self, more: &[&str]) -> Command {
        let mut all = vec!["start", "--listen", "127.0.0.1:0"];
        all.extend(more);
        self.0.command(&all)
    }

    pub(crate) fn stop(&self, more: &[&str]) -> Run {
        let mut all = vec!["stop"];
        all.extend(more);
        self.0.run(&all)
    }

    pub(crate) fn status(&self) -> Run {
        self.0.run(&["status", "--background"])
    }

    fn pid(&self) -> i32 {
        let text = self.0.read("mainstay-data/mainstay.pid");
        text.lines().next().unwrap().parse().unwrap()
    }

    fn log(&self) -> String {
        self.0.read("mainstay-data/mainstay.log")
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.stop(&["--now", "--wait", "20"]);
    }
}

#[track_caller]
pub(crate) fn good(ended: Run) -> Run {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended
}

#[track_caller]
pub(crate) fn bad(ended: Run, code: i32, part: &str) -> Run {
    assert_eq!(ended.code, code, "{ended:?}");
    assert!(ended.err.contains(part), "{ended:?}");
    ended
}

/// The address that `start` has printed.
fn url(started: &Run) -> String {
    let (_, rest) = started.out.split_once(" listens on ").unwrap();
    rest.split(' ').next().unwrap().to_owned()
}

/// Looks until it holds, at most 20 s.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = SystemTime::now();
    while !holds() {
        let waited = begun.elapsed().unwrap_or_default();
        assert!(waited < Duration::from_secs(20), "never: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn start_comes_back_when_the_server_answers_and_stop_when_it_has_ended() {
    let ground = Ground::new();
    let started = good(ground.start(&[]));
    let url = url(&started);
    let answer = run(Command::new("curl").args(["-sf", &format!("{url}/healthz")]));
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(
        started
            .out
            .contains(&format!("(pid {}, log ", ground.pid())),
        "{started:?}"
    );
    let status = good(ground.status());
    assert!(
        status
            .out
            .starts_with(&format!("pid {} · log ", ground.pid())),
        "{status:?}"
    );
    assert!(status.out.contains("demo"), "{status:?}");
    assert!(ground.log().contains(&url), "{}", ground.log());

    let stopped = good(ground.stop(&[]));
    assert_eq!(stopped.out, "ended, nothing was left\n");
    assert!(!ground.0.path().join("mainstay-data/mainstay.pid").exists());
    bad(ground.status(), 1, "no server is running");
    let again = good(ground.stop(&[]));
    assert!(again.out.contains("no server is running"), "{again:?}");
}

#[test]
fn a_server_with_tls_is_started_looked_at_and_stopped() {
    let ground = Ground::with("[server.tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n");
    let files = mainstay_testkit::certificates(ground.0.path()).unwrap();
    let started = good(ground.start(&["--config", "a.toml"]));
    assert!(url(&started).starts_with("https://"), "{started:?}");
    let alive = ["status", "--background", "--alive"];
    assert_eq!(good(ground.0.run(&alive)).out, "it answers\n");
    let ca = files.ca.display().to_string();
    good(ground.0.run(&["status", "--background", "--ca", &ca]));
    good(ground.stop(&[]));
    bad(ground.0.run(&alive), 1, "no server is running");
}

#[test]
fn of_two_starts_at_once_one_wins_and_the_other_says_so() {
    let ground = Ground::new();
    for _ in 0..5 {
        let spawn = || {
            let mut command = ground.starting(&[]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().unwrap()
        };
        let both = [spawn(), spawn()].map(|child| {
            let output = child.wait_with_output().unwrap();
            (
                output.status.code(),
                String::from_utf8(output.stderr).unwrap(),
            )
        });
        let winners = both.iter().filter(|(code, _)| *code == Some(0)).count();
        assert_eq!(winners, 1, "{both:?}");
        let (code, err) = both.iter().find(|(code, _)| *code != Some(0)).unwrap();
        assert_eq!(*code, Some(1), "{both:?}");
        let whose = format!("a server runs already (pid {}, ", ground.pid());
        assert!(err.contains(&whose), "{both:?}");
        good(ground.stop(&[]));
    }
}

#[test]
fn the_pid_file_goes_before_an_address_of_the_environment() {
    let ground = Ground::new();
    let elsewhere = || {
        let mut status = ground.0.command(&["status", "--background"]);
        status.env("MAINSTAY_URL", "http://127.0.0.1:1");
        run(&mut status)
    };
    assert_eq!(elsewhere().code, 1, "{:?}", elsewhere());
    good(ground.start(&[]));
    good(elsewhere());
}

#[test]
fn a_server_that_was_killed_is_no_server_and_start_begins_anew() {
    let ground = Ground::new();
    good(ground.start(&[]));
    let killed = ground.pid();
    kill(Pid::from_raw(killed), Signal::SIGKILL).unwrap();
    eventually("its lock is gone", || ground.status().code == 1);
    good(ground.start(&[]));
    assert_ne!(ground.pid(), killed);
}

#[test]
fn a_server_that_is_killed_while_stop_waits_is_told() {
    let ground = Ground::with(&format!("[server]\ndrain_timeout = \"60s\"\n{PATIENT}"));
    let started = good(ground.start(&["--config", "a.toml"]));
    let asking = endless(&ground, &url(&started));
    let mut stopping = ground.0.command(&["stop"]);
    let stopping = stopping
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("it drains", || {
        ground.log().contains("finishing what is in flight")
    });
    kill(Pid::from_raw(ground.pid()), Signal::SIGKILL).unwrap();
    let output = stopping.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("was it killed?"), "{err}");
    finish(asking);
}

/// A statement that never ends, once it runs.
fn endless(ground: &Ground, url: &str) -> Child {
    let sql =
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n";
    let mut command = ground.0.command(&["query", "--url", url, sql]);
    let child = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the statement runs", || {
        let status = ground.0.run(&["status", "--url", url, "--json"]);
        let all: serde_json::Value = serde_json::from_str(&status.out).unwrap();
        let members = all["sources"][0]["members"].as_array().unwrap().iter();
        let running = members.map(|member| member["in_flight"].as_u64().unwrap());
        running.sum::<u64>() > 0
    });
    child
}

fn finish(mut asking: Child) {
    asking.wait().unwrap();
}

const PATIENT: &str = "[policy.retry]\nattempt_timeout = \"100s\"\ndeadline = \"100s\"\n\
    [sources.demo]\ndriver = \"sqlite\"\npath = \"d.db\"\noptions = { create = true }\n[sources.demo.endpoints.a]\n";

#[test]
fn stop_waits_for_work_in_flight_as_long_as_the_server_does_and_says_what_was_cut() {
    let ground = Ground::with(&format!("[server]\ndrain_timeout = \"1s\"\n{PATIENT}"));
    let started = good(ground.start(&["--config", "a.toml"]));
    let asking = endless(&ground, &url(&started));
    let stopped = ground.stop(&["--config", "a.toml"]);
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(
        stopped.out.contains("1 request in flight cut"),
        "{stopped:?}"
    );
    finish(asking);
}

#[test]
fn stop_itself_waits_no_longer_than_it_is_told_and_now_cuts_at_once() {
    let ground = Ground::with(&format!("[server]\ndrain_timeout = \"90s\"\n{PATIENT}"));
    let started = good(ground.start(&["--config", "a.toml"]));
    let asking = endless(&ground, &url(&started));
    bad(
        ground.stop(&["--wait", "1"]),
        1,
        "still finishes what is in flight after 1 s",
    );
    assert_eq!(good(ground.status_of_pid()).code, 0);
    let stopped = ground.stop(&["--now"]);
    assert_eq!(stopped.code, 1, "{stopped:?}");
    assert!(stopped.out.contains("ended at once"), "{stopped:?}");
    finish(asking);
}

impl Ground {
    /// That it still lives, without asking it.
    fn status_of_pid(&self) -> Run {
        run(Command::new("kill").args(["-0", &self.pid().to_string()]))
    }
}

#[test]
fn a_server_that_cannot_start_shows_the_end_of_its_log() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ground = Ground::new();
    let failed = ground.0.run(&["start", "--listen", &address]);
    let failed = bad(failed, 1, &format!("cannot listen on {address}"));
    assert!(
        failed.err.contains("mainstay-data/mainstay.log"),
        "{failed:?}"
    );
    // It says of this start what it says, and nothing of one before.
    good(ground.start(&[]));
    good(ground.stop(&[]));
    let log = ground.log();
    assert!(log.contains("cannot listen on"), "a log goes on: {log}");

    let wrong = Ground::with("[server]\nlisten = 7\n");
    bad(wrong.start(&["--config", "a.toml"]), 2, "server.listen");
    bad(wrong.stop(&["--config", "a.toml"]), 2, "server.listen");
    bad(wrong.start(&["--wait", "0"]), 64, "--wait");
    let nowhere = wrong.start(&["--pid-file", "no/such/folder.pid"]);
    bad(nowhere, 1, "name another by --pid-file");
}

#[test]
fn a_server_that_does_not_answer_in_time_is_ended() {
    let ground = Ground::new();
    std::fs::create_dir_all(ground.0.path().join("mainstay-data")).unwrap();
    // A file that is read at the start and never comes to its end.
    let file = ground.0.path().join("mainstay-data/runtime.toml");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let failed = ground.start(&["--wait", "1"]);
    bad(failed, 1, "did not answer within 1 s and was ended");
    bad(ground.status(), 1, "no server is running");
}

#[test]
fn a_hangup_reads_the_configuration_again_and_a_wrong_one_changes_nothing() {
    let source = |name: &str| {
        format!(
            "[sources.{name}]\ndriver = \"sqlite\"\npath = \"{name}.db\"\noptions = {{ create = true }}\n[sources.{name}.endpoints.a]\n"
        )
    };
    let ground = Ground::with(&source("one"));
    good(ground.start(&["--config", "a.toml"]));
    let hang_up = || kill(Pid::from_raw(ground.pid()), Signal::SIGHUP).unwrap();
    ground.0.write("a.toml", &(source("one") + &source("two")));
    hang_up();
    eventually("the second source is there", || {
        ground.status().out.contains("two")
    });
    ground
        .0
        .write("a.toml", "[sources.one]\ndriver = \"none\"\n");
    hang_up();
    eventually("the log says why not", || {
        ground.log().contains("the configuration was not reloaded")
    });
    assert!(good(ground.status()).out.contains("two"));
}

#[test]
fn a_service_manager_is_told_when_it_serves_and_when_it_ends() {
    let place = Place::new();
    let path = place.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let told = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command
        .env("NOTIFY_SOCKET", &path)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    assert_eq!(told(), "READY=1");
    send(&child, Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
