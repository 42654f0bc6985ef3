//! Policy layers over each other: the settings that come out, the problems of the whole, and where
//! each value came from.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_engine::Policy;
use mainstay_engine::policy::{KEYS, Key, Preset, Setting, Settings};

use super::{Assigned, PRESET, PolicyLayer};
use crate::mark::Mark;
use crate::problem::{Findings, Wrong};

/// What all layers together say, weakest first.
pub(crate) struct Layered<'a> {
    layers: Vec<&'a PolicyLayer>,
    values: BTreeMap<&'static str, (usize, &'a Assigned)>,
    preset: Option<(usize, Preset, &'a Mark)>,
    /// That of nobody naming one.
    default: Preset,
}

/// Where the value of a key came from.
pub(crate) struct Derived {
    pub(crate) value: Setting,
    pub(crate) layer: String,
    pub(crate) mark: Option<Mark>,
}

impl<'a> Layered<'a> {
    /// Those of databases.
    pub(crate) fn new(layers: &[&'a PolicyLayer]) -> Self {
        Layered::with_preset(layers, PRESET)
    }

    /// Those of what starts from that preset unless a layer names one.
    pub(crate) fn with_preset(layers: &[&'a PolicyLayer], default: Preset) -> Self {
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
            default,
        }
    }

    pub(crate) fn preset_or_default(&self) -> Preset {
        self.preset.map_or(self.default, |(_, preset, _)| preset)
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
        let problems = match Policy::new(self.settings()) {
            Ok(policy) => return Some(policy),
            Err(problems) => problems,
        };
        for problem in problems {
            let own = wrong(&problem.message);
            let full = wrong(&format!("{}: {}", problem.path, problem.message));
            match self.cause(problem.path, &problem.message) {
                Some(cause) if cause.key.path == problem.path => {
                    findings.error(&cause.mark, cause.path.as_str(), own);
                }
                Some(cause) => findings.error(&cause.mark, cause.path.as_str(), full),
                None => findings.error(whole.0, whole.1, full),
            }
        }
        None
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

    /// The preset in effect, and where it was named.
    pub(crate) fn preset(&self) -> Derived {
        let (preset, named) = match self.preset {
            Some((level, preset, mark)) => (preset, Some((self.layers[level], mark))),
            None => (self.default, None),
        };
        Derived {
            value: Setting::Text(preset.to_string()),
            layer: named.map_or_else(|| "default".into(), |(layer, _)| layer.name.clone()),
            mark: named.map(|(_, mark)| mark.clone()),
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

/// What a policy says is wrong with itself: what to do stands behind the last semicolon.
fn wrong(message: &str) -> Wrong {
    match message.rsplit_once("; ") {
        Some((message, hint)) => Wrong::new(message).hint(hint),
        None => Wrong::new(message),
    }
}

/// Whether presets differ in the key, that is, whether a preset says anything about it.
fn varies(key: &Key) -> bool {
    let first = (key.get)(&PRESET.settings());
    Preset::ALL
        .iter()
        .any(|preset| (key.get)(&preset.settings()) != first)
}
