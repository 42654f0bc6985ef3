//! Numbers that mean what is written. A reader of JSON takes the nearest double for a number with more
//! digits than one carries, without a word, and so would write another value than the one that was sent.

/// A number that the reader would change.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Inexact<'a> {
    pub(super) number: &'a str,
    /// Where it begins, in bytes.
    pub(super) at: usize,
}

/// Finds the first number of a well-formed text of JSON that is neither an integer of 64 bits nor exactly
/// what a double shows.
pub(super) fn inexact(text: &str) -> Option<Inexact<'_>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        at = match byte {
            b'"' => end_of_string(bytes, at),
            b'-' | b'0'..=b'9' => {
                let end = end_of_number(bytes, at);
                let number = &text[at..end];
                if !is_exact(number) {
                    return Some(Inexact { number, at });
                }
                end
            }
            _ => at + 1,
        };
    }
    None
}

fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn end_of_number(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.iter().skip(start);
    let length = rest.take_while(|byte| {
        byte.is_ascii_digit() || matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E')
    });
    start + length.count()
}

/// Every number of so many digits, without an exponent, is shown by the double nearest to it.
const DIGITS: usize = 15;

fn is_exact(number: &str) -> bool {
    let is_whole = |number: &str| number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok();
    let has_exponent = number.contains(['e', 'E']);
    if (number.len() <= DIGITS && !has_exponent) || is_whole(number) {
        return true;
    }
    match number.parse::<f64>() {
        Ok(double) => normal(&format!("{double:e}")) == normal(number),
        Err(_) => false,
    }
}

/// The digits without zeros at both ends, and the power of ten of the first one; `None` for zero.
fn normal(number: &str) -> Option<(String, i64)> {
    let unsigned = number.strip_prefix('-').unwrap_or(number);
    let (digits, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    // An exponent beyond all bounds belongs to zero or to nothing.
    let exponent: i64 = exponent.parse().unwrap_or(i64::MIN / 2);
    let all = format!("{whole}{part}");
    let leading = all.len() - all.trim_start_matches('0').len();
    let digits = all.trim_matches('0');
    let lead = i64::try_from(whole.len()).ok()? - i64::try_from(leading).ok()?;
    (!digits.is_empty()).then(|| (digits.to_owned(), exponent.saturating_add(lead)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_or_found() {
        for number in [
            "0",
            "-0.0",
            "0.1",
            "0.30000000000000004",
            "-9223372036854775808",
            "18446744073709551615",
            "1.7976931348623157e308",
            "5e-324",
            "100000000000000000000000000000",
            "1.50000000000000000000",
            "0.00000000000000000000000000000000000001",
            "123456789012345000000000",
            "0.000000000000000000000000000000",
        ] {
            assert_eq!(inexact(number), None, "{number}");
        }
        for number in [
            "18446744073709551616",
            "-9223372036854775809",
            "123456789012345678901234567890",
            // Too large, too small, and between two of the smallest.
            "1e400000",
            "1e-400",
            "-1E-400",
            "3e-324",
            "1e99999999999999999999",
            "0.1000000000000000055511151231257827",
            "1.00000000000000000001",
            "12345678901234567.5",
        ] {
            let text = format!("{{\"a\": [\"{number}\\\"{number}\", {number}]}}");
            let at = text.rfind(number).unwrap();
            assert_eq!(inexact(&text), Some(Inexact { number, at }), "{number}");
        }
    }

    #[test]
    fn a_text_that_is_cut_ends_the_search() {
        for text in ["", "\"", "\"a\\", "[1", "{\"1234567890123456789012"] {
            assert_eq!(inexact(text), None, "{text}");
        }
    }
}
