//! From drafts to settings: what is missing is told, what follows from other keys is filled in.

use std::collections::BTreeMap;
use std::sync::Arc;

use mainstay_engine::{Policy, Preset};
use mainstay_message::identity::Identity;
use mainstay_message::settings::{
    Discovery, ErrorRule, JOB_FAILED_EVENT, ObjectStoreSettings, STATUS_OPERATION, ServiceSettings,
    TargetSettings,
};

use super::ProxiedService;
use super::broker::BrokerSettings;
use super::checks::{self, Checks, environment};
use super::draft::ServiceDraft;
use super::list::DiscoveryDraft;
use super::target::TargetDraft;
use crate::policy::{Layered, PolicyLayer};
use crate::problem::{Findings, Wrong};
use crate::tree::join;

/// The preset of services that name none.
pub(crate) const PRESET: Preset = Preset::Service;

/// One service with the policy layers below it.
pub(crate) struct ServiceParts<'a> {
    pub(crate) draft: &'a ServiceDraft,
    policies: Vec<&'a PolicyLayer>,
}

impl<'a> ServiceParts<'a> {
    /// `shared` are `[policy]` and `[message.policy]`, weakest first.
    pub(crate) fn new(shared: [&'a PolicyLayer; 2], draft: &'a ServiceDraft) -> Self {
        let policies = shared.into_iter().chain([&draft.derived, &draft.policy]);
        ServiceParts {
            draft,
            policies: policies.collect(),
        }
    }

    /// The policy layers of the service as a whole.
    pub(crate) fn policy(&self) -> Layered<'a> {
        Layered::with_preset(&self.policies, PRESET)
    }

