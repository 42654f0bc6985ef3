//! How a private broker is set up.

use std::fmt::Write;
use std::path::Path;

/// The user whom every private broker knows.
pub const USER: &str = "mainstay";
/// The password of [`USER`].
pub const PASSWORD: &str = "a broker's secret";

/// Settings of a private broker. By default sessions and their messages are written to the disk when
/// the broker is stopped, or told to by [`Mosquitto::save`](super::Mosquitto::save): a broker that is
/// killed forgets what came since. [`MosquittoOptions::saves_each_change`] is for the others.
#[derive(Debug, Clone, Default)]
pub struct MosquittoOptions {
    users: Vec<(String, String)>,
    settings: Vec<(String, String)>,
}

/// What every private broker starts from; a caller's setting of the same name takes its place.
const DEFAULTS: &[(&str, &str)] = &[
    ("persistence", "true"),
    ("autosave_interval", "0"),
    ("allow_anonymous", "false"),
    ("log_dest", "stderr"),
    ("log_type", "error"),
    ("log_type", "warning"),
    ("log_type", "notice"),
    ("connection_messages", "true"),
    // The client's own packets are small and waited for.
    ("set_tcp_nodelay", "true"),
];

impl MosquittoOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of the configuration, in place of a default of that name.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.set(&name.into(), value);
        self
    }

    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_string()));
    }

    /// One more user.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str) -> Self {
        self.users.push((name.to_owned(), password.to_owned()));
        self
    }

    /// The largest packet that the broker takes and announces; 256 MiB if not set.
    #[must_use]
    pub fn max_packet_size(self, bytes: u32) -> Self {
        self.setting("max_packet_size", bytes)
    }

    /// How many messages with QoS 1 or 2 may be under way to a client, and from it (the receive maximum
    /// that the broker announces); 20 if not set.
    #[must_use]
    pub fn max_inflight(self, messages: u16) -> Self {
        self.setting("max_inflight_messages", messages)
    }

    /// How many messages wait for a client beyond those under way; what comes then is dropped. 1000 if
    /// not set, 0 is without an end.
    #[must_use]
    pub fn max_queued(self, messages: u32) -> Self {
        self.setting("max_queued_messages", messages)
    }

    /// The highest quality of service that the broker takes and announces; 2 if not set.
    #[must_use]
    pub fn max_qos(self, qos: u8) -> Self {
        self.setting("max_qos", qos)
    }

    /// Writes all sessions and messages after each change, so that little is lost in a kill. Slow.
    #[must_use]
    pub fn saves_each_change(self) -> Self {
        self.setting("autosave_on_changes", true)
            .setting("autosave_interval", 1)
    }

    /// The password file as it is before the passwords are hashed.
    pub(crate) fn passwords(&self) -> String {
        let mut text = format!("{USER}:{PASSWORD}\n");
        for (name, password) in &self.users {
            let _ = writeln!(text, "{name}:{password}");
        }
        text
    }

    /// The configuration's text: the machine's own lines, then defaults and the caller's.
    pub(crate) fn configuration(&self, port: u16, folder: &Path) -> String {
        let folder = folder.display();
        // The listener comes first: some of the settings hold for the last one named above them.
        let mut text = format!(
            "listener {port} 127.0.0.1\n\
             persistence_location {folder}/data/\n\
             password_file {folder}/passwords\n"
        );
        let is_set = |name: &str| self.settings.iter().any(|(known, _)| known == name);
        for (name, value) in DEFAULTS.iter().filter(|(name, _)| !is_set(name)) {
            let _ = writeln!(text, "{name} {value}");
        }
        for (name, value) in &self.settings {
            let _ = writeln!(text, "{name} {value}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_setting_takes_the_place_of_a_default() {
        let options = MosquittoOptions::new()
            .setting("allow_anonymous", true)
            .max_inflight(7)
            .max_inflight(1);
        let text = options.configuration(1883, Path::new("/there"));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "listener 1883 127.0.0.1");
        assert!(lines.contains(&"persistence_location /there/data/"));
        assert!(!lines.contains(&"allow_anonymous false"));
        assert_eq!(
            lines[lines.len() - 2..],
            ["allow_anonymous true", "max_inflight_messages 1"]
        );
    }
}
