//! The documentation as a whole: links lead somewhere, and what the program can tell is explained.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::program::Place;

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn doc(name: &str) -> String {
    read(&root().join("docs").join(name))
}

/// Every page: those of `docs` and those beside the sources.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => pages.push(path),
            }
        }
    }
    for name in [
        "contrib/README.md",
        "examples/README.md",
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ] {
        pages.push(root().join(name));
    }
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages
}

/// The lines of a page that are not in a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// Targets of links, without what stands in backticks.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        let spoken: String = line
            .split('`')
            .enumerate()
            .map(|(number, part)| if number % 2 == 0 { part } else { "code" })
            .collect();
        let starts = spoken.match_indices("](").map(|(at, _)| at + 2);
        links.extend(starts.filter_map(|at| {
            let (target, _) = spoken[at..].split_once(')')?;
            Some(target.to_owned())
        }));
    }
    links
}

/// The names under which the headings of a page can be linked to.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#'));
    let slug = |line: &str| -> String {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(slug).collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let (mut broken, mut seen) = (Vec::new(), 0);
    for page in pages() {
        let text = read(&page);
        for target in links(&text) {
            if target.starts_with("https://") || target.starts_with("http://") {
                continue;
            }
            seen += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let path = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            let leads =
                path.exists() && (anchor.is_empty() || anchors(&read(&path)).contains(anchor));
            if !leads {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
    assert!(seen > 50, "the links were not understood: {seen}");
}

#[test]
fn the_index_leads_to_every_page() {
    let docs = root().join("docs");
    let index = links(&doc("README.md"));
    let lost: Vec<PathBuf> = pages()
        .into_iter()
        .filter_map(|page| page.strip_prefix(&docs).map(Path::to_owned).ok())
        .filter(|page| page != Path::new("README.md"))
        .filter(|page| !index.iter().any(|target| Path::new(target) == page))
        .collect();
    assert!(lost.is_empty(), "no way from docs/README.md to {lost:?}");
}

#[test]
fn every_error_code_is_explained_with_its_status() {
    let page = doc("operating/troubleshooting.md");
    for (code, status) in mainstay_server::Problem::codes() {
        let row = format!("\n| `{code}` | {status} | ");
        assert!(page.contains(&row), "no row for {code} ({status})");
    }
}

#[test]
fn every_group_of_settings_has_a_page_that_explains_it() {
    let concepts: String = pages()
        .iter()
        .filter(|page| page.parent().unwrap().ends_with("concepts"))
        .map(|page| read(page))
        .collect();
    let groups: BTreeSet<&str> = mainstay_engine::policy::KEYS
        .iter()
        .filter_map(|key| key.path.split_once('.'))
        .map(|(group, _)| group)
        .collect();
    assert!(groups.len() > 5, "{groups:?}");
    for group in groups {
        let link = format!("[`[policy.{group}]`](../reference/configuration.md#policy{group})");
        assert!(
            concepts.contains(&link),
            "no page under concepts has {link}"
        );
    }
}

#[test]
fn every_metric_of_a_running_server_is_explained() {
    let place = Place::new();
    let server = place.serve(&[]);
    let url = format!("{}/metrics", server.url);
    let answer = Command::new("curl").args(["-sf", &url]).output().unwrap();
    let text = String::from_utf8(answer.stdout).unwrap();
    let page = doc("operating/observing.md");
    let families = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let mut seen = 0;
    for family in families {
        seen += 1;
        let (name, kind) = family.split_once(' ').unwrap();
        let row = format!("\n| `{name}` | {kind} | ");
        assert!(page.contains(&row), "no row for {name} ({kind})");
    }
    assert!(seen > 15, "{text}");
}
