//! What is wrong with a service as a whole, although each of its keys is right.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::policy::Setting;
use mainstay_message::identity::Identity;
use mainstay_message::settings::{OperationKind, OperationSettings};

use super::draft::ServiceDraft;
use super::keys::RETRY_POLICY;
use crate::policy::PolicyLayer;
use crate::problem::{Findings, Wrong};
use crate::suggestion;
use crate::tree::join;

/// Notes problems of one service at the places of its keys.
pub(super) struct Checks<'a> {
    draft: &'a ServiceDraft,
    findings: &'a mut Findings,
}

/// The variable for a key of a service, as the end of a hint; empty where its name fits no variable.
pub(super) fn environment(draft: &ServiceDraft, key: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match draft.id.chars().all(fits) && !draft.id.contains("__") {
        true => {
            let id = draft.id.to_ascii_uppercase();
            format!(", in a further --config, or as MAINSTAY_SERVICES__{id}__{key}")
        }
        false => ", or in a further --config".to_owned(),
    }
}

/// All checks of one service. `names` are its identity and its caller, as far as they are known.
pub(super) fn check(
    draft: &ServiceDraft,
    names: (Option<&Identity>, Option<&Identity>),
    findings: &mut Findings,
) {
    let mut checks = Checks::new(draft, findings);
    checks.groups();
    checks.times();
    checks.targets();
    checks.destinations(names);
    checks.brokers(names.0);
    checks.operations();
    checks.policies();
}

impl<'a> Checks<'a> {
    pub(super) fn new(draft: &'a ServiceDraft, findings: &'a mut Findings) -> Self {
        Checks { draft, findings }
    }

    /// At a key of the service, or the nearest table around it that is written.
    pub(super) fn error(&mut self, at: &str, wrong: Wrong) {
        let mark = self.draft.marks.near(at, &self.draft.mark);
        self.findings.error(mark, self.path(at), wrong);
    }

    fn warning(&mut self, at: &str, wrong: Wrong) {
        let mark = self.draft.marks.near(at, &self.draft.mark);
        self.findings.warning(mark, self.path(at), wrong);
    }

    fn path(&self, at: &str) -> String {
        match at {
            "" => self.draft.path.clone(),
            at => join(&self.draft.path, at),
        }
    }

    fn groups(&mut self) {
        let draft = self.draft;
        let targets = draft.targets.iter();
        let targets = targets.map(|target| (join(&target.at, "group"), target.group.as_ref()));
        let discovered = draft.discover.iter();
        let discovered = discovered.map(|one| (join(&one.at, "group"), one.group.as_ref()));
        let named: Vec<_> = targets.chain(discovered).collect();
        let Some(order) = &draft.own.group_order else {
            return;
        };
        let listed: Vec<&str> = order.iter().map(|group| &**group).collect();
        let mut is_whole = true;
        for (at, group) in &named {
            match group {
                Some(group) if !order.contains(group) => {
                    let wrong = format!("the group {group:?} is not in strategy_group_order");
                    let hint = meant(group, &listed);
                    self.error(at, Wrong::new(wrong).hint(hint));
                    is_whole = false;
                }
                Some(_) => {}
                None => is_whole = false,
            }
        }
        let empty = order
            .iter()
            .filter(|group| !named.iter().any(|(_, named)| *named == Some(*group)));
        // One that is misspelt at a target has been told there.
        for group in empty.filter(|_| is_whole) {
            let wrong = format!("no target is in the group {group:?}");
            let hint = "name it in a target's group, or take it out";
            self.error("strategy_group_order", Wrong::new(wrong).hint(hint));
        }
    }

    fn times(&mut self) {
        let service = &self.draft.timeouts;
        self.order_of_times("timeouts", service.ack_timeout, service.result_timeout);
        for (name, operation) in &self.draft.operations {
            if operation.ack_timeout.is_none() && operation.result_timeout.is_none() {
                continue;
            }
            let ack = operation.ack_timeout.unwrap_or(service.ack_timeout);
            let result = operation.result_timeout.unwrap_or(service.result_timeout);
            self.order_of_times(&format!("operations.{name}"), ack, result);
        }
    }

    fn order_of_times(&mut self, at: &str, ack: Duration, result: Duration) {
        if ack <= result {
            return;
        }
        let show = |time| Setting::Time(time).to_string();
        let wrong = Wrong::new(format!(
            "ack_timeout ({}) is above result_timeout ({})",
            show(ack),
            show(result)
        ));
        let wrong =
            wrong.hint("a result takes no less than its acknowledgement: raise result_timeout");
        let own = ["ack_timeout", "result_timeout"].map(|name| join(at, name));
        let written = own.iter().find(|at| self.draft.marks.has(at));
        self.error(&written.cloned().unwrap_or_else(|| at.to_owned()), wrong);
    }

