//! Database files that are not there, or are none. What is missing may come: those are warnings. A folder
//! or another kind of file never becomes a database: those are errors.

use std::io::{ErrorKind, Read};
use std::path::Path;

use super::Configuration;
use crate::mark::Mark;
use crate::problem::{Findings, Problem, Wrong};
use crate::source::{EndpointSettings, Parts};

/// What every SQLite database begins with.
const HEAD: &[u8; 16] = b"SQLite format 3\0";

/// What somebody should look at before a start: database files and folders that do not exist, and paths
/// that lead to something else than a database. Touches the disk. `is_made` says which files the program itself makes.
pub fn missing_files(
    configuration: &Configuration,
    is_made: impl Fn(&Path) -> bool,
) -> Vec<Problem> {
    let mut findings = Findings::default();
    for (name, source) in &configuration.sources {
        let Some(parts) = configuration.parts(name) else {
            continue;
        };
        for (id, endpoint) in &source.endpoints {
            let Some(path) = endpoint.path() else {
                continue;
            };
            let place = place(&parts, id);
            let file = File {
                path,
                is_secret: place.is_secret,
            };
            if let Some(wrong) = file.no_database() {
                findings.error(place.mark, place.path, wrong);
            } else if !is_made(path)
                && let Some(wrong) = file.missing(endpoint, &configuration.server.data_dir)
            {
                findings.warning(place.mark, place.path, wrong);
            }
        }
    }
    findings.into_sorted()
}

/// What a path leads to, told without the path where that comes from a secret.
struct File<'a> {
    path: &'a Path,
    is_secret: bool,
}

impl File<'_> {
    fn shown(&self, path: &Path) -> String {
        match self.is_secret {
            true => "that the secret names".to_owned(),
            false => path.display().to_string(),
        }
    }

    fn missing(&self, endpoint: &EndpointSettings, data_dir: &Path) -> Option<Wrong> {
        let folder = self.path.parent();
        let folder = folder.filter(|folder| !folder.as_os_str().is_empty());
        // The program makes its own folder.
        if let Some(folder) = folder.filter(|folder| *folder != data_dir) {
            match std::fs::metadata(folder) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => {
                    let wrong = Wrong::new(format!("the folder {} is none", self.shown(folder)));
                    return Some(wrong.hint("name a path in a folder"));
                }
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Some(self.unknown("folder", folder, &error));
                }
                Err(_) => {
                    let wrong = Wrong::new(format!("the folder {} is missing", self.shown(folder)));
                    return Some(match self.is_secret {
                        true => wrong.hint("make it"),
                        false => {
                            wrong.hint(format!("make it with `mkdir -p {}`", folder.display()))
                        }
                    });
                }
            }
        }
        let is_made = endpoint
            .options
            .get("create")
            .is_some_and(|create| create == "true");
        match self.path.try_exists() {
            Err(error) => return Some(self.unknown("file", self.path, &error)),
            Ok(is_there) if is_there || is_made => return None,
            Ok(_) => {}
        }
        let wrong = Wrong::new(format!("the file {} is missing", self.shown(self.path)));
        Some(wrong.hint("make the file, or set options.create = true"))
    }

    /// What cannot be looked at may be there or not.
    fn unknown(&self, what: &str, path: &Path, error: &std::io::Error) -> Wrong {
        let shown = self.shown(path);
        Wrong::new(format!("the {what} {shown} cannot be looked at: {error}"))
            .hint("check the path, and that this user may enter its folders")
    }

    /// What is there and can never be a database. A file that cannot be read is not judged.
    fn no_database(&self) -> Option<Wrong> {
        let found = std::fs::metadata(self.path).ok()?;
        let shown = match self.is_secret {
            true => "what the secret names".to_owned(),
            false => self.path.display().to_string(),
        };
        if found.is_dir() {
            let wrong = Wrong::new(format!("{shown} is a folder"));
            return Some(wrong.hint("name a file in it, such as orders.db"));
        }
        // Opening another kind (a pipe, a device) may wait for ever.
        if !found.is_file() {
            return Some(Wrong::new(format!("{shown} is no file")).hint("name a file"));
        }
        let mut head = [0; HEAD.len()];
        let mut file = std::fs::File::open(self.path).ok()?;
        let is_other = match file.read_exact(&mut head) {
            Ok(()) => head != *HEAD,
            // An empty file is an empty database.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => found.len() > 0,
            Err(_) => false,
        };
        let wrong = || Wrong::new(format!("{shown} is no SQLite database"));
        is_other.then(|| wrong().hint("name another file, or restore it from a backup"))
    }
}

/// Where a path stands.
struct Place<'a> {
    mark: &'a Mark,
    path: String,
    is_secret: bool,
}

fn place<'a>(parts: &'a Parts<'_>, id: &str) -> Place<'a> {
    let at = |mark, path: &str, is_secret| Place {
        mark,
        path: path.to_owned(),
        is_secret,
    };
    let mut endpoints = parts.draft.endpoints.iter();
    let Some(draft) = endpoints.find(|draft| draft.id == id) else {
        return at(&parts.draft.mark, &parts.draft.path, true);
    };
    match parts.connection_at(draft).given("path") {
        Some(given) => at(&given.mark, &given.path, given.is_secret),
        None => at(&draft.mark, &draft.path, true),
    }
}
