//! Each value of a service as `explain` shows it, by the key that would give it.

use std::fmt::Display;
use std::time::Duration;

use mainstay_engine::policy::Setting;
use mainstay_message::settings::{Discovery, OperationSettings, TargetSettings};

use super::ProxiedService;
use super::broker::{BrokerProtocol, BrokerSettings};
use super::draft::ServiceDraft;
use crate::mark::Mark;
use crate::tree::join;

/// A value and where its key stands.
pub(crate) struct Shown<'a> {
    pub(crate) path: String,
    pub(crate) value: String,
    /// `None`: nobody wrote it.
    pub(crate) mark: Option<&'a Mark>,
    /// The table that it would stand in, or the file below it.
    pub(crate) layer: String,
}

const NOT_SET: &str = "(not set)";

fn time(time: Duration) -> String {
    Setting::Time(time).to_string()
}

fn or_none<T: Display>(value: Option<T>) -> String {
    value.map_or_else(|| NOT_SET.to_owned(), |value| value.to_string())
}

fn listed<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<String> = values.into_iter().map(|value| value.to_string()).collect();
    format!("[{}]", values.join(", "))
}

struct Lines<'a> {
    draft: &'a ServiceDraft,
    /// The file of keys below the table.
    file: Option<String>,
    /// The table within the service.
    at: String,
    lines: Vec<Shown<'a>>,
}

impl<'a> Lines<'a> {
    fn new(draft: &'a ServiceDraft) -> Self {
        Lines {
            draft,
            file: draft.file().map(|file| file.display().to_string()),
            at: String::new(),
            lines: Vec::new(),
        }
    }

    /// Goes on with a table within the service.
    fn at(&mut self, at: impl Into<String>) {
        self.at = at.into();
    }

    fn add(&mut self, name: &str, value: impl Into<String>) {
        self.shown(join(&self.at, name), name, value.into());
    }

    /// A line whose path is told in short, because it is about that table alone.
    fn shown(&mut self, path: String, name: &str, value: String) {
        let mark = self.draft.marks.get(&join(&self.at, name));
        let file = self.file.as_ref();
        let is_of_file = mark
            .zip(file)
            .is_some_and(|(mark, file)| mark.origin.to_string() == *file);
        let layer = match (mark, is_of_file) {
            (None, _) => "default".to_owned(),
            (Some(_), true) => format!("file of [{}]", self.draft.path),
            (Some(_), false) if self.at.is_empty() => format!("[{}]", self.draft.path),
            (Some(_), false) => format!("[{}]", join(&self.draft.path, &self.at)),
        };
        self.lines.push(Shown {
            path,
            value,
            mark,
            layer,
        });
    }
}

