//! Names of INTERSECT services and the topics and queues that belong to them.

use std::fmt;
use std::sync::Arc;

use ring::digest;

use crate::broker::{Topic, TopicFilter};

/// Each part of a name: the SDK's rule (`HIERARCHY_REGEX` of intersect-sdk-common 0.9).
const PART_MIN: usize = 3;
const PART_MAX: usize = 63;
/// Organization, facility, system, subsystem, service.
const PARTS: usize = 5;

/// The name of a service: organization, facility, system, subsystem (`-` where there is none) and
/// service, with dots between them.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity(Arc<str>);

/// A text that is no name of a service.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// Not five parts.
    #[error(
        "{text:?} has {got} parts instead of five; write organization.facility.system.subsystem.service, with - for no subsystem"
    )]
    Parts {
        /// The text.
        text: String,
        /// How many parts it has.
        got: usize,
    },
    /// A part that breaks the rules.
    #[error(
        "{part:?} in {text:?} is no {what}: {reason}; use {PART_MIN} to {PART_MAX} of a-z, 0-9 and single '-', a letter first"
    )]
    Part {
        /// The text.
        text: String,
        /// The part.
        part: String,
        /// Which part it is.
        what: &'static str,
        /// What is wrong.
        reason: &'static str,
    },
}

impl Identity {
    /// Reads a name with dots.
    ///
    /// # Errors
    /// If it has not five parts or one breaks the SDK's rules.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        const WHAT: [&str; PARTS] = ["organization", "facility", "system", "subsystem", "service"];
        let parts: Vec<&str> = text.split('.').collect();
        if parts.len() != PARTS {
            return Err(IdentityError::Parts {
                text: text.to_owned(),
                got: parts.len(),
            });
        }
        for (part, what) in parts.iter().zip(WHAT) {
            if *part == "-" && what == "subsystem" {
                continue;
            }
            if let Some(reason) = fault(part) {
                return Err(IdentityError::Part {
                    text: text.to_owned(),
                    part: (*part).to_owned(),
                    what,
                    reason,
                });
            }
        }
        Ok(Identity(text.into()))
    }

    /// With dots, as headers have it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn topic(&self, end: &str) -> Topic {
        let text = format!("{}/{end}", self.0.replace('.', "/"));
        match Topic::parse(&text) {
            Ok(topic) => topic,
            Err(error) => {
                unreachable!("parts of a name and {end:?} are levels of a topic: {error}")
            }
        }
    }

    fn filter(&self, end: &str) -> TopicFilter {
        let text = format!("{}/{end}", self.0.replace('.', "/"));
        match TopicFilter::parse(&text) {
            Ok(filter) => filter,
            Err(error) => {
                unreachable!("parts of a name and {end:?} are levels of a filter: {error}")
            }
        }
    }

    /// Where its requests go.
    pub fn requests(&self) -> Topic {
        self.topic("request")
    }

    /// Where replies to its own requests go.
    pub fn responses(&self) -> Topic {
        self.topic("response")
    }

    /// Where it says that it starts, lives and ends.
    pub fn lifecycle(&self) -> Topic {
        self.topic("lifecycle")
    }

    /// Where it publishes an event of a capability. `None`: the names are no levels of a topic.
    pub fn event(&self, capability: &str, event: &str) -> Option<Topic> {
        let base = self.0.replace('.', "/");
        Topic::parse(&format!("{base}/events/{capability}/{event}")).ok()
    }

    /// The bucket for its objects: its service's name and a hash of the whole, within what S3 allows.
    pub fn bucket(&self) -> String {
        let service = self.0.rsplit('.').next().unwrap_or_default();
        let start: String = service.chars().take(6).collect();
        let hash = queue_name(&self.0);
        format!("{start}-{}", &hash[..56])
    }

    /// All its events.
    pub fn events(&self) -> TopicFilter {
        self.filter("events/*/*")
    }
}

/// What is wrong with a part, if anything is.
fn fault(part: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if !(PART_MIN..=PART_MAX).contains(&part.len()) {
        Some("it is too short or too long")
    } else if !part.starts_with(|c: char| c.is_ascii_lowercase()) {
        Some("it does not begin with a letter of a to z")
    } else if !part.chars().all(is_allowed) {
        Some("it holds something else")
    } else if part.contains("--") {
        Some("it has two '-' in a row")
    } else {
        None
    }
}

/// The name of the durable AMQP queue that the SDK makes for a topic of a service: SHA-384 of the slash
/// form, in hexadecimal.
pub fn queue_name(topic: &str) -> String {
    let hash = digest::digest(&digest::SHA384, topic.as_bytes());
    hash.as_ref().iter().fold(String::new(), |mut text, byte| {
        use fmt::Write;
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rules_of_the_sdk() {
        for text in [
            "org.fac.sys.sub.svc",
            "org.fac.sys.-.svc",
            "o-r.f4c.sys.sub.s-v-c",
        ] {
            assert_eq!(Identity::parse(text).unwrap().as_str(), text);
        }
        for text in [
            "",
            "org.fac.sys.svc",
            "org.fac.sys.sub.svc.more",
            "or.fac.sys.sub.svc",
            "-.fac.sys.sub.svc",
            "org.fac.sys.sub.-",
            "Org.fac.sys.sub.svc",
            "4rg.fac.sys.sub.svc",
            "org.fac.sys.sub.s--c",
            "org.fac.sys.sub.s_vc",
            &format!("org.fac.sys.sub.{}", "s".repeat(64)),
        ] {
            assert!(Identity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn topics_and_queues_are_those_of_the_sdk() {
        let identity = Identity::parse("org.fac.sys.-.svc").unwrap();
        assert_eq!(identity.requests().as_str(), "org/fac/sys/-/svc/request");
        assert_eq!(identity.responses().as_str(), "org/fac/sys/-/svc/response");
        assert_eq!(identity.lifecycle().as_str(), "org/fac/sys/-/svc/lifecycle");
        let event = identity.event("Compute", "done").unwrap();
        assert_eq!(event.as_str(), "org/fac/sys/-/svc/events/Compute/done");
        assert!(identity.events().fits(&event));
        assert!(identity.event("Com/pute", "").is_none());
        // hashlib.sha384(b"org/fac/sys/-/svc/request").hexdigest()
        assert_eq!(queue_name(identity.requests().as_str()), SHA);
    }

    const SHA: &str = "7fb6a01e3213023ca1a4404ec15b3ec011eea266c85950519014154c7feabcc4f9e4d7a9513884de440c035aa8766b68";
}
