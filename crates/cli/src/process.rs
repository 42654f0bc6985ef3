//! Which process a number means: numbers are given out anew.

/// When a process began, in the system's ticks since it was started itself. `None`: there is no such process,
/// or this system does not tell: it is told on Linux alone. Elsewhere the lock on the pid file is all that says
/// that its number is still that of the server.
pub(crate) fn begun(pid: u32) -> Option<u64> {
    match cfg!(target_os = "linux") {
        true => parse(&std::fs::read(format!("/proc/{pid}/stat")).ok()?),
        false => None,
    }
}

/// The 22nd field. The second one is the program's name in brackets, which may hold anything.
fn parse(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&stat[name_end + 1..]).ok()?;
    rest.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_anything_in_it_does_not_move_the_fields() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20";
        for name in ["a", "a b", "a) R 1 (b", "\u{fc})"] {
            let stat = format!("7 ({name}) {rest}\n");
            assert_eq!(parse(stat.as_bytes()), Some(4711), "{name}");
        }
        for stat in [
            "",
            "7 (a",
            "7 (a) S 1",
            "7 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 x",
        ] {
            assert_eq!(parse(stat.as_bytes()), None, "{stat}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_is_told_from_one_before_it() {
        let own = begun(std::process::id()).unwrap();
        let mut later = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let its = begun(later.id());
        later.kill().unwrap();
        later.wait().unwrap();
        assert!(its.unwrap() >= own);
        assert_eq!(begun(later.id()), None);
    }
}
