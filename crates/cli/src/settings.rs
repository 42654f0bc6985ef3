//! From files, environment and flags to settings; what is wrong with them goes to stderr.

use std::path::PathBuf;

use mainstay_config::{Configuration, Flag, Input, LoadOptions, Problem};

use crate::exit::Exit;
use crate::output;

/// Files, the environment of this process, and flags.
pub(crate) fn options(files: &[PathBuf], flags: Vec<Flag>) -> LoadOptions {
    LoadOptions {
        files: files.iter().cloned().map(Input::File).collect(),
        environment: environment(),
        flags,
        ..LoadOptions::default()
    }
}

/// Flags that stand for keys, as far as they are given.
pub(crate) fn flags<const N: usize>(given: [(&str, &str, &Option<String>); N]) -> Vec<Flag> {
    let flags = given.into_iter();
    let given = flags.filter_map(|(name, path, value)| {
        value.clone().map(|value| Flag {
            name: name.to_owned(),
            path: path.to_owned(),
            value,
        })
    });
    given.collect()
}

/// Variables that are no text cannot be configuration.
fn environment() -> Vec<(String, String)> {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// A configuration that can be used. Errors and warnings are told on stderr.
pub(crate) fn load(options: LoadOptions) -> Result<Configuration, Exit> {
    match Configuration::load(options) {
        Ok(loaded) => {
            tell(&loaded.warnings);
            Ok(loaded.configuration)
        }
        Err(problems) => Err(refuse(&problems)),
    }
}

/// Tells the problems of a configuration that cannot be used.
pub(crate) fn refuse(problems: &[Problem]) -> Exit {
    tell(problems);
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    output::complain(&format!(
        "mainstay: {} in the configuration; mend what is told above and try again",
        counted(errors, "error")
    ));
    Exit::Problems
}

/// Tells problems on stderr, a line each.
pub(crate) fn tell(problems: &[Problem]) {
    for problem in problems {
        output::complain(&problem.to_string());
    }
}

/// `1 error`, `12 errors`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}
