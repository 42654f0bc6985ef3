//! Database files that are not there. Nothing stands in the way of a start, so these are warnings.

use std::path::Path;

use super::Configuration;
use crate::problem::{Findings, Problem, Wrong};
use crate::source::{EndpointSettings, Parts};

/// What somebody should look at before a start: database files and folders that do not exist. Touches
/// the disk. `is_made` says which files the program itself makes.
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
            let wrong = endpoint
                .path()
                .filter(|path| !is_made(path))
                .and_then(|path| missing(path, endpoint, &configuration.server.data_dir));
            if let Some(wrong) = wrong {
                tell(&parts, id, wrong, &mut findings);
            }
        }
    }
    findings.into_sorted()
}

fn missing(path: &Path, endpoint: &EndpointSettings, data_dir: &Path) -> Option<Wrong> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // The program makes its own folder.
    if let Some(folder) = folder.filter(|folder| *folder != data_dir && !folder.is_dir()) {
        let folder = folder.display();
        let wrong = Wrong::new(format!("the folder {folder} is missing"));
        return Some(wrong.hint(format!("make it with `mkdir -p {folder}`")));
    }
    let is_made = endpoint
        .options
        .get("create")
        .is_some_and(|create| create == "true");
    if is_made || path.exists() {
        return None;
    }
    let wrong = Wrong::new(format!("the file {} is missing", path.display()));
    Some(wrong.hint("make the file, or set options.create = true"))
}

fn tell(parts: &Parts<'_>, id: &str, wrong: Wrong, findings: &mut Findings) {
    let mut endpoints = parts.draft.endpoints.iter();
    let Some(draft) = endpoints.find(|draft| draft.id == id) else {
        return;
    };
    match parts.connection_at(draft).given("path") {
        Some(given) => findings.warning(&given.mark, given.path.as_str(), wrong),
        None => findings.warning(&draft.mark, draft.path.as_str(), wrong),
    }
}