impl ServiceDraft {
    /// The keys of the service as a whole, without its policy and its targets.
    pub(crate) fn lines(&self, service: &ProxiedService) -> Vec<Shown<'_>> {
        let settings = &service.settings;
        let mut lines = Lines::new(self);
        lines.add("identity", settings.identity.as_str());
        lines.add("caller", settings.caller.as_str());
        lines.add("capability_name", &*settings.capability_name);
        lines.add("strategy", settings.spread.as_str());
        lines.add("strategy_group_order", listed(&settings.group_order));
        lines.add("fronts", listed(&settings.fronts));
        lines.add("status_operation", &*settings.status_operation);
        let event = settings.job_failed_event.as_deref();
        lines.add("job_failed_event", event.unwrap_or("false"));
        lines.add(
            "file",
            or_none(service.file.as_ref().map(|file| file.display())),
        );
        lines.at("timeouts");
        let times = &settings.timeouts;
        lines.add("ack_timeout", time(times.ack_timeout));
        lines.add("result_timeout", time(times.result_timeout));
        lines.add("heartbeat_interval", time(times.heartbeat_interval));
        lines.add("missed_intervals", times.missed_intervals.to_string());
        lines.add("failback_after", time(times.failback_after));
        lines.at("limits");
        let limits = &settings.limits;
        lines.add("requests_max", limits.requests_max.to_string());
        lines.add("jobs_max", limits.jobs_max.to_string());
        lines.add("body_max", format!("{}B", limits.body_max));
        lines.add("headers_max", format!("{}B", limits.headers_max));
        for name in &settings.brokers {
            if let Some(broker) = service.brokers.get(&**name) {
                lines.at(format!("brokers.{name}"));
                lines.broker(broker);
            }
        }
        for (name, operation) in &settings.operations {
            lines.at(format!("operations.{name}"));
            lines.operation(operation);
        }
        for (number, discovery) in settings.discover.iter().enumerate() {
            lines.at(format!("discover[{number}]"));
            lines.discovery(discovery);
        }
        for (number, rule) in settings.rules.iter().enumerate() {
            lines.at(format!("errors[{number}]"));
            lines.add("prefix", &*rule.prefix);
            lines.add("category", rule.category.as_str());
        }
        for (draft, store) in self.stores.iter().zip(&settings.object_stores) {
            lines.at(draft.at.as_str());
            lines.add("url", &*store.url);
            lines.add("user", &*store.user);
            lines.add("password", or_none(draft.password.as_ref()));
        }
        lines.lines
    }

    /// The keys of a target, without its policy.
    pub(crate) fn target_lines(&self, target: &TargetSettings) -> Vec<Shown<'_>> {
        let mut lines = Lines::new(self);
        lines.at(format!("targets.{}", target.name));
        let mut own = |name: &str, value: String| lines.shown(name.to_owned(), name, value);
        let broker = self.broker_of(target.broker.as_ref());
        own("group", target.group.to_string());
        own("destination", target.destination.to_string());
        own("broker", or_none(broker));
        own("weight", target.weight.to_string());
        own("max_in_flight", or_none(target.max_in_flight));
        let at = lines.at.clone();
        lines.at(join(&at, "operation_map"));
        for (function, operation) in &target.operation_map {
            let path = join("operation_map", function);
            lines.shown(path, function, operation.to_string());
        }
        lines.lines
    }
}

impl Lines<'_> {
    fn broker(&mut self, broker: &BrokerSettings) {
        self.add("protocol", broker.protocol.as_str());
        self.add("host", broker.host.as_str());
        self.add("port", broker.port.to_string());
        self.add("user", or_none(broker.user.as_ref()));
        self.add("password", or_none(broker.password.as_ref()));
        match broker.protocol {
            BrokerProtocol::Amqp091 => {
                self.add("vhost", broker.vhost.as_str());
                self.add("exchange", broker.exchange.as_str());
            }
            BrokerProtocol::Mqtt5 => {
                let id = broker.client_id.as_deref();
                self.add("client_id", id.unwrap_or("(made from caller)"));
                self.add("session_expiry", time(broker.session_expiry));
            }
        }
        self.add("keep_alive", time(broker.keep_alive));
        self.add("connect_timeout", time(broker.connect_timeout));
        self.add("reconnect_max", time(broker.reconnect_max));
        self.add("prefetch", broker.prefetch.to_string());
        self.add("in_flight_max", broker.in_flight_max.to_string());
    }

    fn operation(&mut self, operation: &OperationSettings) {
        let of_service = |own: Option<Duration>, service: Duration| time(own.unwrap_or(service));
        let service = &self.draft.timeouts;
        let ack = of_service(operation.ack_timeout, service.ack_timeout);
        let result = of_service(operation.result_timeout, service.result_timeout);
        self.add("safety", operation.safety.as_str());
        self.add("kind", operation.kind.as_str());
        self.add("ack_timeout", ack);
        self.add("result_timeout", result);
        let (key, last) = (&operation.job_key, &operation.last_result);
        self.add("job_key", or_none(key.as_ref().map(|key| key.as_str())));
        self.add(
            "last_result",
            or_none(last.as_ref().map(|last| last.as_str())),
        );
        let good = operation.acknowledged.as_ref();
        self.add("acknowledged", or_none(good.map(|good| good.as_str())));
    }

    fn discovery(&mut self, discovery: &Discovery) {
        self.add("pattern", &*discovery.pattern);
        self.add("group", &*discovery.group);
        self.add("weight", discovery.weight.to_string());
        let broker = self.draft.broker_of(discovery.broker.as_ref());
        self.add("broker", or_none(broker));
        self.add("max_in_flight", or_none(discovery.max_in_flight));
    }
}
