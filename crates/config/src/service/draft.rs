//! What the file says about one service, key by key, before it is seen as a whole.

use std::sync::Arc;

use mainstay_engine::policy::Setting;
use mainstay_message::settings::{MessageLimits, OperationSettings, Spread, Timeouts};

use super::broker::{self, BrokerDraft};
use super::field::{Marks, Reader};
use super::keys::{FIELDS, LIMITS, Own, PARTS, RETRY, TIMEOUTS};
use super::list::{self, DiscoveryDraft, RuleDraft, StoreDraft};
use super::operation;
use super::target::{TargetDraft, no_function};
use super::{names, original};
use crate::connection::{Reading, warn_of_literal};
use crate::mark::{Mark, Origin};
use crate::policy::PolicyLayer;
use crate::problem::{Problem, Wrong};
use crate::source::{check_id, policy_table};
use crate::tree::{Entry, Table, Value, join};

/// More targets than this in one service are a mistake.
const TARGETS_MAX: usize = 256;
/// A service of the SDK has a handful.
const BROKERS_MAX: usize = 16;
/// Functions of one capability.
const OPERATIONS_MAX: usize = 1000;

/// A service as it is written.
#[derive(Debug, Clone)]
pub(crate) struct ServiceDraft {
    pub(crate) id: String,
    pub(crate) path: String,
    pub(crate) mark: Mark,
    /// Where its keys stand, by their paths within it.
    pub(crate) marks: Marks,
    pub(crate) own: Own,
    pub(crate) timeouts: Timeouts,
    pub(crate) limits: MessageLimits,
    /// In the order of the file.
    pub(crate) brokers: Vec<BrokerDraft>,
    pub(crate) operations: Vec<(Arc<str>, OperationSettings)>,
    /// In the order of the file.
    pub(crate) targets: Vec<TargetDraft>,
    pub(crate) discover: Vec<DiscoveryDraft>,
    pub(crate) rules: Vec<RuleDraft>,
    pub(crate) stores: Vec<StoreDraft>,
    /// What its own keys say of the policy: `retry`, `strategy`, `preset`.
    pub(crate) derived: PolicyLayer,
    pub(crate) policy: PolicyLayer,
}

/// A problem where many are listed that should be few.
fn too_many(count: usize, most: usize, what: &str) -> Option<Wrong> {
    (count > most).then(|| Wrong::new(format!("more than {most} {what}")).hint("fewer"))
}

/// Entries in the order of the file.
fn in_order(table: &Table) -> Vec<(&str, &Entry)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by(|a, b| a.1.mark.cmp(&b.1.mark));
    all
}

impl ServiceDraft {
    pub(crate) fn read(id: &str, entry: &Entry, reading: &mut Reading<'_>) -> Self {
        let path = join("services", id);
        check_id(id, &entry.mark, &path, reading.findings);
        let mut draft = ServiceDraft {
            id: id.to_owned(),
            mark: entry.mark.clone(),
            marks: Marks::default(),
            own: Own::default(),
            timeouts: Timeouts::default(),
            limits: MessageLimits::default(),
            brokers: Vec::new(),
            operations: Vec::new(),
            targets: Vec::new(),
            discover: Vec::new(),
            rules: Vec::new(),
            stores: Vec::new(),
            derived: PolicyLayer::empty(&path),
            policy: PolicyLayer::empty(&join(&path, "policy")),
            path: path.clone(),
        };
        let mut reader = Reader {
            base: &path,
            marks: Marks::default(),
            reading,
        };
        if let Some(table) = crate::source::table(&path, entry, reader.findings()) {
            draft.keys(table, &mut reader);
        }
        draft.marks = reader.marks;
        draft.strategy();
        draft
    }

    /// The file below the table, as far as it can be named.
    pub(crate) fn file(&self) -> Option<std::path::PathBuf> {
        let mark = self.marks.get("file")?;
        Some(original::beside(&mark.origin, self.own.file.as_deref()?))
    }

    pub(crate) fn spread(&self) -> Spread {
        self.own.strategy.unwrap_or(Spread::ActiveStandby)
    }

    /// A problem with one of its brokers that only connecting shows.
    pub(crate) fn broker_problem(&self, broker: &str, wrong: Wrong) -> Option<Problem> {
        let at = join("brokers", broker);
        let mark = self.marks.get(&at)?;
        Some(Problem::error(mark, join(&self.path, &at), wrong))
    }