    fn targets(&mut self) {
        let draft = self.draft;
        // Those that cannot be read have been told.
        let path = self.path("targets");
        let is_told = self.findings.iter().any(|problem| problem.path == path);
        if draft.targets.is_empty() && draft.discover.is_empty() && !is_told {
            let hint = format!("add [{}.targets.a] with group and destination", draft.path);
            self.error(
                "",
                Wrong::new("no targets, so there is nothing to call").hint(hint),
            );
        }
        for target in &draft.targets {
            for (name, hint) in [
                ("group", "group = \"primary\", one of strategy_group_order"),
                (
                    "destination",
                    "destination = \"org.fac.sys.sub.name\", its own name",
                ),
                (
                    "operation_map",
                    "operation_map = { run = \"Compute.run\" }: fronted function to its own operation",
                ),
            ] {
                if !draft.marks.has(&join(&target.at, name)) {
                    self.error(&target.at, Wrong::new(format!("no {name}")).hint(hint));
                }
            }
        }
    }

    fn destinations(&mut self, (identity, caller): (Option<&Identity>, Option<&Identity>)) {
        let draft = self.draft;
        let at = match draft.marks.has("caller") {
            true => "caller",
            false => "",
        };
        if caller.is_some() && caller == identity {
            let wrong =
                Wrong::new("is the identity itself: replies of targets would go to callers");
            self.error(
                at,
                wrong.hint("another name, such as that with -proxy behind it"),
            );
        }
        let mut seen: BTreeMap<(&str, Option<&Arc<str>>), &str> = BTreeMap::new();
        for target in &draft.targets {
            let Some(destination) = &target.destination else {
                continue;
            };
            if caller == Some(destination) {
                let wrong = format!("the caller {destination} is the target {}", target.name);
                let hint =
                    "give the proxy a name of its own: caller = \"org.fac.sys.sub.other-name\"";
                self.error(at, Wrong::new(wrong).hint(hint));
            }
            let broker = draft.broker_of(target.broker.as_ref());
            match seen.get(&(destination.as_str(), broker)) {
                Some(first) => {
                    let wrong =
                        format!("the target {first} has this destination on the same broker");
                    let hint = "two targets are two services: name the other one, or take one away";
                    let at = join(&target.at, "destination");
                    self.error(&at, Wrong::new(wrong).hint(hint));
                }
                None => {
                    seen.insert((destination.as_str(), broker), &target.name);
                }
            }
        }
    }

    fn brokers(&mut self, identity: Option<&Identity>) {
        let draft = self.draft;
        if draft.brokers.is_empty() {
            return;
        }
        let known: Vec<&str> = draft.brokers.iter().map(|broker| &*broker.name).collect();
        let targets = draft.targets.iter();
        let targets = targets.map(|target| (join(&target.at, "broker"), target.broker.as_ref()));
        let discovered = draft.discover.iter();
        let discovered = discovered.map(|one| (join(&one.at, "broker"), one.broker.as_ref()));
        let fronts = draft.own.fronts.iter().flatten();
        let fronts = fronts.map(|name| ("fronts".to_owned(), Some(name)));
        for (at, name) in targets.chain(discovered).chain(fronts) {
            if let Some(name) = name.filter(|name| !known.contains(&&***name)) {
                let wrong = format!("there is no broker {name:?}");
                self.error(&at, Wrong::new(wrong).hint(meant(name, &known)));
            }
        }
        let fronts = draft.fronts(identity);
        let is_fronted = |broker| fronts.is_empty() || fronts.contains(broker);
        for target in &draft.targets {
            let is_itself = identity.is_some() && target.destination.as_ref() == identity;
            let broker = draft.broker_of(target.broker.as_ref());
            if is_itself && broker.is_some_and(is_fronted) {
                let wrong = "is the identity itself, on a broker where callers are";
                let hint =
                    "rename the service behind the proxy, or put callers and target on two brokers";
                let at = join(&target.at, "destination");
                self.error(&at, Wrong::new(wrong).hint(hint));
            }
        }
    }

    fn operations(&mut self) {
        let draft = self.draft;
        let maps = draft
            .targets
            .iter()
            .flat_map(|target| target.operation_map.keys());
        let mapped: BTreeSet<&str> = maps.map(|function| &**function).collect();
        for (name, operation) in &draft.operations {
            let at = format!("operations.{name}");
            if !draft.targets.is_empty() && !mapped.contains(&**name) {
                let known: Vec<&str> = mapped.iter().copied().collect();
                let wrong = Wrong::new("no target maps this operation");
                let hint = match suggestion::nearest(name, mapped.iter().copied()) {
                    Some(meant) => format!("did you mean {meant}?"),
                    None if known.is_empty() => "add it to operation_map of a target".to_owned(),
                    None => format!(
                        "add it to operation_map of a target; mapped: {}",
                        known.join(", ")
                    ),
                };
                self.error(&at, wrong.hint(hint));
            }
            self.hooks(&at, operation);
        }
        self.unmapped(&mapped);
        self.without_safety(&mapped);
    }

