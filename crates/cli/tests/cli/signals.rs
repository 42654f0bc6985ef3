//! Signals, as a real process hears them: also while something else goes on, or does not come to its end.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::fcntl::OFlag;
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use tokio::time::Instant;

use super::program::{Place, Server, send};

fn source(name: &str) -> String {
    format!(
        "[sources.{name}]\ndriver = \"sqlite\"\npath = \"{name}.db\"\noptions = {{ create = true }}\n[sources.{name}.endpoints.a]\n"
    )
}

/// A server whose configuration can be made one that never comes to its end.
struct Ground {
    place: Place,
    server: Server,
}

impl Ground {
    fn new() -> Self {
        let place = Place::new();
        place.write("a.toml", &source("one"));
        let server = place.serve(&["--config", "a.toml"]);
        Ground { place, server }
    }

    fn file(&self) -> PathBuf {
        self.place.path().join("a.toml")
    }

    /// A pipe in the place of the file.
    fn put_pipe(&self) {
        std::fs::remove_file(self.file()).unwrap();
        nix::unistd::mkfifo(&self.file(), Mode::S_IRWXU).unwrap();
    }

    /// The other end of the pipe, once the server has begun to read it.
    fn writer(&self) -> File {
        writer(&self.file())
    }
}

fn writer(pipe: &Path) -> File {
    let begun = Instant::now();
    loop {
        let mut options = OpenOptions::new();
        let options = options.write(true).custom_flags(OFlag::O_NONBLOCK.bits());
        match options.open(pipe) {
            Ok(file) => return file,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

#[test]
fn a_signal_to_end_is_heard_while_the_configuration_is_being_read() {
    let mut ground = Ground::new();
    ground.put_pipe();
    ground.server.signal(Signal::SIGHUP);
    let _never_ending = ground.writer();
    let begun = Instant::now();
    ground.server.signal(Signal::SIGTERM);
    ground.server.hear("finishing what is in flight");
    let (code, err) = ground.server.wait();
    assert!(begun.elapsed() < Duration::from_secs(20), "{err}");
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("ended while the configuration was being read"),
        "{err}"
    );
}

#[test]
fn a_second_signal_ends_at_once_a_server_whose_reload_hangs() {
    let mut ground = Ground::new();
    ground.put_pipe();
    ground.server.signal(Signal::SIGHUP);
    let _never_ending = ground.writer();
    ground.server.signal(Signal::SIGTERM);
    ground.server.hear("once more to end at once");
    // Two within 200 ms are one wish.
    let first = Instant::now();
    while first.elapsed() < Duration::from_millis(250) {
        std::thread::park_timeout(Duration::from_millis(50));
    }
    ground.server.signal(Signal::SIGINT);
    let (code, err) = ground.server.wait();
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("ended at once"), "{err}");
}

#[test]
fn a_hangup_that_meets_another_change_is_not_lost() {
    let mut ground = Ground::new();
    ground.put_pipe();
    let mut other = Command::new("curl")
        .args(["-sf", "-X", "POST"])
        .arg(format!("{}/v1/admin/reload", ground.server.url))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut pipe = ground.writer();
    // What the signal is about stands there already, and the other change is not over.
    std::fs::remove_file(ground.file()).unwrap();
    ground
        .place
        .write("a.toml", &(source("one") + &source("two")));
    ground.server.signal(Signal::SIGHUP);
    ground.server.hear("another change is under way");
    pipe.write_all(source("one").as_bytes()).unwrap();
    drop(pipe);
    assert!(other.wait().unwrap().success());
    ground.server.hear("the configuration was read again");
    let url = ground.server.url.clone();
    let status = ground.place.run(&["status", "--url", &url]);
    assert!(status.out.contains("two"), "{status:?}");
}

#[test]
fn a_hangup_during_a_reload_reads_once_more() {
    let mut ground = Ground::new();
    ground.put_pipe();
    ground.server.signal(Signal::SIGHUP);
    let mut pipe = ground.writer();
    std::fs::remove_file(ground.file()).unwrap();
    ground
        .place
        .write("a.toml", &(source("one") + &source("two")));
    ground.server.signal(Signal::SIGHUP);
    pipe.write_all(source("one").as_bytes()).unwrap();
    drop(pipe);
    ground.server.hear("the configuration was read again");
    let url = ground.server.url.clone();
    let begun = Instant::now();
    while !ground
        .place
        .run(&["status", "--url", &url])
        .out
        .contains("two")
    {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the second one was lost"
        );
    }
}

#[test]
fn a_service_manager_that_does_not_listen_holds_nothing_up() {
    let place = Place::new();
    let path = place.path().join("notify");
    let _manager = UnixDatagram::bind(&path).unwrap();
    let filling = UnixDatagram::unbound().unwrap();
    filling.set_nonblocking(true).unwrap();
    let mut count = 0;
    while filling.send_to(b"WATCHDOG=1", &path).is_ok() {
        count += 1;
        assert!(count < 1_000_000, "its queue has no end");
    }
    let mut command = place.command(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Server::start(command);
    server.hear("the service manager could not be told");
    server.signal(Signal::SIGTERM);
    let (code, err) = server.wait();
    assert_eq!(code, Some(0), "{err}");
}

#[test]
fn a_start_that_is_interrupted_leaves_no_server_behind() {
    let place = Place::new();
    std::fs::create_dir(place.path().join("mainstay-data")).unwrap();
    // A file that is read at the start and never comes to its end.
    let endless = place.path().join("mainstay-data/runtime.toml");
    nix::unistd::mkfifo(&endless, Mode::S_IRWXU).unwrap();
    let mut command = place.command(&["start", "--listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let starting = command.spawn().unwrap();
    let _never_ending = writer(&endless);
    send(&starting, Signal::SIGINT);
    let output = starting.wait_with_output().unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(
        err.contains("interrupted before the server answered; it was ended"),
        "{err}"
    );
    let status = place.run(&["status", "--background"]);
    assert!(status.err.contains("no server is running"), "{status:?}");
}
