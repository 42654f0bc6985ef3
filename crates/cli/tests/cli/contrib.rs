//! What `contrib/` names exists: flags, paths, and a program that behaves as they say.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::program::{Place, Run, run, send};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(name: &str) -> String {
    std::fs::read_to_string(root().join("contrib").join(name)).unwrap()
}

/// The value of a key that the unit has once.
fn key<'a>(unit: &'a str, name: &str) -> &'a str {
    let mut found = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let value = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(found.next(), None, "{name}");
    value
}

/// Arguments of the program that it takes, whatever else stands behind them.
#[track_caller]
fn assert_taken(arguments: &[&str]) {
    let mut all = arguments.to_vec();
    all.push("--help");
    let told = Place::new().run(&all);
    assert_eq!(told.code, 0, "{arguments:?}: {told:?}");
}

#[test]
fn the_units_command_serves_tells_systemd_reloads_and_ends() {
    let unit = read("mainstay.service");
    let place = Place::new();
    place.write("mainstay.toml", "[server]\nlisten = \"127.0.0.1:0\"\n");
    let folder = place.path().display().to_string();
    let own = key(&unit, "ExecStart")
        .replace("/etc/mainstay", &folder)
        .replace("/var/lib/mainstay", &folder);
    let mut words = own.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/mainstay"));
    let socket = place.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let patience = Duration::from_secs(60);
    manager.set_read_timeout(Some(patience)).unwrap();
    let told = || {
        let mut buffer = [0; 64];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let arguments: Vec<&str> = words.collect();
    let mut command = place.command(&arguments);
    let command = command.env("NOTIFY_SOCKET", &socket).stdout(Stdio::null());
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    assert_eq!(key(&unit, "Type"), "notify");
    assert_eq!(told(), "READY=1");
    assert_eq!(key(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID");
    send(&child, Signal::SIGHUP);
    send(&child, Signal::SIGTERM);
    assert_eq!(told(), "STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn the_unit_restarts_by_the_programs_exit_codes_and_waits_longer_than_it_drains() {
    let unit = read("mainstay.service");
    assert_eq!(key(&unit, "RestartPreventExitStatus"), "2 64");
    let place = Place::new();
    place.write("wrong.toml", "[server]\nlisten = 7\n");
    assert_eq!(place.run(&["serve", "--config", "wrong.toml"]).code, 2);
    assert_eq!(place.run(&["serve", "--no-such-flag"]).code, 64);
    let wait = mainstay_config::duration(key(&unit, "TimeoutStopSec")).unwrap();
    // What its end takes at most beyond the drain.
    let beyond = Duration::from_secs(15);
    let drain = mainstay_config::ServerSettings::default().drain_timeout;
    assert!(wait >= drain + beyond, "{wait:?}");
}

/// systemd itself reads the unit. It is for Linux alone; there `scripts/test` installs what this needs.
#[cfg(target_os = "linux")]
#[test]
fn systemd_finds_no_fault_with_the_unit_and_little_exposure() {
    let analyze = |arguments: &[&str]| {
        let mut command = Command::new("systemd-analyze");
        let output = command.args(arguments).stdin(Stdio::null()).output();
        let output = output.expect("systemd-analyze (Debian: the package systemd)");
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.success(),
            String::from_utf8_lossy(&text).into_owned(),
        )
    };
    let place = Place::new();
    // It looks for the program at its place.
    let program = env!("CARGO_BIN_EXE_mainstay");
    place.write(
        "mainstay.service",
        &read("mainstay.service").replace("/usr/bin/mainstay", program),
    );
    let path = place.path().join("mainstay.service");
    let path = path.to_str().unwrap();
    let (is_good, told) = analyze(&["verify", "--man=no", path]);
    let about_it: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("mainstay.service"))
        .collect();
    assert!(is_good && about_it.is_empty(), "{told}");
    // Exposure in tenths: 10 is nothing to speak of, 100 the most there is.
    let (is_low, told) = analyze(&["security", "--offline=yes", "--threshold=15", path]);
    assert!(is_low, "{told}");
    // A call that is not allowed fails, as one that the system does not have: without this it would kill the
    // whole process.
    assert_eq!(
        key(&read("mainstay.service"), "SystemCallErrorNumber"),
        "EPERM"
    );
}

#[test]
fn what_the_image_copies_exists_and_what_it_runs_is_understood() {
    let file = read("Containerfile");
    let mut stages = 0;
    for line in file.lines() {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "FROM" => stages += 1,
            "COPY" if rest.starts_with("--from=build ") => {
                assert!(rest.contains("/target/release/mainstay "), "{line}");
            }
            "COPY" => {
                let mut paths: Vec<&str> = rest.split(' ').collect();
                paths.pop();
                for path in paths {
                    assert!(root().join(path).exists(), "{line}");
                }
            }
            _ => {}
        }
    }
    assert_eq!(stages, 2);
    let list = |line: &str| -> Vec<String> { serde_json::from_str(line).unwrap() };
    let line = |word: &str| {
        file.lines()
            .find_map(|line| line.strip_prefix(word))
            .unwrap()
    };
    assert_eq!(list(line("ENTRYPOINT ")), ["mainstay"]);
    let served = list(line("CMD "));
    assert_taken(&served.iter().map(String::as_str).collect::<Vec<_>>());
    let (_, check) = line("HEALTHCHECK ").split_once("CMD ").unwrap();
    let check = list(check);
    assert_eq!(check[0], "mainstay");
    assert_taken(&check[1..].iter().map(String::as_str).collect::<Vec<_>>());
    assert_ne!(line("USER "), "0");
    let toml = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, members) = toml.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    for member in members
        .split(['"', ',', '\n', ' '])
        .filter(|word| !word.is_empty())
    {
        let folder = member.split('/').next().unwrap();
        assert!(
            file.contains(&format!("\nCOPY {folder} {folder}\n")),
            "{member}"
        );
    }
    let wanted = toml
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = "))
        .unwrap();
    assert!(
        file.contains(&format!("rust:{}-slim", wanted.trim_matches('"'))),
        "{wanted}"
    );
}

