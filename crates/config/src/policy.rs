//! Policies in layers: each layer is checked by itself, then the strongest value of each key goes
//! into the settings of the strongest preset.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_engine::Policy;
use mainstay_engine::policy::{KEYS, Key, Preset, Setting, Settings, key};

use crate::mark::Mark;
use crate::problem::{Findings, Wrong};
use crate::scalar;
use crate::suggestion;
use crate::tree::{Entry, Table, Value, join};

/// The preset of data sources that name none.
pub(crate) const PRESET: Preset = Preset::Balanced;

/// Groups and keys of later versions, so that they are not taken for slips of the keyboard.
const LATER: &[&str] = &[
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
#[derive(Debug, Default)]
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
        if key.path == "retry.series" && value == Setting::Text("fibonacci".into()) {
            let wrong = Wrong::new("\"fibonacci\" is the old name of this series");
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

/// What all layers together say, weakest first.
pub(crate) struct Layered<'a> {
    layers: Vec<&'a PolicyLayer>,
    values: BTreeMap<&'static str, (usize, &'a Assigned)>,
    preset: Option<(usize, Preset, &'a Mark)>,
}

/// Where the value of a key came from.
pub(crate) struct Derived {
    pub(crate) value: Setting,
    pub(crate) layer: String,
    pub(crate) mark: Option<Mark>,
}

impl<'a> Layered<'a> {
    pub(crate) fn new(layers: &[&'a PolicyLayer]) -> Self {
        let layers = layers.to_vec();
        let mut values = BTreeMap::new();
        let mut preset = None;
        for (level, layer) in layers.iter().copied().enumerate() {
            values.extend(
                layer
                    .values
                    .iter()
                    .map(|(key, value)| (*key, (level, value))),
            );
            if let Some((named, mark)) = &layer.preset {
                preset = Some((level, *named, mark));
            }
        }
        Layered {
            layers,
            values,
            preset,
        }
    }

    pub(crate) fn preset_or_default(&self) -> Preset {
        self.preset.map_or(PRESET, |(_, preset, _)| preset)
    }

    fn settings(&self) -> Settings {
        let mut settings = self.preset_or_default().settings();
        for layer in &self.layers {
            if let Some((label, _)) = &layer.label {
                settings.name = label.clone().into();
            }
            if let Some((version, _)) = &layer.version {
                settings.version = *version;
            }
        }
        for key in KEYS {
            if let Some((_, assigned)) = self.values.get(key.path) {
                // Each value was tried when its layer was read.
                let _ = (key.set)(&mut settings, assigned.value.clone());
            }
        }
        // Setting a part of the budget switches it on; what was said about the whole still holds.
        if let Some((_, whole)) = self.values.get("retry.budget") {
            let _ = (whole.key.set)(&mut settings, whole.value.clone());
        }
        settings
    }

    /// The policy, or problems at the lines that caused them; `whole` is the source or endpoint.
    pub(crate) fn policy(
        &self,
        whole: (&Mark, &str),
        findings: &mut Findings,
    ) -> Option<Arc<Policy>> {
        self.warn(findings);
        match Policy::new(self.settings()) {
            Ok(policy) => Some(policy),
            Err(problems) => {
                for problem in problems {
                    match self.cause(problem.path, &problem.message) {
                        Some(cause) => {
                            let mut message = problem.message;
                            if cause.key.path != problem.path {
                                message = format!("{}: {message}", problem.path);
                            }
                            findings.error(&cause.mark, cause.path.as_str(), message);
                        }
                        None => findings.error(
                            whole.0,
                            whole.1,
                            format!("{}: {}", problem.path, problem.message),
                        ),
                    }
                }
                None
            }
        }
    }

    /// The assigned key behind a problem: the key itself, else one that the message names, else one
    /// that begins alike, else the last of its group.
    fn cause(&self, path: &str, message: &str) -> Option<&'a Assigned> {
        let group = path.split('.').next().unwrap_or_default();
        let of_group = || {
            let all = self.values.values().copied();
            all.filter(move |(_, assigned)| assigned.key.path.split('.').next() == Some(group))
        };
        let mut named = of_group().filter(|(_, assigned)| message.contains(assigned.key.path));
        let mut alike = of_group().filter(|(_, assigned)| assigned.key.path.starts_with(path));
        let found = self.values.get(path).copied();
        found
            .or_else(|| named.next())
            .or_else(|| alike.next())
            .or_else(|| of_group().max_by_key(|(level, _)| *level))
            .map(|(_, assigned)| assigned)
    }

    fn warn(&self, findings: &mut Findings) {
        self.warn_of_hidden_preset(findings);
        let settings = self.settings();
        if let (Some((_, set)), Some(limit), Some(deadline)) = (
            self.values.get("retry.attempt_timeout"),
            settings.retry.attempt_timeout,
            settings.retry.deadline,
        ) && limit > deadline / 2
        {
            let wrong = Wrong::new(format!(
                "{} is more than half of retry.deadline ({}): one hanging endpoint leaves no time for another",
                set.value,
                Setting::Time(deadline),
            ));
            findings.warning(
                &set.mark,
                set.path.as_str(),
                wrong.hint("at most half of it"),
            );
        }
    }

    /// A key in a layer beats every preset, also one that a stronger layer names: that surprises.
    fn warn_of_hidden_preset(&self, findings: &mut Findings) {
        let Some((named_at, preset, mark)) = self.preset else {
            return;
        };
        let own = preset.settings();
        for (level, assigned) in self.values.values() {
            let says = (assigned.key.get)(&own);
            if *level >= named_at || says == assigned.value || !varies(assigned.key) {
                continue;
            }
            let wrong = Wrong::new(format!(
                "wins over the preset {preset} ({mark}), which says {says}"
            ));
            let hint = "a key in a policy table beats every preset; take one of the two away";
            findings.warning(&assigned.mark, assigned.path.as_str(), wrong.hint(hint));
        }
    }

    /// The effective value of a key and where it came from.
    pub(crate) fn derive(&self, key: &Key, policy: &Policy) -> Derived {
        let value = (key.get)(policy);
        if let Some((level, assigned)) = self.values.get(key.path) {
            return Derived {
                value,
                layer: self.layers[*level].name.clone(),
                mark: Some(assigned.mark.clone()),
            };
        }
        match self.preset {
            Some((_, preset, mark)) if varies(key) => Derived {
                value,
                layer: format!("preset {preset}"),
                mark: Some(mark.clone()),
            },
            _ => Derived {
                value,
                layer: "default".into(),
                mark: None,
            },
        }
    }
}

/// Whether presets differ in the key, that is, whether a preset says anything about it.
fn varies(key: &Key) -> bool {
    let first = (key.get)(&PRESET.settings());
    Preset::ALL
        .iter()
        .any(|preset| (key.get)(&preset.settings()) != first)
}
