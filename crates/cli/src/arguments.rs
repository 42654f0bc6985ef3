//! The command line.

use clap::{Parser, Subcommand};

use crate::commands::{
    check, completions, demo, explain, init, inject, key, query, serve, services, status,
};
use crate::exit::Exit;

const EXAMPLES: &str = "\
Examples:
  mainstay demo                      watch a primary fail and come back, in 15 seconds
  mainstay serve                     serve a sample database on http://127.0.0.1:7717
  mainstay start; mainstay stop      the same in the background
  mainstay init && mainstay serve --config mainstay.toml
                                     begin with a configuration of your own
  mainstay check mainstay.toml       all that is wrong with a file, at once
  mainstay explain mainstay.toml demo
                                     each value in effect and where it came from
  mainstay query \"SELECT name, city FROM customers WHERE id = ?\" --param 7
  mainstay status --watch            sources and endpoints of a running server
  mainstay services --jobs           message services, their targets and open jobs

Exit codes: 0 all well, 1 it failed, 2 a configuration has errors, 64 wrong usage.";

/// A resilience proxy for databases and message services: one engine decides whom to call, how long to wait and whether a
/// second try is safe.
#[derive(Debug, Parser)]
#[command(name = "mainstay", version, max_term_width = 100, after_help = EXAMPLES)]
#[command(disable_help_subcommand = true, arg_required_else_help = true)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::Arguments),
    Serve(serve::Arguments),
    #[cfg(unix)]
    Start(crate::commands::start::Arguments),
    #[cfg(unix)]
    Stop(crate::commands::stop::Arguments),
    Check(check::Arguments),
    Explain(explain::Arguments),
    Query(query::Arguments),
    Status(status::Arguments),
    Services(services::Arguments),
    Inject(inject::Arguments),
    Demo(demo::Arguments),
    Key(key::Arguments),
    Completions(completions::Arguments),
}

/// Reads the command line. Help and version are shown at once.
pub(crate) fn parse() -> Result<Command, Exit> {
    CommandLine::try_parse()
        .map(|line| line.command)
        .map_err(|error| {
            // Nobody reads it: then nothing is to be said.
            let _ = error.print();
            match error.use_stderr() {
                true => Exit::Usage,
                false => Exit::Ok,
            }
        })
}

/// The command line as clap sees it.
pub(crate) fn definition() -> clap::Command {
    <CommandLine as clap::CommandFactory>::command()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_consistent() {
        super::definition().debug_assert();
    }
}
