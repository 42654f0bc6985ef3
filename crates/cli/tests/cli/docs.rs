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

/// Pages of mechanisms, with their names.
fn mechanisms() -> Vec<(String, String)> {
    let pages = pages().into_iter();
    let concepts = pages.filter(|page| page.parent().unwrap().ends_with("concepts"));
    let named = concepts.map(|page| {
        let name = page.file_stem().unwrap().to_string_lossy().into_owned();
        (name, read(&page))
    });
    // The way through all of them is none itself.
    named.filter(|(name, _)| name != "call-path").collect()
}

/// Whether a word stands in something that is marked as code.
fn names(page: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    page.lines().any(|line| {
        let code = line.split('`').skip(1).step_by(2);
        code.flat_map(|code| code.split(|c| !is_part(c)))
            .any(|part| part == word)
    })
}

#[test]
fn every_key_of_a_policy_is_named_on_a_page_of_its_group() {
    let pages = mechanisms();
    let mut lost = Vec::new();
    for key in mainstay_engine::policy::KEYS {
        let Some((group, name)) = key.path.split_once('.') else {
            continue;
        };
        let link = format!("(../reference/configuration.md#policy{group})");
        let mut own = pages.iter().filter(|(_, text)| text.contains(&link));
        if !own.any(|(_, text)| names(text, name)) {
            lost.push(key.path);
        }
    }
    assert!(
        lost.is_empty(),
        "keys that no page of their group names: {lost:?}"
    );
}

#[test]
fn every_key_of_the_reference_is_named_on_another_page() {
    let reference = doc("reference/configuration.md");
    let (written, _) = reference
        .split_once("\n## Policy\n")
        .unwrap_or((&reference, ""));
    let others: Vec<String> = pages()
        .iter()
        .filter(|page| !page.ends_with("reference/configuration.md"))
        .filter(|page| page.file_name().is_none_or(|name| name != "CHANGELOG.md"))
        .map(|page| read(page))
        .collect();
    let keys = written.lines().filter_map(|line| {
        let (key, _) = line.strip_prefix("| `")?.split_once('`')?;
        Some(key)
    });
    let keys: Vec<&str> = keys.filter(|key| !key.contains(['.', ' ', '='])).collect();
    assert!(keys.len() > 20, "{keys:?}");
    let lost: Vec<&&str> = keys
        .iter()
        .filter(|key| !others.iter().any(|page| names(page, key)))
        .collect();
    assert!(
        lost.is_empty(),
        "keys that only the reference names: {lost:?}"
    );
}

#[test]
fn every_event_is_explained() {
    let code = read(&root().join("crates/engine/src/event.rs"));
    let (_, kinds) = code.split_once("pub enum EventKind {").unwrap();
    let (kinds, _) = kinds.split_once("\n}").unwrap();
    let variants = kinds.lines().filter_map(|line| {
        let name = line.strip_prefix("    ")?;
        let is_variant = name.starts_with(|c: char| c.is_ascii_uppercase());
        is_variant.then(|| name.trim_end_matches([' ', ',', '{']).to_owned())
    });
    let page = doc("concepts/audit-and-events.md");
    let (mut seen, mut lost) = (0, Vec::new());
    for variant in variants {
        let mut snake = String::new();
        for (at, char) in variant.char_indices() {
            if at > 0 && char.is_ascii_uppercase() {
                snake.push('_');
            }
            snake.push(char.to_ascii_lowercase());
        }
        seen += 1;
        if !names(&page, &snake) {
            lost.push(snake);
        }
    }
    assert!(
        seen > 20 && lost.is_empty(),
        "{seen} events; not explained: {lost:?}"
    );
}

#[test]
fn every_page_of_a_mechanism_has_the_same_parts() {
    let parts = [
        "\n## Defaults",
        "\n## How to see it\n",
        "\n## What it does not do\n",
        "\n## What goes wrong when misused\n",
    ];
    let mut lacking = Vec::new();
    for (name, text) in mechanisms() {
        let lacks = |part: &&&str| !text.contains(**part);
        lacking.extend(
            parts
                .iter()
                .filter(lacks)
                .map(|part| format!("{name}: {}", part.trim())),
        );
        if !text.contains("\n```text\n") {
            lacking.push(format!("{name}: a picture"));
        }
    }
    assert!(lacking.is_empty(), "{lacking:#?}");
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