#[test]
fn alive_asks_for_no_key_and_knows_a_server_from_none() {
    let place = Place::new();
    place.write(
        "keys.toml",
        "[server.keys.a]\nsha256 = \"0000000000000000000000000000000000000000000000000000000000000000\"\nrole = \"read\"\n",
    );
    let server = place.serve(&["--config", "keys.toml"]);
    let alive = place.run(&["status", "--alive", "--url", &server.url]);
    assert_eq!(
        (alive.code, alive.out.as_str()),
        (0, "it answers\n"),
        "{alive:?}"
    );
    let asked = place.run(&["status", "--url", &server.url]);
    assert_eq!(asked.code, 1, "{asked:?}");
    let url = server.url.clone();
    drop(server);
    let gone = run(&mut place.command(&["status", "--alive", "--url", &url]));
    assert_eq!(gone.code, 1, "{gone:?}");
}

/// The check that the image runs, against a server elsewhere than it is looked for by default.
fn check_health(place: &Place, url: &str) -> Run {
    let file = read("Containerfile");
    let (_, check) = file.split_once("CMD [\"mainstay\", ").unwrap();
    let (check, _) = check.split_once(']').unwrap();
    let words: Vec<String> = serde_json::from_str(&format!("[{check}]")).unwrap();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    assert!(file.contains("MAINSTAY_URL=http://127.0.0.1:"), "{file}");
    let mut command = place.command(&words);
    run(command
        .env("MAINSTAY_URL", url)
        .env("MAINSTAY_KEY", "a secret"))
}

#[test]
fn the_images_health_check_knows_every_server_of_ours_and_no_other() {
    let place = Place::new();
    mainstay_testkit::certificates(place.path()).unwrap();
    let tls = "[server.tls]\ncert = \"server.crt\"\nkey = \"server.key\"\n";
    for (name, text) in [("plain.toml", ""), ("tls.toml", tls)] {
        place.write(name, text);
        let server = place.serve(&["--config", name]);
        for url in [server.url.replace("https:", "http:"), server.url.clone()] {
            let alive = check_health(&place, &url);
            assert_eq!(
                (alive.code, alive.out.as_str()),
                (0, "it answers\n"),
                "{url}: {alive:?}"
            );
        }
    }
    for (status, body) in [
        ("200 OK", "{}"),
        ("200 OK", "{\"status\": 7}"),
        ("200 OK", "<html>"),
        (
            "400 Bad Request",
            "{\"type\": \"about:blank\", \"status\": 400}",
        ),
        ("400 Bad Request", "{\"status\": \"ok\"}"),
        ("502 Bad Gateway", ""),
    ] {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", other.local_addr().unwrap());
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        let answering = std::thread::spawn(move || {
            let (mut stream, _) = other.accept().unwrap();
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let told = check_health(&place, &url);
        let asked = answering.join().unwrap();
        // It may be nobody's server, and the line is not encrypted.
        assert!(!asked.contains("secret"), "{asked}");
        assert_eq!(told.code, 1, "{status} {body}: {told:?}");
    }
}