    /// Functions that some targets have and others have not.
    fn unmapped(&mut self, mapped: &BTreeSet<&str>) {
        for target in &self.draft.targets {
            let at = join(&target.at, "operation_map");
            if !self.draft.marks.has(&at) {
                continue;
            }
            for function in mapped
                .iter()
                .filter(|name| !target.operation_map.contains_key(**name))
            {
                // One with a wrong value has been told.
                if !self.draft.marks.has(&join(&at, function)) {
                    let wrong =
                        format!("{function} is not mapped, so it never comes to this target");
                    let hint = format!("{function} = \"Capability.function\"");
                    self.warning(&at, Wrong::new(wrong).hint(hint));
                }
            }
        }
    }

    fn without_safety(&mut self, mapped: &BTreeSet<&str>) {
        let draft = self.draft;
        let declared = |name: &str| {
            let mut all = draft.operations.iter();
            all.any(|(known, operation)| &**known == name && operation.safety_declared)
        };
        let listed = draft.operations.iter().map(|(name, _)| &**name);
        let all: BTreeSet<&str> = listed.chain(mapped.iter().copied()).collect();
        for name in all.into_iter().filter(|name| !declared(name)) {
            let wrong = Wrong::new("has no safety, so it is driven again after a failure");
            let hint = "safety = \"idempotent_write\" if that does no harm, \"write\" if it does, \"read\" if it changes nothing";
            let own = format!("operations.{name}");
            let mark = match draft.marks.get(&own) {
                Some(mark) => mark,
                None => {
                    let mut targets = draft.targets.iter();
                    let first = targets.find_map(|target| {
                        draft
                            .marks
                            .get(&format!("{}.operation_map.{name}", target.at))
                    });
                    first.unwrap_or(&draft.mark)
                }
            };
            let path = self.path(&own);
            self.findings.warning(mark, path, wrong.hint(hint));
        }
    }

    /// Keys of jobs that lack, or that say nothing.
    fn hooks(&mut self, at: &str, operation: &OperationSettings) {
        let keys = [
            (
                "job_key",
                "has no job_key, so results are told apart by nothing but their target",
                "job_key = \"/job_id\", where request and results have the key of the job",
            ),
            (
                "last_result",
                "has no last_result, so it ends with its first result",
                "last_result = '/status == \"done\"', or leave it so if there is one result",
            ),
        ];
        for (name, wrong, hint) in keys {
            let key = join(at, name);
            match (operation.kind, self.draft.marks.has(&key)) {
                (OperationKind::Job, false) => self.warning(at, Wrong::new(wrong).hint(hint)),
                (OperationKind::Plain, true) => {
                    let wrong = Wrong::new("has no effect: the reply is the result");
                    self.warning(&key, wrong.hint("set kind = \"job\" too, or leave it out"));
                }
                _ => {}
            }
        }
    }

    /// Policy keys for which a service has keys of its own.
    fn policies(&mut self) {
        let draft = self.draft;
        let targets = draft.targets.iter();
        for layer in targets.map(|target| &target.policy).chain([&draft.policy]) {
            self.refuse(
                layer,
                "route.strategy",
                "the strategy of a service is its key strategy",
            );
            let wrong = "the limit of an attempt is timeouts.ack_timeout, or an operation's own";
            self.refuse(layer, "retry.attempt_timeout", wrong);
        }
        for (key, own) in RETRY_POLICY {
            if draft.marks.has(own) {
                let wrong = format!("already given by {}", self.path(own));
                self.refuse(&draft.policy, key, &wrong);
            }
        }
        for target in draft
            .targets
            .iter()
            .filter(|target| target.max_in_flight.is_some())
        {
            let wrong = format!(
                "already given by {}",
                self.path(&join(&target.at, "max_in_flight"))
            );
            self.refuse(&target.policy, "limits.concurrency", &wrong);
        }
    }

    fn refuse(&mut self, layer: &PolicyLayer, key: &str, wrong: &str) {
        if let Some((mark, path)) = layer.assigned(key) {
            let wrong = Wrong::new(wrong).hint("take it out of the policy");
            self.findings.error(mark, path, wrong);
        }
    }
}

/// The known name that was probably meant, else all of them.
fn meant(name: &str, known: &[&str]) -> String {
    match suggestion::nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("known: {}", known.join(", ")),
    }
}
