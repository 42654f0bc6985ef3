//! Services beside each other: no name may be taken twice on one broker.

use std::collections::BTreeMap;

use super::ProxiedService;
use super::broker::{BrokerProtocol, BrokerSettings};
use super::checks::Checks;
use super::draft::ServiceDraft;
use crate::mark::Origin;
use crate::problem::{Findings, Wrong};
use crate::source::SourceDraft;
use crate::suggestion;

/// Where a broker is, as far as names on it are concerned.
type Place<'a> = (&'a str, u16, &'a str);

fn place(broker: &BrokerSettings) -> Place<'_> {
    let vhost = match broker.protocol {
        BrokerProtocol::Amqp091 => broker.vhost.as_str(),
        BrokerProtocol::Mqtt5 => "",
    };
    (broker.host.as_str(), broker.port, vhost)
}

/// What is taken on a broker, and the service, the key and the broker's name that took it.
type Taken<'a> = BTreeMap<(Place<'a>, &'static str, &'a str), (&'a str, &'static str, &'a str)>;

/// Tells names and client ids that two services, or one service twice, would take on one broker.
pub(crate) fn check_peers<'a>(
    services: impl IntoIterator<Item = (&'a ServiceDraft, &'a ProxiedService)>,
    findings: &mut Findings,
) {
    let mut taken = Taken::new();
    for (draft, service) in services {
        let mut checks = Checks::new(draft, findings);
        for (name, broker) in &service.brokers {
            let is_front = service
                .settings
                .fronts
                .iter()
                .any(|front| **front == **name);
            let identity = is_front.then(|| service.settings.identity.as_str());
            let names = [
                ("identity", "name", identity),
                ("caller", "name", Some(service.settings.caller.as_str())),
                ("client_id", "client id", broker.client_id.as_deref()),
            ];
            for (key, what, text) in names {
                let Some(text) = text else { continue };
                let at = match key {
                    "client_id" => format!("brokers.{name}.client_id"),
                    key if draft.marks.has(key) => key.to_owned(),
                    _ => "identity".to_owned(),
                };
                let slot = (place(broker), what, text);
                match taken.get(&slot) {
                    // A caller that is the identity has been told.
                    Some((first, _, other)) if **first == *draft.id && *other == name => {}
                    Some((first, ..)) if **first == *draft.id => {
                        let wrong = format!("another broker of this service is the same ({text})");
                        let hint = "keep one of the two brokers";
                        checks.error(&format!("brokers.{name}"), Wrong::new(wrong).hint(hint));
                    }
                    Some((first, other, _)) => {
                        let wrong = format!(
                            "{text} is also the {other} of services.{first} on the same broker"
                        );
                        let hint = "each service takes names of its own";
                        checks.error(&at, Wrong::new(wrong).hint(hint));
                    }
                    None => {
                        taken.insert(slot, (&draft.id, key, name));
                    }
                }
            }
        }
    }
}

/// Tells a service that has the name of a source: `explain` and metrics could not tell them apart.
pub(crate) fn check_names(
    services: &[ServiceDraft],
    sources: &[SourceDraft],
    findings: &mut Findings,
) {
    for draft in services {
        if sources.iter().any(|source| source.id == draft.id) {
            let wrong = Wrong::new(format!("a source is called {} too", draft.id));
            Checks::new(draft, findings).error("", wrong.hint("rename one of the two"));
        }
    }
}

impl ServiceDraft {
    /// A service that nothing but variables or flags name, and that has no targets: a slip in a name.
    pub(crate) fn is_only_named_outside(
        &self,
        all: &[ServiceDraft],
        findings: &mut Findings,
    ) -> bool {
        let is_outside = |draft: &ServiceDraft| {
            matches!(draft.mark.origin, Origin::Variable(_) | Origin::Flag(_))
                && draft.targets.is_empty()
        };
        if !is_outside(self) {
            return false;
        }
        let known = all.iter().filter(|other| !is_outside(other));
        let known: Vec<&str> = known.map(|other| other.id.as_str()).collect();
        let hint = match suggestion::nearest(&self.id, known.iter().copied()) {
            Some(meant) => format!("did you mean {meant}?"),
            None => format!("services: {}", known.join(", ")),
        };
        let wrong = Wrong::new(format!("there is no service {}", self.id));
        findings.error(&self.mark, self.path.as_str(), wrong.hint(hint));
        true
    }
}
