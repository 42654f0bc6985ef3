//! What to type to start this program once more.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Its name where the shell finds it by that name, else the path by which it was started.
pub(crate) fn own_name() -> String {
    let started = std::env::args_os().next().unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let program = std::env::current_exe().ok();
    name(&started, &path, program.as_deref())
}

fn name(started: &OsStr, path: &OsStr, program: Option<&Path>) -> String {
    let real = |path: PathBuf| path.canonicalize().ok();
    let program = program.and_then(|path| real(path.to_owned()));
    let mut found = std::env::split_paths(path).filter_map(|folder| real(folder.join(NAME)));
    // The shell takes the first that it finds.
    let is_found = program.is_some() && found.next() == program;
    match is_found || started.is_empty() {
        true => NAME.to_owned(),
        false => quoted(&started.to_string_lossy()),
    }
}

const NAME: &str = "mainstay";

/// A path as a shell takes it.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | '~');
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_on_the_path_has_its_name_and_another_the_path_it_was_started_by() {
        let folder = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        for folder in [&folder, &other] {
            std::fs::write(folder.path().join(NAME), "").unwrap();
        }
        let program = folder.path().join(NAME);
        let paths = |all: &[&tempfile::TempDir]| {
            std::env::join_paths(all.iter().map(|folder| folder.path())).unwrap()
        };
        let started = OsStr::new("./target/debug/mainstay");
        let name = |path: &OsStr| super::name(started, path, Some(&program));
        assert_eq!(name(&paths(&[&folder])), "mainstay");
        assert_eq!(name(&paths(&[&folder, &other])), "mainstay");
        assert_eq!(name(&paths(&[&other, &folder])), "./target/debug/mainstay");
        assert_eq!(name(&paths(&[])), "./target/debug/mainstay");
        let blank = OsStr::new("/my programs/mainstay");
        let named = super::name(blank, &paths(&[]), Some(&program));
        assert_eq!(named, "'/my programs/mainstay'");
    }
}
