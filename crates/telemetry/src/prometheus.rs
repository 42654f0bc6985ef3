//! Numbers in the text format of Prometheus. Labels come from closed sets only (sources, endpoints,
//! fixed words), so that the number of series is bounded by the configuration.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use mainstay_engine::PoolStats;
use mainstay_engine::source::{Counts, EndpointStatus};

/// Numbers of the process itself.
#[derive(Debug, Clone)]
pub struct Process {
    /// Since the start.
    pub uptime: Duration,
    /// Answers over HTTP by class of their status.
    pub answers: [(&'static str, u64); 5],
    /// Requests that panicked.
    pub panics: u64,
    /// Connections over the limit.
    pub refused_connections: u64,
    /// Connections that were closed to make room for others.
    pub evicted_connections: u64,
    /// Audit entries that will never be written.
    pub audit_dropped: u64,
}

/// Numbers of one source.
#[derive(Debug, Clone)]
pub struct SourceReading {
    /// Its name.
    pub name: Arc<str>,
    /// Whether somebody takes writes.
    pub has_primary: bool,
    /// Rises with every change of the primary.
    pub epoch: u64,
    /// Calls by how they ended.
    pub calls: Counts,
    /// Open transactions.
    pub transactions_open: u64,
    /// Its endpoints with their pools.
    pub endpoints: Vec<(EndpointStatus, PoolStats)>,
}

/// Numbers of one message service.
#[derive(Debug, Clone)]
pub struct ServiceReading {
    /// Its name.
    pub name: Arc<str>,
    /// First phases of requests by how they ended.
    pub calls: Counts,
    /// Its targets.
    pub targets: Vec<EndpointStatus>,
    /// Targets by whether new requests may go there.
    pub usable: Vec<(Arc<str>, bool)>,
    /// Brokers by whether they are connected.
    pub brokers: Vec<(Arc<str>, bool)>,
    /// Requests in their first phase.
    pub requests_open: usize,
    /// Accepted jobs that have not ended.
    pub jobs_open: usize,
    /// What it has counted.
    pub counts: Vec<(&'static str, u64)>,
}

/// Everything as one text, each series once.
pub fn exposition(
    process: &Process,
    sources: &[SourceReading],
    services: &[ServiceReading],
) -> String {
    let mut text = Text::default();
    of_process(&mut text, process);
    of_sources(&mut text, sources, services);
    of_endpoints(&mut text, sources, services);
    of_pools(&mut text, sources);
    if !services.is_empty() {
        of_services(&mut text, services);
    }
    text.0
}

fn of_services(text: &mut Text, services: &[ServiceReading]) {
    let name = "mainstay_message_total";
    text.family(name, "counter", "What message services counted, by kind.");
    for service in services {
        for (kind, count) in &service.counts {
            text.sample(
                name,
                &[("source", &service.name), ("kind", kind)],
                *count as f64,
            );
        }
    }
    type Read = fn(&ServiceReading) -> f64;
    let gauges: [(&str, &str, Read); 2] = [
        (
            "mainstay_message_requests_open",
            "Requests that are not acknowledged or answered yet.",
            |service| service.requests_open as f64,
        ),
        (
            "mainstay_message_jobs_open",
            "Accepted jobs that have not ended.",
            |service| service.jobs_open as f64,
        ),
    ];
    for (name, help, read) in gauges {
        text.family(name, "gauge", help);
        for service in services {
            text.sample(name, &[("source", &service.name)], read(service));
        }
    }
    let name = "mainstay_message_broker_up";
    text.family(name, "gauge", "1 while connected to the broker.");
    for service in services {
        for (broker, up) in &service.brokers {
            let labels = [("source", &*service.name), ("broker", &**broker)];
            text.sample(name, &labels, f64::from(u8::from(*up)));
        }
    }
    let name = "mainstay_message_target_usable";
    text.family(
        name,
        "gauge",
        "1 unless others are preferred for new requests.",
    );
    for service in services {
        for (target, usable) in &service.usable {
            let labels = [("source", &*service.name), ("endpoint", &**target)];
            text.sample(name, &labels, f64::from(u8::from(*usable)));
        }
    }
}

#[derive(Default)]
struct Text(String);

type Labels<'a> = &'a [(&'a str, &'a str)];

impl Text {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: Labels<'_>, value: f64) {
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            for character in value.chars() {
                match character {
                    '\\' => self.0.push_str("\\\\"),
                    '"' => self.0.push_str("\\\""),
                    '\n' => self.0.push_str("\\n"),
                    other => self.0.push(other),
                }
            }
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }
}

fn of_process(text: &mut Text, process: &Process) {
    text.family("mainstay_uptime_seconds", "gauge", "Since the start.");
    text.sample("mainstay_uptime_seconds", &[], process.uptime.as_secs_f64());
    let name = "mainstay_http_answers_total";
    text.family(
        name,
        "counter",
        "Answers over HTTP by class of their status.",
    );
    for (class, count) in process.answers {
        text.sample(name, &[("class", class)], count as f64);
    }
    for (name, help, count) in [
        (
            "mainstay_http_panics_total",
            "Requests that panicked.",
            process.panics,
        ),
        (
            "mainstay_http_refused_connections_total",
            "Connections over the limit.",
            process.refused_connections,
        ),
        (
            "mainstay_http_evicted_connections_total",
            "Connections without a request that made room for others.",
            process.evicted_connections,
        ),
        (
            "mainstay_audit_dropped_total",
            "Audit entries that will never be written.",
            process.audit_dropped,
        ),
    ] {
        text.family(name, "counter", help);
        text.sample(name, &[], count as f64);
    }
}

fn of_sources(text: &mut Text, sources: &[SourceReading], services: &[ServiceReading]) {
    let name = "mainstay_calls_total";
    text.family(name, "counter", "Calls by how they ended.");
    let of_sources = sources.iter().map(|source| (&source.name, &source.calls));
    let of_services = services
        .iter()
        .map(|service| (&service.name, &service.calls));
    for (source, calls) in of_sources.chain(of_services) {
        for (outcome, count) in [
            ("succeeded", calls.succeeded),
            ("failed", calls.failed),
            ("rejected", calls.rejected),
            ("cancelled", calls.cancelled),
        ] {
            text.sample(
                name,
                &[("source", source), ("outcome", outcome)],
                count as f64,
            );
        }
    }
    type Read = fn(&SourceReading) -> f64;
    let gauges: [(&str, &str, Read); 3] = [
        (
            "mainstay_has_primary",
            "1 while somebody takes writes.",
            |source| f64::from(u8::from(source.has_primary)),
        ),
        (
            "mainstay_epoch",
            "Rises with every change of the primary.",
            |source| source.epoch as f64,
        ),
        (
            "mainstay_transactions_open",
            "Open transactions.",
            |source| source.transactions_open as f64,
        ),
    ];
    for (name, help, read) in gauges {
        text.family(name, "gauge", help);
        for source in sources {
            text.sample(name, &[("source", &source.name)], read(source));
        }
    }
}

fn of_endpoints(text: &mut Text, sources: &[SourceReading], services: &[ServiceReading]) {
    let name = "mainstay_attempts_total";
    text.family(name, "counter", "Attempts by how they ended.");
    members(sources, services, |source, status| {
        let stats = &status.stats;
        for (outcome, count) in [
            ("succeeded", stats.successes),
            ("failed", stats.failures),
            ("cancelled", stats.cancelled),
            ("rejected", stats.rejected),
        ] {
            let labels = [
                ("source", source),
                ("endpoint", status.endpoint.as_str()),
                ("outcome", outcome),
            ];
            text.sample(name, &labels, count as f64);
        }
    });
    let name = "mainstay_latency_seconds";
    text.family(
        name,
        "gauge",
        "Time of attempts in the last minute by quantile.",
    );
    members(sources, services, |source, status| {
        let stats = &status.stats;
        for (quantile, micros) in [
            ("0.5", stats.p50_us),
            ("0.95", stats.p95_us),
            ("0.99", stats.p99_us),
        ] {
            if let Some(micros) = micros {
                let labels = [
                    ("source", source),
                    ("endpoint", status.endpoint.as_str()),
                    ("quantile", quantile),
                ];
                text.sample(name, &labels, micros as f64 / 1e6);
            }
        }
    });
    let name = "mainstay_circuit_opened_total";
    text.family(name, "counter", "How often the circuit opened.");
    members(sources, services, |source, status| {
        let labels = [("source", source), ("endpoint", status.endpoint.as_str())];
        text.sample(name, &labels, status.stats.circuit_opened as f64);
    });
    states(text, sources);
}

fn states(text: &mut Text, sources: &[SourceReading]) {
    type Read = fn(&EndpointStatus) -> Option<f64>;
    let gauges: [(&str, &str, Read); 6] = [
        ("mainstay_in_flight", "Attempts in flight.", |status| {
            Some(f64::from(status.in_flight))
        }),
        (
            "mainstay_endpoint_up",
            "1 unless its health checks fail.",
            |status| Some(f64::from(u8::from(status.health != "down"))),
        ),
        (
            "mainstay_endpoint_primary",
            "1 if it takes writes.",
            |status| {
                Some(f64::from(u8::from(
                    status.role == mainstay_engine::Role::Primary,
                )))
            },
        ),
        (
            "mainstay_circuit_closed",
            "1 while traffic flows.",
            |status| Some(f64::from(u8::from(status.circuit == "closed"))),
        ),
        (
            "mainstay_endpoint_weight",
            "Its share beside the others.",
            |status| Some(status.weight),
        ),
        (
            "mainstay_lag_seconds",
            "How far it is behind the primary, where known.",
            |status| status.lag_ms.map(|millis| millis as f64 / 1e3),
        ),
    ];
    for (name, help, read) in gauges {
        text.family(name, "gauge", help);
        each(sources, |source, status, _| {
            if let Some(value) = read(status) {
                let labels = [("source", source), ("endpoint", status.endpoint.as_str())];
                text.sample(name, &labels, value);
            }
        });
    }
}

fn of_pools(text: &mut Text, sources: &[SourceReading]) {
    let name = "mainstay_pool_connections";
    text.family(
        name,
        "gauge",
        "Connections by what they do, and callers that wait for one.",
    );
    each(sources, |source, status, pool| {
        for (state, count) in [
            ("active", pool.active),
            ("idle", pool.idle),
            ("waiting", pool.waiting),
        ] {
            let labels = [
                ("source", source),
                ("endpoint", status.endpoint.as_str()),
                ("state", state),
            ];
            text.sample(name, &labels, f64::from(count));
        }
    });
    let name = "mainstay_pool_events_total";
    text.family(name, "counter", "What happened in the pool.");
    each(sources, |source, status, pool| {
        for (event, count) in [
            ("hit", pool.hits),
            ("miss", pool.misses),
            ("wait", pool.waits),
            ("timeout", pool.timeouts),
            ("eviction", pool.evictions),
            ("cleanup", pool.cleanups),
        ] {
            let labels = [
                ("source", source),
                ("endpoint", status.endpoint.as_str()),
                ("event", event),
            ];
            text.sample(name, &labels, count as f64);
        }
    });
}

/// Endpoints of sources and targets of services alike.
fn members(
    sources: &[SourceReading],
    services: &[ServiceReading],
    mut show: impl FnMut(&str, &EndpointStatus),
) {
    each(sources, |source, status, _| show(source, status));
    for service in services {
        for status in &service.targets {
            show(&service.name, status);
        }
    }
}

fn each(sources: &[SourceReading], mut show: impl FnMut(&str, &EndpointStatus, &PoolStats)) {
    for source in sources {
        for (status, pool) in &source.endpoints {
            show(&source.name, status, pool);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_belongs_to_a_family_and_labels_are_escaped() {
        let process = Process {
            uptime: Duration::from_millis(1500),
            answers: [("1xx", 0), ("2xx", 3), ("3xx", 0), ("4xx", 1), ("5xx", 0)],
            panics: 0,
            refused_connections: 0,
            evicted_connections: 0,
            audit_dropped: 0,
        };
        let source = SourceReading {
            name: "a\"b\\\n".into(),
            has_primary: true,
            epoch: 2,
            calls: Counts::default(),
            transactions_open: 0,
            endpoints: Vec::new(),
        };
        let text = exposition(&process, &[source], &[]);
        assert!(text.contains("mainstay_uptime_seconds 1.5\n"), "{text}");
        assert!(
            text.contains("mainstay_http_answers_total{class=\"2xx\"} 3\n"),
            "{text}"
        );
        assert!(
            text.contains("mainstay_epoch{source=\"a\\\"b\\\\\\n\"} 2\n"),
            "{text}"
        );
        let mut family = "";
        for line in text.lines() {
            match line.strip_prefix("# TYPE ") {
                Some(rest) => family = rest.split(' ').next().unwrap(),
                None if line.starts_with('#') => {}
                None => assert!(line.starts_with(family), "{line} stands under {family}"),
            }
        }
    }
}
