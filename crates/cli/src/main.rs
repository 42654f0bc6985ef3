//! The `mainstay` program: serve, check, ask, look.

mod arguments;
mod client;
mod commands;
#[cfg(unix)]
mod daemon;
mod descriptors;
mod exit;
mod logs;
mod output;
mod own_name;
#[cfg(unix)]
mod pid_file;
#[cfg(unix)]
mod process;
mod settings;
mod signals;
mod table;

use std::process::ExitCode;

use arguments::Command;
use exit::Exit;

fn main() -> ExitCode {
    let exit = match arguments::parse() {
        Ok(command) => run(command).unwrap_or_else(|error| exit::report(&error)),
        Err(exit) => exit,
    };
    exit.into()
}

fn run(command: Command) -> anyhow::Result<Exit> {
    use commands::{
        check, completions, demo, explain, init, inject, key, query, serve, services, status,
    };
    match command {
        Command::Init(arguments) => init::run(&arguments),
        Command::Check(arguments) => wait_for(check::run(arguments)),
        Command::Key(arguments) => key::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
        Command::Explain(arguments) => wait_for(explain::run(arguments)),
        Command::Serve(arguments) => wait_for(serve::run(arguments)),
        Command::Query(arguments) => wait_for(query::run(arguments)),
        Command::Status(arguments) => wait_for(status::run(arguments)),
        Command::Services(arguments) => wait_for(services::run(arguments)),
        Command::Inject(arguments) => inject::run(&arguments),
        #[cfg(unix)]
        Command::Start(arguments) => wait_for(commands::start::run(arguments)),
        #[cfg(unix)]
        Command::Stop(arguments) => wait_for(commands::stop::run(arguments)),
        Command::Demo(arguments) => wait_for(demo::run(arguments)),
    }
}

/// Runs a command that waits for something.
fn wait_for(work: impl Future<Output = anyhow::Result<Exit>>) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let exit = runtime.block_on(work);
    // What has not ended by now hangs, and nobody waits for it.
    runtime.shutdown_background();
    exit
}