    /// Those of a target.
    pub(crate) fn policy_at(&self, target: &'a TargetDraft) -> Layered<'a> {
        self.with(&[&target.derived, &target.policy])
    }

    fn with(&self, above: &[&'a PolicyLayer]) -> Layered<'a> {
        let layers: Vec<_> = self.policies.iter().chain(above).copied().collect();
        Layered::with_preset(&layers, PRESET)
    }
}

/// Makes the settings; `None` if something is wrong, which is then among the findings.
pub(crate) fn assemble(
    parts: &ServiceParts<'_>,
    findings: &mut Findings,
) -> Option<ProxiedService> {
    let draft = parts.draft;
    warn_of_preset(parts, findings);
    let policy = parts.policy().policy((&draft.mark, &draft.path), findings);
    let targets = targets(parts, findings);
    let discover = discover(parts, findings);
    let brokers = brokers(draft, findings);
    let (identity, caller) = names(draft, findings);
    checks::check(draft, (identity.as_ref(), caller.as_ref()), findings);
    let identity = identity?;
    let settings = ServiceSettings {
        name: draft.id.as_str().into(),
        caller: caller?,
        capability_name: draft.own.capability_name.clone()?,
        spread: draft.spread(),
        group_order: draft.groups(),
        timeouts: draft.timeouts.clone(),
        operations: draft.operations.iter().cloned().collect(),
        targets: targets?,
        brokers: draft
            .brokers
            .iter()
            .map(|broker| Arc::clone(&broker.name))
            .collect(),
        fronts: draft.fronts(Some(&identity)),
        status_operation: match &draft.own.status_operation {
            Some(operation) => Arc::clone(operation),
            None => STATUS_OPERATION.into(),
        },
        rules: rules(draft)?,
        discover: discover?,
        job_failed_event: match &draft.own.job_failed_event {
            Some(event) => event.clone(),
            None => Some(JOB_FAILED_EVENT.into()),
        },
        object_stores: stores(draft)?,
        limits: draft.limits,
        policy: policy?,
        identity,
    };
    Some(ProxiedService {
        settings,
        brokers: brokers?,
        file: draft.file(),
    })
}

/// A preset for databases that only `[policy]` names is meant for databases.
fn warn_of_preset(parts: &ServiceParts<'_>, findings: &mut Findings) {
    let shared = parts.policies[0];
    let weakest = Layered::with_preset(&[shared], PRESET);
    let named = weakest.preset_or_default();
    if named != PRESET
        && named == parts.policy().preset_or_default()
        && parts.policies[1..]
            .iter()
            .all(|layer| !layer.names_preset())
    {
        let draft = parts.draft;
        let wrong = Wrong::new(format!("starts from the preset {named} of [policy]"));
        let hint = "that is one for databases: write preset = \"service\" here or in [message]";
        findings.warning(&draft.mark, draft.path.as_str(), wrong.hint(hint));
    }
}

/// The fronted name and the proxy's own.
fn names(draft: &ServiceDraft, findings: &mut Findings) -> (Option<Identity>, Option<Identity>) {
    let mut checks = Checks::new(draft, findings);
    if !draft.marks.has("identity") {
        let hint = format!(
            "identity = \"org.fac.sys.sub.name\" in [{}]{}",
            draft.path,
            environment(draft, "IDENTITY")
        );
        checks.error(
            "",
            Wrong::new("no identity, the name to take over").hint(hint),
        );
    }
    if !draft.marks.has("capability_name") {
        let wrong = Wrong::new("no capability_name, the capability that callers ask for");
        checks.error("", wrong.hint("capability_name = \"Compute\""));
    }
    let identity = draft.own.identity.clone();
    if draft.marks.has("caller") {
        return (identity, draft.own.caller.clone());
    }
    let caller = identity.as_ref().and_then(|identity| {
        let caller = Identity::parse(&format!("{identity}-proxy"));
        if caller.is_err() {
            let wrong = Wrong::new("no caller, and the identity with -proxy behind it is no name");
            let hint = "caller = \"org.fac.sys.sub.other-name\": the proxy's own name";
            checks.error("identity", wrong.hint(hint));
        }
        caller.ok()
    });
    (identity, caller)
}

fn brokers(
    draft: &ServiceDraft,
    findings: &mut Findings,
) -> Option<BTreeMap<String, BrokerSettings>> {
    if draft.brokers.is_empty() {
        // One that cannot be read has been told.
        if draft.marks.get("brokers").is_none() {
            let hint = format!(
                "[{}.brokers.main] with protocol and host{}",
                draft.path,
                environment(draft, "BROKERS__MAIN__PROTOCOL and …__HOST")
            );
            let wrong = Wrong::new("no broker to reach it through").hint(hint);
            Checks::new(draft, findings).error("", wrong);
        }
        return None;
    }
    let place = (&draft.marks, draft.path.as_str(), &draft.mark);
    let all = draft.brokers.iter();
    // Not `map(…).collect()` into an Option, which would stop at the first that is wrong.
    let all: Vec<_> = all
        .map(|broker| Some((broker.name.to_string(), broker.settings(place, findings)?)))
        .collect();
    all.into_iter().collect()
}

fn targets(parts: &ServiceParts<'_>, findings: &mut Findings) -> Option<Vec<TargetSettings>> {
    let policies: Vec<_> = parts
        .draft
        .targets
        .iter()
        .map(|target| {
            let place = (&target.mark, join(&parts.draft.path, &target.at));
            let policy = parts.policy_at(target);
            policy.policy((place.0, &place.1), findings)
        })
        .collect();
    let targets = parts.draft.targets.iter().zip(policies);
    targets
        .map(|(target, policy)| settings(target, policy?))
        .collect()
}

fn settings(target: &TargetDraft, policy: Arc<Policy>) -> Option<TargetSettings> {
    Some(TargetSettings {
        name: Arc::clone(&target.name),
        group: target.group.clone()?,
        destination: target.destination.clone()?,
        broker: target.broker.clone(),
        operation_map: target.operation_map.clone(),
        weight: target.weight,
        max_in_flight: target.max_in_flight,
        policy,
    })
}

fn discover(parts: &ServiceParts<'_>, findings: &mut Findings) -> Option<Vec<Discovery>> {
    let drafts = &parts.draft.discover;
    let policies: Vec<_> = drafts
        .iter()
        .map(|draft| {
            let path = join(&parts.draft.path, &draft.at);
            parts
                .with(&[&draft.derived])
                .policy((&draft.mark, &path), findings)
        })
        .collect();
    let all = drafts.iter().zip(policies);
    all.map(|(draft, policy)| discovery(draft, policy?))
        .collect()
}

fn discovery(draft: &DiscoveryDraft, policy: Arc<Policy>) -> Option<Discovery> {
    Some(Discovery {
        pattern: draft.pattern.clone()?,
        group: draft.group.clone()?,
        weight: draft.weight,
        broker: draft.broker.clone(),
        max_in_flight: draft.max_in_flight,
        policy,
    })
}

fn rules(draft: &ServiceDraft) -> Option<Vec<ErrorRule>> {
    let rules = draft.rules.iter();
    rules
        .map(|rule| {
            Some(ErrorRule {
                prefix: rule.prefix.clone()?,
                category: rule.category?,
            })
        })
        .collect()
}

fn stores(draft: &ServiceDraft) -> Option<Vec<ObjectStoreSettings>> {
    let stores = draft.stores.iter();
    stores
        .map(|store| {
            Some(ObjectStoreSettings {
                url: store.url.clone()?,
                user: store.user.clone()?,
                // It was read before: that it resolves is checked where it stands.
                password: store.password.as_ref()?.read().ok()?.into(),
            })
        })
        .collect()
}

impl ServiceDraft {
    /// The order of groups: as written, else as targets name them.
    pub(super) fn groups(&self) -> Vec<Arc<str>> {
        if let Some(order) = &self.own.group_order {
            return order.clone();
        }
        let mut groups: Vec<Arc<str>> = Vec::new();
        let targets = self.targets.iter().map(|target| &target.group);
        let discovered = self.discover.iter().map(|draft| &draft.group);
        for group in targets.chain(discovered).flatten() {
            if !groups.contains(group) {
                groups.push(Arc::clone(group));
            }
        }
        groups
    }

    /// The broker of a target, as far as there is one.
    pub(super) fn broker_of<'a>(&'a self, named: Option<&'a Arc<str>>) -> Option<&'a Arc<str>> {
        named.or_else(|| self.brokers.first().map(|broker| &broker.name))
    }

    /// Where callers are: as written, else all brokers on which no target has the identity itself.
    pub(super) fn fronts(&self, identity: Option<&Identity>) -> Vec<Arc<str>> {
        if let Some(fronts) = &self.own.fronts {
            return fronts.clone();
        }
        let is_renamed = |name: &Arc<str>| {
            let mut targets = self.targets.iter();
            !targets.any(|target| {
                target.destination.as_ref() == identity
                    && identity.is_some()
                    && self.broker_of(target.broker.as_ref()) == Some(name)
            })
        };
        let names = self.brokers.iter().map(|broker| &broker.name);
        names.filter(|name| is_renamed(name)).cloned().collect()
    }
}
