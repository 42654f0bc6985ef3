//! Policies in layers: each layer is checked by itself, then the strongest value of each key goes
//! into the settings of the strongest preset.

mod layered;

use std::collections::BTreeMap;

use mainstay_engine::policy::{KEYS, Key, Preset, Setting, key};

use crate::mark::Mark;
use crate::problem::{Findings, Wrong};
use crate::scalar;
use crate::suggestion;
use crate::tree::{Entry, Table, Value, join};

pub(crate) use layered::Layered;

/// The preset of data sources that name none.
pub(crate) const PRESET: Preset = Preset::Balanced;

/// Groups and keys of later versions, so that they are not taken for slips of the keyboard.
pub(crate) const LATER: &[&str] = &[
    "cache",
    "hedge",
    "ejection",
    "retry.adaptive_timeout",
    "health.give_back",
    "route.pinning",
    "route.slow_start",
    "limits.coalesce",
];

/// Labels of a policy beside its keys.
const LABELS: &[&str] = &["name", "version", "preset"];

/// What one layer says: `[policy]`, `[data.policy]`, a source's or an endpoint's.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyLayer {
    /// As `explain` names it, such as `[sources.orders.policy]`.
    pub(crate) name: String,
    preset: Option<(Preset, Mark)>,
    label: Option<(String, Mark)>,
    version: Option<(u64, Mark)>,
    values: BTreeMap<&'static str, Assigned>,
}

/// A value that a layer gives a key.
#[derive(Debug, Clone)]
pub(crate) struct Assigned {
    key: &'static Key,
    value: Setting,
    /// Where the key stands.
    pub(crate) mark: Mark,
    /// The whole path of the key in the file.
    pub(crate) path: String,
}

impl PolicyLayer {
    /// A layer that says nothing, for tables that are missing.
    pub(crate) fn empty(path: &str) -> Self {
        PolicyLayer {
            name: format!("[{path}]"),
            ..PolicyLayer::default()
        }
    }

    /// Reads a policy table.
    pub(crate) fn read(path: &str, table: &Table, findings: &mut Findings) -> Self {
        let mut layer = PolicyLayer::empty(path);
        for (name, entry) in table.iter() {
            let path = join(path, name);
            match name {
                "preset" => layer.preset(&path, entry, findings),
                "name" => {
                    let label = findings.take(&entry.mark, &path, scalar::text(&entry.node));
                    layer.label = label.map(|label| (label, entry.mark.clone()));
                }
                "version" => {
                    let version = findings.take(&entry.mark, &path, scalar::count(&entry.node));
                    layer.version = version.map(|version| (version, entry.mark.clone()));
                }
                _ if LATER.contains(&name) => {
                    findings.error(&entry.mark, path, Wrong::unavailable(name));
                }
                _ if groups().any(|group| group == name) => {
                    layer.group(name, &path, entry, findings);
                }
                _ => unknown_group(&entry.mark, path, name, findings),
            }
        }
        layer
    }

    /// Takes the preset that a source or endpoint names beside its policy table.
    pub(crate) fn preset(&mut self, path: &str, entry: &Entry, findings: &mut Findings) {
        let words: Vec<&str> = Preset::ALL.iter().map(|preset| preset.as_str()).collect();
        let word = scalar::choice("preset", &words, &entry.node);
        let word = findings.take(&entry.mark, path, word);
        let Some(preset) = word.and_then(|word| Preset::parse(&word)) else {
            return;
        };
        if let Some((_, first)) = &self.preset {
            let wrong = Wrong::new(format!("a preset is already named in line {}", first.line));
            return findings.error(&entry.mark, path, wrong.hint("keep one of the two"));
        }
        self.preset = Some((preset, entry.mark.clone()));
    }

    /// Gives a key a value that another key of the file, at `place`, stands for.
    pub(crate) fn put(&mut self, path: &str, value: Setting, place: (&Mark, &str)) {
        if let Some(key) = key(path) {
            let assigned = Assigned {
                key,
                value,
                mark: place.0.clone(),
                path: place.1.to_owned(),
            };
            self.values.insert(key.path, assigned);
        }
    }

    /// Where the layer gives that key a value.
    pub(crate) fn assigned(&self, path: &str) -> Option<(&Mark, &str)> {
        let assigned = self.values.get(path)?;
        Some((&assigned.mark, &assigned.path))
    }

    pub(crate) fn names_preset(&self) -> bool {
        self.preset.is_some()
    }

    fn group(&mut self, group: &str, path: &str, entry: &Entry, findings: &mut Findings) {
        let table = match &entry.node.value {
            Value::Table(table) => table,
            Value::Empty => return,
            other => {
                let wrong = format!("expected a table, got {}", other.kind());
                return findings.error(&entry.mark, path, wrong);
            }
        };
        for (name, entry) in table.iter() {
            let path = join(path, name);
            let short = format!("{group}.{name}");
            match key(&short) {
                Some(key) => self.assign(key, path, entry, findings),
                None if LATER.contains(&short.as_str()) => {
                    findings.error(&entry.mark, path, Wrong::unavailable(name));
                }
                None => {
                    let known = KEYS.iter().filter_map(|key| key.path.strip_prefix(group));
                    let known = known.filter_map(|rest| rest.strip_prefix('.'));
                    findings.unknown(&entry.mark, path, name, known);
                }
            }
        }
    }

    fn assign(&mut self, key: &'static Key, path: String, entry: &Entry, findings: &mut Findings) {
        let value = scalar::setting(key.path, key.kind, key.off, &entry.node);
        let value = value.map_err(|wrong| wrong.or_hint(key.doc));
        let Some(value) = findings.take(&entry.mark, &path, value) else {
            return;
        };
        // Tried alone, so that a value which a stronger layer hides is reported all the same.
        let tried = (key.set)(&mut PRESET.settings(), value.clone());
        if findings
            .take(
                &entry.mark,
                &path,
                tried.map_err(|message| Wrong::new(message).hint(key.doc)),
            )
            .is_none()
        {
            return;
        }
        if key.path == "retry.series" && value == Setting::Text(scalar::OLD_SERIES.into()) {
            let wrong = format!("{:?} is the old name of this series", scalar::OLD_SERIES);
            let wrong = Wrong::new(wrong);
            findings.warning(&entry.mark, &path, wrong.hint("write \"lengthening\""));
        }
        let mark = entry.mark.clone();
        let assigned = Assigned {
            key,
            value,
            mark,
            path,
        };
        self.values.insert(key.path, assigned);
    }
}

/// The groups of the keys, in their order.
fn groups() -> impl Iterator<Item = &'static str> + Clone {
    let mut last = "";
    KEYS.iter().filter_map(move |key| {
        let group = key.path.split('.').next().unwrap_or_default();
        let new = group != last;
        last = group;
        new.then_some(group)
    })
}

fn unknown_group(mark: &Mark, path: String, name: &str, findings: &mut Findings) {
    let same = KEYS.iter().find(|key| {
        let own = key.path.rsplit('.').next();
        own == Some(name)
    });
    let known = groups().chain(LABELS.iter().copied());
    if let (Some(key), None) = (same, suggestion::nearest(name, known.clone())) {
        let wrong = Wrong::new("unknown key").hint(format!("did you mean {}?", key.path));
        return findings.error(mark, path, wrong);
    }
    findings.unknown(mark, path, name, known);
}

/// Whether the name is that of a policy group, which belongs into a policy table.
pub(crate) fn is_group(name: &str) -> bool {
    groups().any(|group| group == name)
}
