//! `[services.NAME.targets.NAME]`: the services that do the work.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_engine::policy::Setting;
use mainstay_engine::source::check_weight;
use mainstay_message::identity::Identity;

use super::field::{Field, Reader, put, some};
use super::names;
use crate::mark::Mark;
use crate::policy::PolicyLayer;
use crate::problem::Wrong;
use crate::scalar::{self, within};
use crate::source::policy_table;
use crate::tree::{Entry, Node, Table, join};

pub(super) const WEIGHTS: &str = "from 0.001 to 1000000";
pub(super) const IN_FLIGHT: &str = "from 1 to 1000000";

/// A target as it is written.
#[derive(Debug, Clone)]
pub(crate) struct TargetDraft {
    pub(crate) name: Arc<str>,
    /// Its path within the service.
    pub(crate) at: String,
    pub(crate) mark: Mark,
    pub(crate) group: Option<Arc<str>>,
    pub(crate) destination: Option<Identity>,
    pub(crate) broker: Option<Arc<str>>,
    pub(crate) operation_map: BTreeMap<Arc<str>, Arc<str>>,
    pub(crate) weight: f64,
    pub(crate) max_in_flight: Option<u32>,
    /// What its own keys say of the policy.
    pub(crate) derived: PolicyLayer,
    pub(crate) policy: PolicyLayer,
}

/// Every key of a target beside its tables.
pub(crate) const FIELDS: &[Field<TargetDraft>] = &[
    Field::<TargetDraft>::new(
        "group",
        "\"primary\"",
        "one of strategy_group_order",
        |draft, value| some(&mut draft.group, names::word(value.node)),
    ),
    Field::<TargetDraft>::new(
        "destination",
        "\"org.fac.sys.sub.primary\"",
        "its own name: organization, facility, system, subsystem (or -) and service",
        |draft, value| some(&mut draft.destination, names::identity(value.node)),
    ),
    Field::<TargetDraft>::new(
        "broker",
        "\"main\"",
        "the broker that it is on; default the first",
        |draft, value| some(&mut draft.broker, names::word(value.node)),
    ),
    Field::<TargetDraft>::new(
        "weight",
        "2",
        "its share where the strategy is weighted; default 1",
        |draft, value| put(&mut draft.weight, weight(value.node)),
    )
    .bounds(WEIGHTS),
    Field::<TargetDraft>::new(
        "max_in_flight",
        "1",
        "requests and jobs open on it at once; default any number",
        |draft, value| {
            let count = max_in_flight(value.node)?;
            draft.max_in_flight = Some(count);
            let setting = Setting::Count(count.into());
            draft
                .derived
                .put("limits.concurrency", setting, (value.mark, value.path));
            Ok(())
        },
    )
    .bounds(IN_FLIGHT),
];

/// Tables and keys of a target beside its fields.
const PARTS: &[&str] = &["operation_map", "policy", "preset"];

pub(super) fn weight(node: &Node) -> Result<f64, Wrong> {
    let weight = scalar::number(node)?;
    check_weight(weight).map_err(|problem| {
        Wrong::new(problem.to_string()).hint("drain a target that should get nothing")
    })?;
    Ok(weight)
}

pub(super) fn max_in_flight(node: &Node) -> Result<u32, Wrong> {
    let count = match scalar::count(node)? {
        0 => Err(Wrong::new("0 would admit nothing").hint(IN_FLIGHT)),
        count => within(count, 1..=1_000_000, IN_FLIGHT),
    }?;
    u32::try_from(count).map_err(|_| Wrong::new("is out of bounds").hint(IN_FLIGHT))
}

impl TargetDraft {
    pub(super) fn read(name: &str, entry: &Entry, reader: &mut Reader<'_, '_>) -> Self {
        let at = join("targets", name);
        let path = reader.path(&at);
        if let Err(wrong) = names::check_word(name) {
            reader.findings().error(&entry.mark, path.as_str(), wrong);
        }
        let mut draft = TargetDraft {
            name: name.into(),
            mark: entry.mark.clone(),
            group: None,
            destination: None,
            broker: None,
            operation_map: BTreeMap::new(),
            weight: 1.0,
            max_in_flight: None,
            derived: PolicyLayer::empty(&path),
            policy: PolicyLayer::empty(&join(&path, "policy")),
            at,
        };
        let at = draft.at.clone();
        if let Some(table) = reader.table(&at, entry) {
            draft.policy = policy_table(&path, table, reader.findings());
            if let Some(entry) = table.get("preset") {
                let path = join(&path, "preset");
                draft.derived.preset(&path, entry, reader.findings());
            }
            reader.fields((FIELDS, PARTS), &at, table, &mut draft);
            draft.map(table, reader);
        }
        draft
    }

    fn map(&mut self, table: &Table, reader: &mut Reader<'_, '_>) {
        let at = join(&self.at, "operation_map");
        let Some(entry) = table.get("operation_map") else {
            return;
        };
        let Some(table) = reader.table(&at, entry) else {
            return;
        };
        for (function, entry) in table.iter() {
            let at = join(&at, function);
            let path = reader.path(&at);
            reader.marks.note(&at, &entry.mark);
            let read = match names::is_function(function) {
                true => names::operation(&entry.node),
                false => Err(no_function(function)),
            };
            if let Some(own) = reader.findings().take(&entry.mark, &path, read) {
                self.operation_map.insert(function.into(), own);
            }
        }
    }
}

/// What a key says that should be the name of a fronted function.
pub(super) fn no_function(name: &str) -> Wrong {
    let name = names::shown(name);
    Wrong::new(format!("{name:?} is no function of the fronted capability"))
        .hint("the function alone, without the capability, such as run_compute_job")
}
