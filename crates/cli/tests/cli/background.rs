//! `start`, `stop` and `status --background`, as real processes.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::program::{Place, Run, run, send};

/// A folder whose server in the background ends with its test.
struct Ground(Place);

impl Ground {
    fn new() -> Self {
        Ground(Place::new())
    }

    /// With a configuration, on a free port.
    fn with(text: &str) -> Self {
        let ground = Self::new();
        ground.0.write("a.toml", text);
        ground
    }

    fn start(&self, more: &[&str]) -> Run {
        run(&mut self.starting(more))
    }

    fn starting(&self, more: &[&str]) -> Command {
        let mut all = vec!["start", "--listen", "127.0.0.1:0"];
        all.extend(more);
        self.0.command(&all)
    }

    fn stop(&self, more: &[&str]) -> Run {
        let mut all = vec!["stop"];
        all.extend(more);
        self.0.run(&all)
    }

    fn status(&self) -> Run {
        self.0.run(&["status", "--background"])
    }

    fn pid(&self) -> i32 {
        let text = self.0.read("mainstay-data/mainstay.pid");
        text.lines().next().unwrap().parse().unwrap()
    }

    fn log(&self) -> String {
        self.0.read("mainstay-data/mainstay.log")
    }

    fn write_pid(&self, text: &str) {
        std::fs::create_dir_all(self.0.path().join("mainstay-data")).unwrap();
        self.0.write("mainstay-data/mainstay.pid", text);
        private(&self.0.path().join("mainstay-data/mainstay.pid"));
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.stop(&["--now", "--wait", "20"]);
    }
}

