//! Connections to brokers: from their settings to what speaks to them, and whether it can.

use std::sync::Arc;
use std::time::Duration;

use mainstay_amqp::{AmqpBroker, AmqpSettings};
use mainstay_config::{BrokerProtocol, BrokerSettings, Configuration, Problem};
use mainstay_engine::Chance;
use mainstay_engine::tasks::Tasks;
use mainstay_message::{Broker, Link, ServiceSettings};
use mainstay_mqtt::{MqttBroker, MqttSettings};

/// Beyond the limit of a connect, for the login.
const LOGIN_MAX: Duration = Duration::from_secs(5);

/// A connection to a broker, which keeps itself up. Nothing is connected yet.
pub(super) fn connect(
    broker: &BrokerSettings,
    service: &ServiceSettings,
    name: &str,
    tasks: &Tasks,
    chance: &Chance,
) -> Result<Arc<dyn Broker>, String> {
    match broker.protocol {
        BrokerProtocol::Mqtt5 => open(mqtt(broker, service), name, tasks, chance),
        BrokerProtocol::Amqp091 => {
            let settings = amqp(broker, service);
            Ok(Arc::new(AmqpBroker::connect(settings, tasks)))
        }
    }
}

fn open(
    settings: MqttSettings,
    name: &str,
    tasks: &Tasks,
    chance: &Chance,
) -> Result<Arc<dyn Broker>, String> {
    let broker = MqttBroker::open(settings, tasks, chance);
    broker
        .map(|it| Arc::new(it) as Arc<dyn Broker>)
        .map_err(|problem| format!("brokers.{name}: {problem}"))
}

/// Logs in at every broker of every message service and tells which refuse or do not answer. Takes at most
/// about each broker's `connect_timeout` and 5 s more, all at once. Must be called inside a runtime.
pub async fn check_brokers(configuration: &Configuration) -> Vec<Problem> {
    let tasks = Tasks::new();
    let services = configuration.services().iter();
    let all = services.flat_map(|(service, settings)| {
        let brokers = settings.brokers.iter();
        brokers.map(move |(name, broker)| (service, &settings.settings, name, broker))
    });
    let tried = all.map(|(service, settings, name, broker)| {
        let tasks = &tasks;
        async move {
            let (message, hint) = fault(broker, settings, name, tasks).await?;
            configuration.broker_problem(service, name, message, hint)
        }
    });
    let problems = futures_util::future::join_all(tried).await;
    tasks.shutdown(Duration::from_secs(1)).await;
    problems.into_iter().flatten().collect()
}

/// What is wrong with a broker, if it can be connected to at all.
async fn fault(
    broker: &BrokerSettings,
    service: &ServiceSettings,
    name: &str,
    tasks: &Tasks,
) -> Option<(String, &'static str)> {
    let connection = match broker.protocol {
        BrokerProtocol::Mqtt5 => {
            let mut settings = mqtt(broker, service);
            // Under the name of its own, a proxy that runs would lose its connection.
            settings.client_id.push_str("-check");
            settings.session_expiry = Duration::ZERO;
            open(settings, name, tasks, &Chance::from_entropy())
        }
        BrokerProtocol::Amqp091 => connect(broker, service, name, tasks, &Chance::from_entropy()),
    };
    let connection = match connection {
        Ok(connection) => connection,
        Err(message) => return Some((message, "correct the settings of this broker")),
    };
    let mut link = connection.link();
    let said = |link: &Link| match link {
        Link::Down { reason, .. } => reason.is_some(),
        Link::Up { .. } | Link::Closed => true,
    };
    let limit = broker.connect_timeout + LOGIN_MAX;
    let waited = tokio::time::timeout(limit, link.wait_for(said)).await;
    let found = waited.ok().and_then(Result::ok).map(|link| link.clone());
    connection.close().await;
    let place = format!("{}:{}", broker.host, broker.port);
    match found {
        Some(Link::Up { .. } | Link::Closed) => None,
        Some(Link::Down {
            reason,
            refused: true,
            ..
        }) => Some((
            format!("{place} refuses us: {}", reason.unwrap_or_default()),
            "check user, password, virtual host and what the user may do",
        )),
        Some(Link::Down { reason, .. }) => Some((
            format!("{place} cannot be reached: {}", reason.unwrap_or_default()),
            "check host and port, and whether the broker runs",
        )),
        None => Some((
            format!("{place} does not answer within {limit:?}"),
            "check host and port, and whether the broker runs",
        )),
    }
}

fn mqtt(broker: &BrokerSettings, service: &ServiceSettings) -> MqttSettings {
    // A key that is new does not compile here: pass it on below, for each protocol that has it.
    let BrokerSettings {
        protocol: _,
        host: _,
        port: _,
        user: _,
        password: _,
        vhost: _,
        client_id: _,
        exchange: _,
        keep_alive: _,
        connect_timeout: _,
        reconnect_max: _,
        prefetch: _,
        in_flight_max: _,
        session_expiry: _,
    } = broker;
    // The same after every start: the broker keeps what came meanwhile under it.
    let client_id = broker
        .client_id
        .clone()
        .unwrap_or_else(|| service.caller.to_string());
    let mut settings = MqttSettings::new(&broker.host, client_id);
    settings.port = broker.port;
    settings.user.clone_from(&broker.user);
    settings.password = password(broker);
    settings.keep_alive = broker.keep_alive;
    settings.connect_timeout = broker.connect_timeout;
    settings.reconnect_max = broker.reconnect_max;
    settings.session_expiry = broker.session_expiry;
    settings.receive_max = receive_max(broker.prefetch, service);
    settings.in_flight_max = broker.in_flight_max;
    settings.packet_max = settings.packet_max.max(packet_max(service));
    settings
}

