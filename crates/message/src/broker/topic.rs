//! Topics in the form that both protocols share: levels with slashes between them.

use std::fmt;
use std::sync::Arc;

/// Levels between slashes at most, far above what INTERSECT uses; MQTT and AMQP stop at 65,535 and 255
/// bytes.
const LENGTH_MAX: usize = 255;

/// A topic: levels with `/` between them, no wildcards. MQTT takes it as it is, AMQP with dots.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

/// Topics to subscribe to: levels with `/` between them, where `*` stands for exactly one level and a
/// last `#` for any number. MQTT writes `+` for `*`, AMQP uses dots.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TopicFilter(Arc<str>);

/// A text that is no topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopicError {
    /// Empty, or longer than a routing key may be.
    #[error("a topic has 1 to {LENGTH_MAX} bytes, {text:?} has {}", .text.len())]
    Length {
        /// The text.
        text: String,
    },
    /// A character that one of the protocols gives another meaning, or an empty level.
    #[error(
        "{text:?} is no topic: {reason}; use letters, digits, '-' and '_' with '/' between levels"
    )]
    Form {
        /// The text.
        text: String,
        /// What is wrong.
        reason: &'static str,
    },
}

fn check_levels(text: &str, wildcards: bool) -> Result<(), TopicError> {
    let fault = |reason| TopicError::Form {
        text: text.to_owned(),
        reason,
    };
    if text.is_empty() || text.len() > LENGTH_MAX {
        return Err(TopicError::Length {
            text: text.to_owned(),
        });
    }
    let levels: Vec<&str> = text.split('/').collect();
    for (place, level) in levels.iter().enumerate() {
        let is_last = place + 1 == levels.len();
        match *level {
            "" => return Err(fault("it has an empty level")),
            "*" if wildcards => {}
            "#" if wildcards && is_last => {}
            _ if level.contains(['*', '#', '+', '.', '\0']) => {
                return Err(fault(
                    "it holds '*', '#', '+', '.' or NUL where none may stand",
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Topic {
    /// Reads the slash form.
    ///
    /// # Errors
    /// If it is empty, too long, has an empty level, a wildcard or a dot.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        check_levels(text, false)?;
        Ok(Topic(text.into()))
    }

    /// The slash form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As AMQP routes it: dots between the levels.
    pub fn routing_key(&self) -> String {
        self.0.replace('/', ".")
    }

    /// Reads AMQP's form. `None`: it holds what no topic holds.
    pub fn from_routing_key(key: &str) -> Option<Self> {
        if key.contains('/') {
            return None;
        }
        Topic::parse(&key.replace('.', "/")).ok()
    }
}

impl TopicFilter {
    /// Reads the slash form with `*` and `#`.
    ///
    /// # Errors
    /// As [`Topic::parse`]; `#` may only be the last level.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        check_levels(text, true)?;
        Ok(TopicFilter(text.into()))
    }

    /// The slash form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// As AMQP binds it.
    pub fn binding_key(&self) -> String {
        self.0.replace('/', ".")
    }

    /// As MQTT subscribes to it.
    pub fn mqtt(&self) -> String {
        self.0.replace('*', "+")
    }

    /// Whether a topic fits.
    pub fn fits(&self, topic: &Topic) -> bool {
        let mut levels = topic.0.split('/');
        for wanted in self.0.split('/') {
            match (wanted, levels.next()) {
                ("#", _) => return true,
                ("*", Some(_)) => {}
                (wanted, Some(level)) if wanted == level => {}
                _ => return false,
            }
        }
        levels.next().is_none()
    }
}

impl From<&Topic> for TopicFilter {
    fn from(topic: &Topic) -> Self {
        TopicFilter(Arc::clone(&topic.0))
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl fmt::Display for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for TopicFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_fit_level_by_level() {
        for (filter, topic, fits) in [
            ("a/b", "a/b", true),
            ("a/b", "a/b/c", false),
            ("a/b/c", "a/b", false),
            ("a/*", "a/b", true),
            ("a/*", "a", false),
            ("a/*", "a/b/c", false),
            ("a/#", "a/b/c", true),
            ("a/#", "a", true),
            ("#", "a/b", true),
            ("*/b", "a/b", true),
            ("*/b", "a/c", false),
        ] {
            let filter = TopicFilter::parse(filter).unwrap();
            let topic = Topic::parse(topic).unwrap();
            assert_eq!(filter.fits(&topic), fits, "{filter} {topic}");
        }
    }

    #[test]
    fn what_is_no_topic_is_refused() {
        for text in ["", "/a", "a/", "a//b", "a.b", "a/*", "a/+", "a/#", "a\0b"] {
            assert!(Topic::parse(text).is_err(), "{text:?}");
        }
        for text in ["a/#/b", "a/b*", "a/+"] {
            assert!(TopicFilter::parse(text).is_err(), "{text:?}");
        }
        assert!(Topic::parse(&"a".repeat(256)).is_err());
    }

    #[test]
    fn amqp_has_dots_and_mqtt_its_own_wildcard() {
        let topic = Topic::parse("org/fac/sys/-/svc/request").unwrap();
        assert_eq!(topic.routing_key(), "org.fac.sys.-.svc.request");
        assert_eq!(
            Topic::from_routing_key("org.fac.sys.-.svc.request"),
            Some(topic)
        );
        assert_eq!(Topic::from_routing_key("a/b"), None);
        let filter = TopicFilter::parse("org/*/sys/#").unwrap();
        assert_eq!(filter.mqtt(), "org/+/sys/#");
        assert_eq!(filter.binding_key(), "org.*.sys.#");
    }
}