/// A file that its owner alone may write to, whatever the machine's usual is.
fn private(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

#[track_caller]
fn good(ended: Run) -> Run {
    assert_eq!(ended.code, 0, "{ended:?}");
    ended
}

#[track_caller]
fn bad(ended: Run, code: i32, part: &str) -> Run {
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
fn what_a_dead_process_or_another_program_left_is_no_obstacle_and_nobody_is_signalled() {
    let ground = Ground::new();
    let mut other = Command::new("sleep").arg("60").spawn().unwrap();
    for left in [
        format!(
            "{}\nhttp://127.0.0.1:7717\n/tmp/x.log\n0\nmainstay -\n",
            other.id()
        ),
        // Greater than any process has.
        "4194999\nhttp://127.0.0.1:7717\n/tmp/x.log\n0\nmainstay 7\n".to_owned(),
        String::new(),
    ] {
        ground.write_pid(&left);
        bad(ground.status(), 1, "no server is running");
        let stopped = good(ground.stop(&[]));
        assert!(stopped.out.contains("no server is running"), "{stopped:?}");
        good(ground.start(&[]));
        good(ground.stop(&[]));
    }
    assert_eq!(
        other.try_wait().unwrap(),
        None,
        "the other program was ended"
    );
    other.kill().unwrap();
    other.wait().unwrap();
}

#[test]
fn a_file_that_is_no_pid_file_is_neither_written_nor_removed() {
    let ground = Ground::with("[server]\nlisten = \"127.0.0.1:0\"\n");
    let place = &ground.0;
    place.write("nonsense.pid", "nonsense");
    let one = format!("{}\n", std::process::id());
    place.write("other.pid", &one);
    std::fs::write(place.path().join("a.db"), b"SQLite format 3\0\xff").unwrap();
    symlink(place.path().join("a.toml"), place.path().join("link.pid")).unwrap();
    let read = |name: &str| std::fs::read(place.path().join(name)).unwrap();
    for (name, part) in [
        ("a.toml", "is not a pid file of mainstay"),
        ("a.db", "is not a pid file of mainstay"),
        ("nonsense.pid", "is not a pid file of mainstay"),
        ("other.pid", "is not a pid file of mainstay"),
        ("link.pid", "is a symbolic link"),
        ("mainstay-data", "cannot be opened"),
    ] {
        if name != "link.pid" && name != "mainstay-data" {
            private(&place.path().join(name));
        }
        let before = (name != "mainstay-data").then(|| read(name));
        let given = ["--config", "a.toml", "--pid-file", name];
        let refused = bad(ground.start(&given), 1, part);
        assert!(refused.err.contains("--pid-file"), "{refused:?}");
        bad(ground.stop(&given), 1, part);
        let mut status = vec!["status", "--background"];
        status.extend(given);
        bad(place.run(&status), 1, part);
        assert_eq!((name != "mainstay-data").then(|| read(name)), before);
    }
}

#[test]
fn a_log_goes_behind_no_file_that_is_read_and_waits_for_no_reader() {
    let ground = Ground::with("[server]\nlisten = \"127.0.0.1:0\"\n");
    let place = &ground.0;
    place.write("b.toml", "");
    let pipe = place.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    symlink(place.path().join("a.toml"), place.path().join("link.log")).unwrap();
    let before = place.read("a.toml");
    for (log, part) in [
        ("a.toml", "is read as a.toml as well"),
        ("link.log", "is read as a.toml as well"),
        ("b.toml", "is read as b.toml as well"),
        ("x.pid", "is read as x.pid as well"),
        ("pipe", "cannot be written"),
    ] {
        let given = [
            "--config",
            "a.toml",
            "--config",
            "b.toml",
            "--pid-file",
            "x.pid",
        ];
        let refused = ground.start(&[&given[..], &["--log-file", log]].concat());
        bad(refused, 1, part);
        bad(ground.stop(&given), 0, "");
    }
    assert_eq!(
        (place.read("a.toml"), place.read("b.toml")),
        (before, String::new())
    );
    // A pipe with a reader is no file to show the end of, and may come to its end.
    let given = ["--log-file", "pipe"];
    let _reader = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    bad(
        ground.start(&given),
        1,
        "is neither a plain file nor a device",
    );
    good(ground.start(&["--log-file", "/dev/null"]));
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

#[test]
fn background_is_for_start_alone() {
    let place = Place::new();
    place.write("a.pid", "");
    private(&place.path().join("a.pid"));
    let open = || File::open(place.path().join("a.pid")).unwrap();
    let refused = |stdin: Stdio| {
        let mut command = place.command(&["serve", "--background", "a.pid", "a.log"]);
        bad(run(command.stdin(stdin)), 1, "mainstay start");
        assert_eq!(place.read("a.pid"), "");
    };
    refused(Stdio::null());
    // The file itself, which nobody has locked.
    refused(open().into());
    // Somebody else has.
    let held = open();
    held.lock().unwrap();
    refused(open().into());
}

/// Somebody to be signalled or asked by mistake: a process, and an address.
struct Stranger {
    process: Child,
    listener: TcpListener,
}

impl Stranger {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        Stranger {
            process: Command::new("sleep").arg("60").spawn().unwrap(),
            listener,
        }
    }

    /// A pid file that names it, with that beginning of its process.
    fn record(&self, begun: &str) -> String {
        let url = self.listener.local_addr().unwrap();
        let pid = self.process.id();
        format!("{pid}\nhttp://{url}\n/tmp/x.log\n0\nmainstay {begun}\n")
    }

    #[track_caller]
    fn assert_left_alone(&mut self) {
        assert_eq!(self.process.try_wait().unwrap(), None, "it was signalled");
        let asked = self.listener.accept();
        assert!(asked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock));
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Every command that looks at the file, side by side: some of them wait for a server that begins.
fn all_that_look(ground: &Ground) -> Vec<Run> {
    let commands = [
        &["stop"][..],
        &["stop", "--now"],
        &["status", "--background", "--key", "secret"],
        &["start", "--listen", "127.0.0.1:0"],
    ];
    let spawn = |arguments: &&[&str]| {
        let mut command = ground.0.command(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let running: Vec<Child> = commands.iter().map(spawn).collect();
    running.into_iter().map(ended).collect()
}

fn ended(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

#[test]
fn a_number_that_is_older_than_the_lock_is_neither_signalled_nor_asked_nor_told() {
    let ground = Ground::new();
    let mut stranger = Stranger::new();
    // A number that was given out anew, one that is not written yet, and one that is half written.
    let mut all = vec![stranger.record("7"), String::new(), stranger.record("")];
    if cfg!(target_os = "linux") {
        all.push(stranger.record("-"));
    }
    for said in all {
        ground.write_pid(&said);
        let path = ground.0.path().join("mainstay-data/mainstay.pid");
        let held = File::open(&path).unwrap();
        held.lock().unwrap();
        for told in all_that_look(&ground) {
            let told = bad(told, 1, "is locked by a server that is only just starting");
            assert!(!told.err.contains("pid 0"), "{told:?}");
        }
        assert_eq!(ground.0.read("mainstay-data/mainstay.pid"), said);
        stranger.assert_left_alone();
    }
    ground.write_pid("");
}

#[test]
fn what_others_may_write_is_not_believed_and_no_key_is_sent_there() {
    let ground = Ground::new();
    let mut stranger = Stranger::new();
    ground.write_pid(&stranger.record("-"));
    let path = ground.0.path().join("mainstay-data/mainstay.pid");
    std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let held = File::open(&path).unwrap();
    held.lock().unwrap();
    for told in all_that_look(&ground) {
        bad(told, 1, "chmod go-w");
    }
    stranger.assert_left_alone();
    private(&path);
}
