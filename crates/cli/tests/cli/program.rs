//! Runs the program in a folder of its own.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::sys::signal::Signal;
use tempfile::TempDir;

/// Longer than a slow machine needs to start the program and make the sample.
const START_MAX: Duration = Duration::from_secs(60);

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// A folder to run in.
pub(crate) struct Place {
    folder: TempDir,
}

impl Place {
    pub(crate) fn new() -> Self {
        Place {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    /// The program with nothing of the caller's environment that could change what it does.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
        for (name, _) in std::env::vars() {
            if name.starts_with("MAINSTAY_") || name == "NO_COLOR" || name == "COLUMNS" {
                command.env_remove(name);
            }
        }
        command
            .args(arguments)
            .current_dir(self.path())
            .stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        run(&mut self.command(arguments))
    }

    /// A server on a free port, once it has said where it listens.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let mut all = vec!["serve", "--listen", "127.0.0.1:0"];
        all.extend(arguments);
        Server::start(self.command(&all))
    }
}

pub(crate) fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    Run {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The lines of a pipe as they come, read in a thread of its own.
fn lines_of(pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (told, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).lines().map_while(Result::ok) {
            if told.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

/// A running server; ended with its test.
pub(crate) struct Server {
    child: Child,
    pub(crate) greeting: Vec<String>,
    pub(crate) url: String,
    complaints: mpsc::Receiver<String>,
    /// What it has complained about so far.
    heard: String,
}

impl Server {
    pub(crate) fn start(mut command: Command) -> Self {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let complaints = lines_of(child.stderr.take().unwrap());
        let mut server = Server {
            child,
            greeting: Vec::new(),
            url: String::new(),
            complaints,
            heard: String::new(),
        };
        loop {
            let line = lines.recv_timeout(START_MAX);
            let line = line.unwrap_or_else(|_| panic!("no greeting: {:?}", server.end()));
            let is_last = line.contains("Ctrl-C");
            server.greeting.push(line);
            if is_last {
                break;
            }
        }
        let first = &server.greeting[0];
        let (_, url) = first.split_once(" listens on ").unwrap();
        server.url = url.trim().to_owned();
        server
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(&self.child, signal);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it complains about something with this part.
    pub(crate) fn hear(&mut self, part: &str) {
        while !self.heard.contains(part) {
            let line = self.complaints.recv_timeout(START_MAX);
            let line = line.unwrap_or_else(|_| panic!("no {part}: {}", self.heard));
            self.heard.push_str(&line);
            self.heard.push('\n');
        }
    }

    /// Waits until it has ended by itself; its code and what it wrote to stderr.
    pub(crate) fn wait(mut self) -> (Option<i32>, String) {
        self.hear_all();
        (
            self.child.wait().unwrap().code(),
            std::mem::take(&mut self.heard),
        )
    }

    /// Everything up to its end.
    fn hear_all(&mut self) {
        for line in self.complaints.iter() {
            self.heard.push_str(&line);
            self.heard.push('\n');
        }
    }

    fn end(&mut self) -> &str {
        let _ = self.child.kill();
        self.hear_all();
        let _ = self.child.wait();
        &self.heard
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Sends a signal to a process that was started here.
pub(crate) fn send(child: &Child, signal: Signal) {
    let pid = i32::try_from(child.id()).unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), signal).unwrap();
}
