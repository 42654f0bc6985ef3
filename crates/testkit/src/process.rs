//! Signals to a server with all its children. Each backend leads a session of its own, so a signal
//! to the process group would miss them: the tree is read from the process table.

use std::process::Command;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::time::Instant;

const STOPPED_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    /// It has ended, and only its entry waits for its parent.
    ended: bool,
}

/// Whether a process is there and has not ended.
pub(crate) fn running(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).is_some_and(|process| !process.ended),
        Err(_) if cfg!(target_os = "linux") => false,
        Err(_) => table()
            .iter()
            .any(|process| process.pid == pid && !process.ended),
    }
}

/// The running children of a process.
pub(crate) fn children(pid: i32) -> Vec<i32> {
    let of_pid = |process: &Process| process.parent == pid && !process.ended;
    table()
        .into_iter()
        .filter(of_pid)
        .map(|process| process.pid)
        .collect()
}

/// Sends a signal; a process that is gone already is no mistake.
pub(crate) fn signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Stops a server and its children. The server first: after that it starts no more of them.
pub(crate) fn stop_tree(pid: i32) -> Vec<i32> {
    stop(pid);
    let children = children(pid);
    for child in &children {
        signal(*child, Signal::SIGSTOP);
    }
    children.iter().for_each(|child| await_stop(*child));
    children
}

/// Stops a process with all its threads.
pub(crate) fn stop(pid: i32) {
    signal(pid, Signal::SIGSTOP);
    await_stop(pid);
}

/// The signal is taken when a thread runs next; until then another one may answer a client. Where there is no
/// `/proc` it is hoped for.
#[allow(
    clippy::disallowed_methods,
    reason = "servers are stopped and killed from where nothing can be awaited, and it takes a moment"
)]
fn await_stop(pid: i32) {
    let end = Instant::now() + STOPPED_WITHIN;
    while !has_stopped(pid) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether no thread of it runs.
fn has_stopped(pid: i32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return true;
    };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let state = stat
            .rfind(')')
            .and_then(|end| stat[end + 1..].trim_start().chars().next());
        matches!(state, None | Some('T' | 't' | 'Z' | 'X'))
    })
}

/// Lets a stopped server and its children go on.
pub(crate) fn continue_tree(pid: i32) {
    for child in children(pid) {
        signal(child, Signal::SIGCONT);
    }
    signal(pid, Signal::SIGCONT);
}

/// Kills a server and its children at once; gives the pids of all.
pub(crate) fn kill_tree(pid: i32) -> Vec<i32> {
    let mut all = stop_tree(pid);
    all.push(pid);
    for pid in &all {
        signal(*pid, Signal::SIGKILL);
    }
    all
}

fn table() -> Vec<Process> {
    match std::fs::read_dir("/proc") {
        Ok(entries) => entries
            .flatten()
            .filter(|entry| {
                entry
                    .file_name()
                    .to_str()
                    .is_some_and(|name| name.parse::<i32>().is_ok())
            })
            .filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok())
            .filter_map(|stat| parse_stat(&stat))
            .collect(),
        Err(_) => match Command::new("ps")
            .args(["-A", "-o", "pid=,ppid=,stat="])
            .output()
        {
            Ok(output) => String::from_utf8_lossy(&output.stdout)
                .lines()
                .filter_map(parse_ps)
                .collect(),
            Err(_) => Vec::new(),
        },
    }
}

/// `pid (name) state parent …`, where the name may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<Process> {
    let pid = stat.split_whitespace().next()?.parse().ok()?;
    let mut rest = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = rest.next()?;
    let parent = rest.next()?.parse().ok()?;
    Some(Process {
        pid,
        parent,
        ended: matches!(state, "Z" | "X"),
    })
}

fn parse_ps(line: &str) -> Option<Process> {
    let mut words = line.split_whitespace();
    let (pid, parent) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    Some(Process {
        pid,
        parent,
        ended: words.next()?.starts_with('Z'),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_is_read_whatever_the_name_holds() {
        for (line, expected) in [
            ("12 (postgres) S 3 12 12", Some((12, 3, false))),
            ("13 (a) Z b) R) Z 4 1", Some((13, 4, true))),
            ("14 (cut", None),
            ("", None),
        ] {
            let read = parse_stat(line).map(|p| (p.pid, p.parent, p.ended));
            assert_eq!(read, expected, "{line}");
        }
    }

    #[test]
    fn a_line_of_ps_is_read() {
        let read = parse_ps("  77   1 Ss+ ").map(|p| (p.pid, p.parent, p.ended));
        assert_eq!(read, Some((77, 1, false)));
        assert_eq!(parse_ps("x y z"), None);
    }
}
