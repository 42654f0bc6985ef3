//! "Did you mean": the known word nearest to an unknown one.

/// Likeness from 0 to 1 below which a suggestion would only confuse.
const LIKENESS_MIN: f64 = 0.7;

/// Longer words are not compared: nobody mistypes a key of three characters into a hundred.
const LENGTH_MAX: usize = 64;

/// The known word that was probably meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LENGTH_MAX {
        return None;
    }
    let word = word.to_lowercase().replace('-', "_");
    known
        .into_iter()
        .map(|candidate| (likeness(&word, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= LIKENESS_MIN)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// Edit distance as a share of the length; words that swap their parts (`max_attempts`) are alike.
fn likeness(word: &str, candidate: &str) -> f64 {
    let sorted = |text: &str| {
        let mut parts: Vec<&str> = text.split('_').collect();
        parts.sort_unstable();
        parts.join("_")
    };
    let direct = strsim::normalized_damerau_levenshtein(word, candidate);
    let swapped = strsim::normalized_damerau_levenshtein(&sorted(word), &sorted(candidate));
    direct.max(swapped * 0.95)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_finds_the_word_and_nonsense_finds_none() {
        let known = ["attempts_max", "delay", "delay_max", "listen", "host"];
        for (word, meant) in [
            ("atempts_max", Some("attempts_max")),
            ("max_attempts", Some("attempts_max")),
            ("Listen", Some("listen")),
            ("lsiten", Some("listen")),
            ("delay-max", Some("delay_max")),
            ("hots", Some("host")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
        assert_eq!(nearest(&"x".repeat(10_000), known), None);
    }
}
