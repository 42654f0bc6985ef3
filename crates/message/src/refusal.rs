//! Error replies: the texts of the SDK (intersect-sdk 0.9.3, `service.py`) and what each of them means.
//!
//! INTERSECT gives an error nothing but its text, so the text decides.

use mainstay_engine::{Category, Sent};

use crate::settings::ErrorRule;

/// What an error reply means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meaning {
    /// Which kind of failure it is.
    pub category: Category,
    /// Whether the function may have run.
    pub sent: Sent,
}

impl Meaning {
    /// Whether the caller made a mistake that every target would refuse.
    pub fn is_callers_own(self) -> bool {
        self.category == Category::Persistent
    }
}

const KNOWN: [(&str, Category, Sent); 10] = [
    (
        "SDK version incompatibility",
        Category::Persistent,
        Sent::YesUnprocessed,
    ),
    (
        "Tried to call non-existent operation",
        Category::Persistent,
        Sent::YesUnprocessed,
    ),
    ("For operation ", Category::Persistent, Sent::YesUnprocessed),
    // Also when what the function returned does not fit: it may have run.
    (
        "Bad arguments to application",
        Category::Persistent,
        Sent::Maybe,
    ),
    ("Function '", Category::Transient, Sent::YesUnprocessed),
    (
        "Could not locate service capability",
        Category::Endpoint,
        Sent::YesUnprocessed,
    ),
    (
        "Could not get data from data handler",
        Category::Transient,
        Sent::YesUnprocessed,
    ),
    (
        "Could not send data to data handler",
        Category::Transient,
        Sent::Maybe,
    ),
    (
        "Service domain logic threw explicit exception",
        Category::Transient,
        Sent::Maybe,
    ),
    (
        "Service domain logic threw exception",
        Category::Transient,
        Sent::Maybe,
    ),
];

/// What a text means: configured rules first, then the SDK's own texts. One that nobody knows is tried
/// nowhere else: what it means for a repetition is not known.
pub fn meaning(text: &str, rules: &[ErrorRule]) -> Meaning {
    let rule = rules.iter().find(|rule| text.starts_with(&*rule.prefix));
    let known = KNOWN.iter().find(|(prefix, ..)| text.starts_with(prefix));
    let sent = known.map_or(Sent::Maybe, |(.., sent)| *sent);
    let category = rule.map(|rule| rule.category);
    Meaning {
        category: category
            .or(known.map(|(_, category, _)| *category))
            .unwrap_or(Category::Unknown),
        sent,
    }
}

/// The sender's version does not fit.
pub fn version(ours: &str, theirs: &str) -> String {
    format!("SDK version incompatibility. Service version: {ours} . Sender version: {theirs}")
}

/// Nobody has that operation.
pub fn no_such_operation(operation: &str) -> String {
    format!("Tried to call non-existent operation {operation}")
}

/// The body is of another type than the operation takes.
pub fn content_type(operation: &str, got: &str, wanted: &str) -> String {
    format!(
        "For operation {operation}, request content type {got} differs from actual content type {wanted}"
    )
}

/// Nobody can do it now, and why.
pub fn unavailable(operation: &str, reason: &str) -> String {
    format!("Function '{operation}' is currently not available for use. {reason}")
}

/// Targets were asked, none acknowledged, and what they did is not known: another prefix than that of
/// [`unavailable`], which says that nothing ran.
pub fn unanswered(operation: &str, reason: &str) -> String {
    format!(
        "Service domain logic threw explicit exception:\nunavailable: nobody acknowledged {operation}. {reason}"
    )
}

/// It may have run, and must not run twice.
pub fn outcome_unknown(operation: &str, reason: &str) -> String {
    format!(
        "Service domain logic threw explicit exception:\noutcome_unknown: {operation} may have run ({reason}); it is not repeated, look whether it took effect before you call it again"
    )
}

/// The argument could not be read from its store.
pub const NO_DATA: &str = "Could not get data from data handler";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_the_sdk_has_its_meaning() {
        use Category::*;
        for (text, category, sent) in [
            (version("0.9.6", "0.8.0"), Persistent, Sent::YesUnprocessed),
            (no_such_operation("A.b"), Persistent, Sent::YesUnprocessed),
            (
                content_type("A.b", "x/y", JSON),
                Persistent,
                Sent::YesUnprocessed,
            ),
            (
                "Bad arguments to application:\n1 error".into(),
                Persistent,
                Sent::Maybe,
            ),
            (
                "Function 'A.b' is currently not available for use.".into(),
                Transient,
                Sent::YesUnprocessed,
            ),
            (
                unavailable("A.b", "no target"),
                Transient,
                Sent::YesUnprocessed,
            ),
            (NO_DATA.into(), Transient, Sent::YesUnprocessed),
            (
                "Could not send data to data handler".into(),
                Transient,
                Sent::Maybe,
            ),
            (
                "Service domain logic threw exception.".into(),
                Transient,
                Sent::Maybe,
            ),
            (outcome_unknown("A.b", "x"), Transient, Sent::Maybe),
            (unanswered("A.b", "x"), Transient, Sent::Maybe),
            ("something else".into(), Unknown, Sent::Maybe),
            (String::new(), Unknown, Sent::Maybe),
        ] {
            assert_eq!(meaning(&text, &[]), Meaning { category, sent }, "{text}");
        }
    }

    const JSON: &str = crate::envelope::JSON;

    #[test]
    fn configured_rules_come_first() {
        let rules = [ErrorRule {
            prefix: "Service domain logic threw explicit exception:\nno such sample".into(),
            category: Category::Persistent,
        }];
        let text = "Service domain logic threw explicit exception:\nno such sample: 7";
        assert!(meaning(text, &rules).is_callers_own());
        assert!(
            !meaning(
                "Service domain logic threw explicit exception:\nother",
                &rules
            )
            .is_callers_own()
        );
    }
}
