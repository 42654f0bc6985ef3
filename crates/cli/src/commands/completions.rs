//! `completions`: what a shell needs to complete commands and flags.

use clap_complete::Shell;

use crate::arguments;
use crate::exit::Exit;
use crate::output;

/// Print a script that completes commands and flags in a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay completions bash > ~/.local/share/bash-completion/completions/mainstay
  mainstay completions zsh > ~/.zfunc/_mainstay
  mainstay completions fish > ~/.config/fish/completions/mainstay.fish")]
pub(crate) struct Arguments {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Prints the script.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(
        arguments.shell,
        &mut arguments::definition(),
        "mainstay",
        &mut script,
    );
    output::say(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
