//! `key`: keys for callers of the HTTP surface.

use clap::Subcommand;

use crate::exit::Exit;
use crate::output;

/// Make a key for callers of a server
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay key new                      a key, shown once, and its table for the configuration
  mainstay key new ci --role write")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print a new key and the table with its hash; nothing is kept
    New {
        /// What the key is called
        #[arg(default_value = "main")]
        id: String,
        /// What its holder may do
        #[arg(long, value_parser = ["read", "write", "admin"], default_value = "read")]
        role: String,
    },
}

/// Prints the key.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<Exit> {
    let What::New { id, role } = &arguments.what;
    let (key, hash) = mainstay_server::new_key().ok_or_else(|| {
        anyhow::anyhow!("the operating system gives no random numbers; try again")
    })?;
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let id = match !id.is_empty() && id.chars().all(is_bare) {
        true => id.clone(),
        false => format!("{id:?}"),
    };
    output::say(&format!(
        "{key}\n\n# The key is shown this once. This goes into the configuration:\n\
         [server.keys.{id}]\nsha256 = \"{hash}\"\nrole = \"{role}\"\n"
    ))?;
    Ok(Exit::Ok)
}
