//! `check`: all problems of a configuration at once.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use mainstay_config::{Configuration, LoadOptions, Problem};
use mainstay_server::Assembly;
use serde::Serialize;

use crate::exit::Exit;
use crate::output::{self, Paint};
use crate::settings;

/// Tell all that is wrong with configuration files
///
/// Several files are read as `serve` reads them: later ones win, and environment variables
/// (MAINSTAY_SERVER__LISTEN) are laid above them. Database files that are missing are warnings.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  mainstay check mainstay.toml
  mainstay check base.toml production.toml
  mainstay check mainstay.toml --format json
  mainstay check mainstay.toml --connect

Exit codes: 0 no errors (there may be warnings), 2 errors.")]
pub(crate) struct Arguments {
    /// The files, in TOML, YAML or JSON by their extension
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Log in at the brokers of message services as well; one that is down or refuses is an error
    #[arg(long)]
    connect: bool,
    /// How to tell
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// One line a problem, with its line and column
    Text,
    /// One JSON object with all of them
    Json,
}

#[derive(Serialize)]
struct Report<'a> {
    errors: usize,
    warnings: usize,
    problems: &'a [Problem],
}

/// Checks, tells.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<Exit> {
    let options = settings::options(&arguments.files, Vec::new());
    let problems = problems(options, arguments.connect).await;
    let errors = problems.iter().filter(|problem| problem.is_error()).count();
    let report = Report {
        errors,
        warnings: problems.len() - errors,
        problems: &problems,
    };
    match arguments.format {
        Format::Text => output::say(&text(&report))?,
        Format::Json => output::say(&serde_json::to_string_pretty(&report)?)?,
    }
    Ok(if errors == 0 {
        Exit::Ok
    } else {
        Exit::Problems
    })
}

/// All that is wrong, and files that are missing; those are looked for only where the settings are right.
async fn problems(options: LoadOptions, connect: bool) -> Vec<Problem> {
    match Configuration::load(options) {
        Ok(loaded) => {
            let made = |path: &Path| Assembly::makes(&loaded.configuration, path);
            let missing = mainstay_config::missing_files(&loaded.configuration, made);
            let mut problems = loaded.warnings;
            problems.extend(missing);
            problems.extend(mainstay_server::check_tls(&loaded.configuration));
            if connect {
                problems.extend(mainstay_server::check_brokers(&loaded.configuration).await);
            }
            problems.sort();
            problems
        }
        Err(problems) => problems,
    }
}

fn text(report: &Report<'_>) -> String {
    let paint = Paint::stdout();
    let mut lines: Vec<String> = report
        .problems
        .iter()
        .map(|problem| problem.to_string())
        .collect();
    let errors = settings::counted(report.errors, "error");
    let warnings = settings::counted(report.warnings, "warning");
    lines.push(match (report.errors, report.warnings) {
        (0, 0) => paint.green("no problems"),
        (0, _) => paint.yellow(&format!("no errors, {warnings}")),
        (_, 0) => paint.red(&errors),
        _ => paint.red(&format!("{errors}, {warnings}")),
    });
    lines.join("\n")
}
