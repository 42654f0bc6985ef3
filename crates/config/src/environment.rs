//! Environment variables and flags as layers above the files.
//!
//! `MAINSTAY_SERVER__LISTEN` is the key `server.listen`: the steps of the path stand between double
//! underscores, in any case. A name without `__` is never configuration.

use crate::mark::{Mark, Origin};
use crate::problem::{Findings, Wrong};
use crate::tree::{Entry, Node, Table, Tree, Value};

const PREFIX: &str = "MAINSTAY_";
const STEP: &str = "__";

/// More steps than the deepest key has are not followed.
const STEPS_MAX: usize = 16;

/// Lays the variables that are configuration above `tree`.
pub(crate) fn overlay(
    tree: &mut Tree,
    environment: impl IntoIterator<Item = (String, String)>,
    findings: &mut Findings,
) {
    let mut variables: Vec<(String, String)> = environment
        .into_iter()
        .filter(|(name, _)| is_configuration(name))
        .collect();
    // The environment has no order of its own; a fixed one keeps reports the same.
    variables.sort();
    let mut above = Tree::default();
    for (name, value) in variables {
        let steps: Vec<String> = name[PREFIX.len()..]
            .to_lowercase()
            .split(STEP)
            .map(str::to_owned)
            .collect();
        let mark = Mark::whole(Origin::Variable(name.as_str().into()));
        place(tree, &mut above, &steps, value, &mark, findings);
    }
    tree.merge(above);
}

/// Lays flags above `tree`: the flag's name, the key it stands for and its value.
pub(crate) fn flags(tree: &mut Tree, flags: Vec<Flag>, findings: &mut Findings) {
    let mut above = Tree::default();
    for flag in flags {
        let steps: Vec<String> = flag.path.split('.').map(str::to_owned).collect();
        let mark = Mark::whole(Origin::Flag(flag.name.into()));
        place(tree, &mut above, &steps, flag.value, &mark, findings);
    }
    tree.merge(above);
}

/// A flag of the command line that stands for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flag {
    /// As it is written, such as `--listen`.
    pub name: String,
    /// The key, such as `server.listen`.
    pub path: String,
    /// The value as text; its type follows from the key.
    pub value: String,
}

fn is_configuration(name: &str) -> bool {
    name.get(..PREFIX.len())
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case(PREFIX))
        && name.contains(STEP)
}

/// Puts one value into the layer under the names that the tree below already uses.
fn place(
    below: &Tree,
    above: &mut Tree,
    steps: &[String],
    value: String,
    mark: &Mark,
    findings: &mut Findings,
) {
    let path = steps.join(".");
    if steps.len() > STEPS_MAX || steps.iter().any(String::is_empty) {
        let wrong = Wrong::new("names no key").hint("such as MAINSTAY_SERVER__LISTEN");
        return findings.error(mark, path, wrong);
    }
    let steps = match spelled(&below.root, steps) {
        Ok(steps) => steps,
        Err(wrong) => return findings.error(mark, path, wrong),
    };
    let Some((last, parents)) = steps.split_last() else {
        return;
    };
    let mut table = &mut above.root;
    for step in parents {
        match table.table_mut(step, mark) {
            Some(inner) => table = inner,
            None => {
                return findings.error(
                    mark,
                    path,
                    "another override gives a value to a part of this path",
                );
            }
        }
    }
    let entry = Entry {
        mark: mark.clone(),
        node: Node {
            value: Value::Loose(value),
            mark: mark.clone(),
        },
    };
    if let Err(first) = table.insert(last.clone(), entry) {
        findings.error(mark, path, format!("already given by {}", first.origin));
    }
}

/// The steps as the files spell them: names are compared without regard to case.
fn spelled(root: &Table, steps: &[String]) -> Result<Vec<String>, Wrong> {
    let mut table = Some(root);
    let mut spelled = Vec::with_capacity(steps.len());
    for step in steps {
        let mut alike = table
            .into_iter()
            .flat_map(Table::names)
            .filter(|name| name.eq_ignore_ascii_case(step));
        let name = match (alike.next(), alike.next()) {
            (Some(one), Some(two)) => {
                return Err(Wrong::new(format!("could mean {one} or {two}"))
                    .hint("names that differ only in case are reached through the file only"));
            }
            (Some(one), None) => one.to_owned(),
            _ => step.clone(),
        };
        table = table.and_then(|table| match &table.get(&name)?.node.value {
            Value::Table(inner) => Some(inner),
            _ => None,
        });
        spelled.push(name);
    }
    Ok(spelled)
}
