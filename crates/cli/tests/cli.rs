//! The built program, driven as people drive it: arguments in, text and exit codes out.

#![allow(clippy::unwrap_used)]

#[path = "cli/background.rs"]
mod background;
#[path = "cli/contrib.rs"]
mod contrib;
#[path = "cli/crowd.rs"]
mod crowd;
#[path = "cli/demo.rs"]
mod demo;
#[path = "cli/docs.rs"]
mod docs;
#[path = "cli/files.rs"]
mod files;
#[path = "cli/intersect.rs"]
mod intersect;
#[path = "cli/keys.rs"]
mod keys;
#[path = "cli/pages.rs"]
mod pages;
#[path = "cli/pid_file.rs"]
mod pid_file;
#[path = "cli/program.rs"]
mod program;
#[path = "cli/query.rs"]
mod query;
#[path = "cli/server.rs"]
mod server;
#[path = "cli/signals.rs"]
mod signals;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/usage.rs"]
mod usage;
#[path = "cli/values.rs"]
mod values;