    fn keys(&mut self, table: &Table, reader: &mut Reader<'_, '_>) {
        reader.fields((FIELDS, PARTS), "", table, &mut self.own);
        self.policy = policy_table(reader.base, table, reader.findings());
        if let Some(entry) = table.get("preset") {
            let path = reader.path("preset");
            self.derived.preset(&path, entry, reader.findings());
        }
        for (name, entry) in table.iter() {
            match name {
                "timeouts" => fields_of(name, TIMEOUTS, entry, &mut self.timeouts, reader),
                "retry" => fields_of(name, RETRY, entry, &mut self.derived, reader),
                "limits" => fields_of(name, LIMITS, entry, &mut self.limits, reader),
                "brokers" => self.brokers(entry, reader),
                "operations" => self.operations(entry, reader),
                "targets" => self.targets(entry, reader),
                "discover" => self.discover = list::discoveries(entry, reader),
                "errors" => self.rules = list::rules(entry, reader),
                "object_stores" => self.stores = list::stores(entry, reader),
                _ => {}
            }
        }
    }

    /// The engine's name of the strategy; always said, since other layers speak of databases.
    fn strategy(&mut self) {
        let word = match self.spread() {
            Spread::ActiveStandby => "primary_with_standby",
            Spread::RoundRobin => "round_robin",
            Spread::Weighted => "weighted_round_robin",
        };
        let built_in = Mark::whole(Origin::BuiltIn);
        let mark = self.marks.get("strategy").unwrap_or(&built_in);
        let path = join(&self.path, "strategy");
        let setting = Setting::Text(word.to_owned());
        self.derived.put("route.strategy", setting, (mark, &path));
    }

    fn brokers(&mut self, entry: &Entry, reader: &mut Reader<'_, '_>) {
        let Some(table) = reader.table("brokers", entry) else {
            return;
        };
        if let Some(wrong) = too_many(table.iter().count(), BROKERS_MAX, "brokers") {
            let path = reader.path("brokers");
            return reader.findings().error(&entry.mark, path, wrong);
        }
        for (name, entry) in in_order(table) {
            let at = join("brokers", name);
            let path = reader.path(&at);
            check_id(name, &entry.mark, &path, reader.findings());
            let mut draft = BrokerDraft::new(name);
            if let Some(table) = reader.table(&at, entry) {
                reader.fields((broker::FIELDS, &[]), &at, table, &mut draft);
                if let (Some(secret), Some(entry)) = (draft.password(), table.get("password")) {
                    let path = join(&path, "password");
                    warn_of_literal(secret, &path, entry, reader.findings());
                }
            }
            self.brokers.push(draft);
        }
    }

    fn operations(&mut self, entry: &Entry, reader: &mut Reader<'_, '_>) {
        let Some(table) = reader.table("operations", entry) else {
            return;
        };
        if let Some(wrong) = too_many(table.iter().count(), OPERATIONS_MAX, "operations") {
            let path = reader.path("operations");
            return reader.findings().error(&entry.mark, path, wrong);
        }
        for (name, entry) in in_order(table) {
            let at = join("operations", name);
            if !names::is_function(name) {
                let path = reader.path(&at);
                reader
                    .findings()
                    .error(&entry.mark, path, no_function(name));
                continue;
            }
            let mut draft = OperationSettings::default();
            if let Some(table) = reader.table(&at, entry) {
                reader.fields((operation::FIELDS, &[]), &at, table, &mut draft);
            }
            self.operations.push((name.into(), draft));
        }
    }

    fn targets(&mut self, entry: &Entry, reader: &mut Reader<'_, '_>) {
        if matches!(entry.node.value, Value::List(_)) {
            reader.marks.note("targets", &entry.mark);
            let path = reader.path("targets");
            let wrong = Wrong::new("expected a table, got a list");
            let hint = format!("a table for each by its name: [{path}.NAME]");
            return reader.findings().error(&entry.mark, path, wrong.hint(hint));
        }
        let Some(table) = reader.table("targets", entry) else {
            return;
        };
        if let Some(wrong) = too_many(table.iter().count(), TARGETS_MAX, "targets") {
            let path = reader.path("targets");
            return reader.findings().error(&entry.mark, path, wrong);
        }
        for (name, entry) in in_order(table) {
            let draft = TargetDraft::read(name, entry, reader);
            self.targets.push(draft);
        }
    }
}

/// A table of nothing but fields.
fn fields_of<T>(
    at: &str,
    fields: &[super::field::Field<T>],
    entry: &Entry,
    draft: &mut T,
    reader: &mut Reader<'_, '_>,
) {
    if let Some(table) = reader.table(at, entry) {
        reader.fields((fields, &[]), at, table, draft);
    }
}