/// One window for the whole connection: answers of targets must have room in it beside all requests that wait
/// for them, of which there are no more than `requests_max`.
fn receive_max(prefetch: u16, service: &ServiceSettings) -> u16 {
    /// For answers, events and checks.
    const BESIDE: usize = 1024;
    let needed = service.limits.requests_max.saturating_add(BESIDE);
    prefetch.max(u16::try_from(needed).unwrap_or(u16::MAX))
}

fn amqp(broker: &BrokerSettings, service: &ServiceSettings) -> AmqpSettings {
    /// Whom RabbitMQ lets in over loopback when nobody is named.
    const GUEST: &str = "guest";
    let user = broker.user.clone().unwrap_or_else(|| GUEST.to_owned());
    let mut settings = AmqpSettings::new(&broker.host, user);
    settings.port = broker.port;
    settings.vhost.clone_from(&broker.vhost);
    settings.exchange.clone_from(&broker.exchange);
    settings.password = password(broker);
    settings.heartbeat = broker.keep_alive;
    settings.connect_timeout = broker.connect_timeout;
    settings.backoff_max = broker.reconnect_max;
    settings.prefetch = broker.prefetch;
    settings.in_flight_max = broker.in_flight_max;
    settings.body_max = settings.body_max.max(service.limits.body_max);
    settings.connection_name = format!("mainstay {}", service.name);
    settings
}

/// The largest message that may come: the largest body with its headers.
fn packet_max(service: &ServiceSettings) -> usize {
    /// What a protocol puts around both.
    const AROUND: usize = 64 << 10;
    service.limits.body_max + service.limits.headers_max + AROUND
}

fn password(broker: &BrokerSettings) -> Option<Arc<dyn mainstay_mqtt::Secret>> {
    let password = broker.password.clone()?;
    Some(Arc::new(move || {
        password.read().map_err(std::io::Error::other)
    }))
}

#[cfg(test)]
mod tests {
    use mainstay_config::{Input, LoadOptions, ProxiedService};

    use super::*;

    fn loaded(protocol: &str, own: &str) -> ProxiedService {
        let text = format!(
            "[services.s]\nidentity = \"org.fac.sys.sub.compute\"\ncapability_name = \"Compute\"\n\
             [services.s.brokers.main]\nprotocol = \"{protocol}\"\nhost = \"broker\"\nport = 7\nuser = \"u\"\n\
             keep_alive = \"7s\"\nconnect_timeout = \"8s\"\nreconnect_max = \"9s\"\nprefetch = 10\n\
             in_flight_max = 11\n{own}\n\
             [services.s.targets.a]\ngroup = \"g\"\ndestination = \"org.fac.sys.sub.primary\"\n\
             operation_map = {{ run = \"Compute.run\" }}\n"
        );
        let name = "a.toml".to_owned();
        let options = LoadOptions {
            files: vec![Input::Text { name, text }],
            ..LoadOptions::default()
        };
        let loaded = Configuration::load(options).unwrap();
        loaded.configuration.services()["s"].clone()
    }

    #[test]
    fn every_key_of_an_mqtt_broker_reaches_its_driver() {
        let service = loaded("mqtt5", "client_id = \"me\"\nsession_expiry = \"12s\"");
        let settings = mqtt(&service.brokers["main"], &service.settings);
        let texts = (settings.host.as_str(), settings.client_id.as_str());
        assert_eq!(texts, ("broker", "me"));
        assert_eq!((settings.port, settings.user.as_deref()), (7, Some("u")));
        let times = [
            settings.keep_alive,
            settings.connect_timeout,
            settings.reconnect_max,
            settings.session_expiry,
        ];
        assert_eq!(times.map(|it| it.as_secs()), [7, 8, 9, 12]);
        let counts = (settings.receive_max, settings.in_flight_max);
        assert_eq!(counts, (10_000 + 1024, 11));
    }

    #[test]
    fn the_window_of_an_mqtt_connection_has_room_beside_all_requests() {
        let mut service = loaded("mqtt5", "").settings;
        let mut window = |prefetch, requests| {
            service.limits.requests_max = requests;
            receive_max(prefetch, &service)
        };
        assert_eq!(window(256, 100), 1124);
        assert_eq!(window(5000, 100), 5000);
        assert_eq!(window(256, usize::MAX), u16::MAX);
    }

    #[test]
    fn every_key_of_an_amqp_broker_reaches_its_driver() {
        let service = loaded("amqp091", "vhost = \"v\"\nexchange = \"e\"");
        let settings = amqp(&service.brokers["main"], &service.settings);
        let texts = [
            settings.host,
            settings.user,
            settings.vhost,
            settings.exchange,
        ];
        assert_eq!(texts, ["broker", "u", "v", "e"]);
        let times = [
            settings.heartbeat,
            settings.connect_timeout,
            settings.backoff_max,
        ];
        assert_eq!(times.map(|it| it.as_secs()), [7, 8, 9]);
        assert_eq!((settings.port, settings.prefetch), (7, 10));
    }
}
