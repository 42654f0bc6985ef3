//! The program as a person at a terminal sees it.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use nix::pty::{OpenptyResult, Winsize, openpty};
use nix::sys::signal::Signal;

use super::program::{Place, Server, send};

/// Nothing takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// A program whose stdout is a terminal of 30 rows of 120 columns.
struct Terminal {
    child: Child,
    arriving: mpsc::Receiver<Vec<u8>>,
    screen: String,
}

impl Terminal {
    fn start(mut command: Command) -> Self {
        let size = Winsize {
            ws_row: 30,
            ws_col: 120,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let OpenptyResult { master, slave } = openpty(&size, None).unwrap();
        let child = command.stdout(Stdio::from(slave)).spawn().unwrap();
        // The command holds the terminal open; its end would not be seen.
        drop(command);
        let (told, arriving) = mpsc::channel();
        std::thread::spawn(move || {
            let mut master = File::from(master);
            let mut piece = [0; 4096];
            // A terminal that nobody has open any more gives an error on Linux.
            while let Ok(length @ 1..) = master.read(&mut piece) {
                if told.send(piece[..length].to_vec()).is_err() {
                    return;
                }
            }
        });
        Terminal {
            child,
            arriving,
            screen: String::new(),
        }
    }

    /// What was written until something with this part was.
    fn until(&mut self, part: &str) -> &str {
        while !self.screen.contains(part) {
            let piece = self.arriving.recv_timeout(PATIENCE);
            let piece = piece.unwrap_or_else(|_| panic!("no {part:?}: {:?}", self.screen));
            self.screen.push_str(&String::from_utf8_lossy(&piece));
        }
        &self.screen
    }

    /// Waits for its end; its code and all that it wrote.
    fn wait(mut self) -> (Option<i32>, String) {
        for piece in self.arriving.iter() {
            self.screen.push_str(&String::from_utf8_lossy(&piece));
        }
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.screen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(place: &Place, server: &Server, flags: &[&str]) -> Command {
    let mut all = vec!["status", "--url", &server.url];
    all.extend(flags);
    let mut command = place.command(&all);
    command.env("TERM", "xterm");
    command
}

/// Whether a text sets a colour or boldness: `ESC [ … m`.
fn is_painted(text: &str) -> bool {
    text.split("\x1b[").skip(1).any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != ';');
        end.is_some_and(|end| rest[end..].starts_with('m'))
    })
}

#[test]
fn a_terminal_gets_colours_unless_no_color_or_a_dumb_terminal_forbids_them() {
    let place = Place::new();
    let server = place.serve(&[]);
    for (variable, value, painted) in [
        ("LANG", "C", true),
        ("NO_COLOR", "", true),
        ("NO_COLOR", "1", false),
        ("NO_COLOR", "false", false),
        ("TERM", "dumb", false),
    ] {
        let mut command = status(&place, &server, &[]);
        command.env(variable, value);
        let (code, screen) = Terminal::start(command).wait();
        assert_eq!(code, Some(0), "{variable}={value}: {screen:?}");
        assert!(
            screen.contains("reader_1"),
            "{variable}={value}: {screen:?}"
        );
        assert_eq!(
            is_painted(&screen),
            painted,
            "{variable}={value}: {screen:?}"
        );
        assert_eq!(
            screen.contains('\x1b'),
            painted,
            "{variable}={value}: {screen:?}"
        );
    }
}

#[test]
fn a_watched_status_is_drawn_over_itself_until_ctrl_c() {
    let place = Place::new();
    let server = place.serve(&[]);
    for no_color in [false, true] {
        let mut command = status(&place, &server, &["--watch"]);
        if no_color {
            command.env("NO_COLOR", "1");
        }
        let mut terminal = Terminal::start(command);
        let first = terminal.until("\x1b[J").to_owned();
        assert!(first.contains("Ctrl-C ends"), "{first:?}");
        let height = first.matches('\n').count();
        // Up to where the first one began.
        terminal.until(&format!("\x1b[{height}A\r"));
        let circuit = if no_color { "release" } else { "isolate" };
        let url = format!(
            "{}/v1/sources/demo/endpoints/reader_1/{circuit}",
            server.url
        );
        let posted = Command::new("curl")
            .args(["-sf", "-X", "POST", &url])
            .output();
        assert!(posted.unwrap().status.success(), "{url}");
        terminal.until(if no_color { "half_open" } else { "isolated" });
        send(&terminal.child, Signal::SIGINT);
        let (code, screen) = terminal.wait();
        assert_eq!(code, Some(0), "{screen:?}");
        assert_eq!(is_painted(&screen), !no_color, "{screen:?}");
    }
}

#[test]
fn a_watched_status_in_a_pipe_is_one_table_after_the_other() {
    let place = Place::new();
    let server = place.serve(&[]);
    let mut command = status(&place, &server, &["--watch"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while text.matches("SOURCE").count() < 2 {
        let length = pipe.read(&mut piece).unwrap();
        assert!(length > 0, "it ended: {text:?}");
        text.push_str(&String::from_utf8_lossy(&piece[..length]));
    }
    assert!(!text.contains('\x1b'), "{text:?}");
    send(&child, Signal::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0), "{text:?}");
}
