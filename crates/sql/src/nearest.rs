//! What a reader may have meant.

/// The candidate that is most like a name, if one is like it: at most a third of its letters differ.
pub(crate) fn nearest<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // Names of databases are short; a longer one is not worth the work.
    let wanted: Vec<char> = name.to_lowercase().chars().take(64).collect();
    candidates
        .into_iter()
        .map(|candidate| {
            let known: Vec<char> = candidate.to_lowercase().chars().take(64).collect();
            (distance(&wanted, &known), known.len(), candidate)
        })
        .filter(|(distance, length, _)| *distance <= wanted.len().max(*length).div_ceil(3))
        .min_by_key(|(distance, ..)| *distance)
        .map(|(_, _, candidate)| candidate)
}

/// Levenshtein's distance: insertions, deletions and replacements.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["customers", "orders", "id"];
        for (name, meant) in [
            ("order", Some("orders")),
            ("ORDERS", Some("orders")),
            ("custmoers", Some("customers")),
            ("di", None),
            ("invoice", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, known), meant, "{name}");
        }
    }
}
