//! The pid file: whose it is, and that nobody is signalled, asked or overwritten by mistake.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::background::{Ground, bad, good};
use super::program::{Place, Run, run};

impl Ground {
    fn write_pid(&self, text: &str) {
        std::fs::create_dir_all(self.0.path().join("mainstay-data")).unwrap();
        self.0.write("mainstay-data/mainstay.pid", text);
        private(&self.0.path().join("mainstay-data/mainstay.pid"));
    }
}

/// A file that its owner alone may write to, whatever the machine's usual is.
fn private(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
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
