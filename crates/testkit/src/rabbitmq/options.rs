//! How a private broker is set up.

use std::fmt::Write;
use std::path::Path;

/// Settings of a private broker.
#[derive(Debug, Clone, Default)]
pub struct RabbitmqOptions {
    settings: Vec<(String, String)>,
    users: Vec<User>,
}

#[derive(Debug, Clone)]
struct User {
    name: String,
    password: String,
    /// Patterns of the names that may be configured, written and read.
    permissions: [String; 3],
}

/// What every private broker starts from; a caller's setting of the same name comes later and wins.
const DEFAULTS: &[(&str, &str)] = &[
    ("log.console", "true"),
    ("log.console.level", "info"),
    // A machine that runs many of them at once is short of both, and that is no reason to block.
    ("vm_memory_high_watermark.absolute", "1GB"),
    ("disk_free_limit.absolute", "10MB"),
    ("cluster_name", "mainstay"),
];

impl RabbitmqOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// A line of `rabbitmq.conf`. A later one of the same name wins.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl ToString) -> Self {
        self.settings.push((name.into(), value.to_string()));
        self
    }

    /// One more user, who may configure, write and read what these patterns match in the virtual host `/`.
    #[must_use]
    pub fn user(mut self, name: &str, password: &str, permissions: [&str; 3]) -> Self {
        self.users.push(User {
            name: name.to_owned(),
            password: password.to_owned(),
            permissions: permissions.map(str::to_owned),
        });
        self
    }

    /// The text of `rabbitmq.conf`: defaults, then the broker's own lines, then the caller's.
    pub(crate) fn configuration(&self, port: u16, folder: &Path) -> String {
        let mut lines: Vec<(String, String)> = DEFAULTS
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        lines.push((
            "listeners.tcp.local".to_owned(),
            format!("127.0.0.1:{port}"),
        ));
        if !self.users.is_empty() {
            let path = folder.join("definitions.json").display().to_string();
            lines.push(("load_definitions".to_owned(), path));
        }
        lines.extend(self.settings.iter().cloned());
        let mut text = String::new();
        for (number, (name, value)) in lines.iter().enumerate() {
            // The broker refuses a name that comes twice.
            if !lines[number + 1..].iter().any(|(later, _)| later == name) {
                let _ = writeln!(text, "{name} = {value}");
            }
        }
        text
    }

    /// The users as the broker loads them at its start.
    pub(crate) fn definitions(&self) -> Option<String> {
        if self.users.is_empty() {
            return None;
        }
        let join = |parts: Vec<String>| parts.join(",");
        let users = join(self.users.iter().map(user).collect());
        let permissions = join(self.users.iter().map(permission).collect());
        Some(format!(
            r#"{{"vhosts":[{{"name":"/"}}],"users":[{users}],"permissions":[{permissions}]}}"#
        ))
    }
}

fn user(user: &User) -> String {
    let (name, password) = (&user.name, &user.password);
    format!(r#"{{"name":"{name}","password":"{password}","tags":""}}"#)
}

fn permission(user: &User) -> String {
    let (name, [configure, write, read]) = (&user.name, &user.permissions);
    format!(
        r#"{{"user":"{name}","vhost":"/","configure":"{configure}","write":"{write}","read":"{read}"}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_setting_is_the_only_one_of_its_name() {
        let text = RabbitmqOptions::new()
            .setting("log.console.level", "debug")
            .configuration(1234, Path::new("/x"));
        assert_eq!(text.matches("log.console.level").count(), 1);
        assert!(
            text.ends_with("listeners.tcp.local = 127.0.0.1:1234\nlog.console.level = debug\n")
        );
    }
}
