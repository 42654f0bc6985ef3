//! Names that a service is made of: of services, operations, groups and targets.

use std::sync::Arc;

use mainstay_message::identity::Identity;

use crate::problem::Wrong;
use crate::scalar;
use crate::tree::Node;

/// Longer ones would make logs and metrics unreadable.
const NAME_MAX: usize = 64;

/// The SDK's bound of names of capabilities.
const CAPABILITY_MAX: usize = 255;

/// The name of a service on the wire.
pub(super) fn identity(node: &Node) -> Result<Identity, Wrong> {
    let text = scalar::text(node)?;
    Identity::parse(&text).map_err(|error| {
        let text = error.to_string();
        match text.rsplit_once("; ") {
            Some((message, hint)) => Wrong::new(message).hint(hint),
            None => Wrong::new(text),
        }
    })
}

/// The name of a capability by the SDK's rule.
pub(super) fn capability(node: &Node) -> Result<Arc<str>, Wrong> {
    let text = scalar::text(node)?;
    match is_capability(&text) {
        true => Ok(text.into()),
        false => Err(
            Wrong::new(format!("{:?} is no name of a capability", shown(&text)))
                .hint("letters, digits and underscores, a letter or digit first"),
        ),
    }
}

fn is_capability(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphanumeric();
    text.len() <= CAPABILITY_MAX
        && text.starts_with(is_first)
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// The name of a function: a Python identifier.
pub(super) fn is_function(text: &str) -> bool {
    let is_first = |c: char| c.is_alphabetic() || c == '_';
    text.len() <= CAPABILITY_MAX
        && text.starts_with(is_first)
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}

/// `Capability.function`.
pub(super) fn operation(node: &Node) -> Result<Arc<str>, Wrong> {
    let text = scalar::text(node)?;
    let parts: Vec<&str> = text.split('.').collect();
    match parts[..] {
        [capability, function] if is_capability(capability) && is_function(function) => {
            Ok(text.into())
        }
        _ => Err(
            Wrong::new(format!("{:?} is no operation of a service", shown(&text)))
                .hint("the capability, one dot and the function, such as \"Compute.run\""),
        ),
    }
}

/// A name that people choose, such as that of a group.
pub(super) fn word(node: &Node) -> Result<Arc<str>, Wrong> {
    let text = scalar::text(node)?;
    check_word(&text)?;
    Ok(text.into())
}

/// Whether it can be told in a line, a path of HTTP and the name of a file.
pub(super) fn check_word(text: &str) -> Result<(), Wrong> {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | ' ');
    let is_first = |c: char| c.is_alphanumeric() || c == '_';
    let is_last = |c: char| c != ' ';
    match text.len() <= NAME_MAX
        && text.starts_with(is_first)
        && text.ends_with(is_last)
        && text.chars().all(fits)
    {
        true => Ok(()),
        false => Err(Wrong::new(format!("{:?} is no name", shown(text)))
            .hint("1 to 64 letters, digits and any of _ - . : and spaces between them")),
    }
}

/// Names, each once.
pub(super) fn words(node: &Node) -> Result<Vec<Arc<str>>, Wrong> {
    let names = scalar::list(node)?;
    if names.is_empty() {
        return Err(Wrong::new("is empty").hint("name at least one, or leave the key out"));
    }
    for (place, name) in names.iter().enumerate() {
        check_word(name)?;
        if names[..place].contains(name) {
            return Err(Wrong::new(format!("{name:?} stands twice")).hint("name each once"));
        }
    }
    Ok(names.into_iter().map(Arc::from).collect())
}

/// Names of services in which `*` stands for any characters.
pub(super) fn pattern(node: &Node) -> Result<Arc<str>, Wrong> {
    let text = scalar::text(node)?;
    let parts: Vec<&str> = text.split('.').collect();
    let hint = "five parts with dots between them, where * stands for any characters, such as org.fac.sys.-.worker-*";
    if parts.len() != 5 {
        let count = parts.len();
        let wrong = format!("{:?} fits no name: it has {count} parts", shown(&text));
        return Err(Wrong::new(wrong).hint(hint));
    }
    for (place, part) in parts.iter().enumerate() {
        if !fits_some(place, part) {
            let wrong = format!("{part:?} in {:?} fits no name", shown(&text));
            return Err(Wrong::new(wrong).hint(hint));
        }
    }
    Ok(text.into())
}

/// Whether some part of a name, at that place, fits a part of a pattern.
fn fits_some(place: usize, part: &str) -> bool {
    // What `*` may stand for: enough for the least length, or nothing where the rest is long.
    ["aaa", "a", "", "-"].iter().any(|any| {
        let mut parts = ["aaa"; 5];
        let part = part.replace('*', any);
        parts[place] = &part;
        Identity::parse(&parts.join(".")).is_ok()
    })
}

/// The beginning of a text, to show it in a message.
pub(super) fn shown(text: &str) -> String {
    text.chars().take(NAME_MAX).collect()
}
