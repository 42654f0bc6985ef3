//! `numeric`: digits in base 10000 with a weight and a display scale.

use std::fmt::Write as _;

use mainstay_sql::Decimal;

use super::Garbled;

const POSITIVE: u16 = 0x0000;
const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const NEGATIVE_INFINITY: u16 = 0xF000;

/// The exact number with all the digits of its scale.
pub(super) fn decode(raw: &[u8]) -> Result<Decimal, Garbled> {
    let (words, odd) = raw.as_chunks::<2>();
    let words: Vec<u16> = words.iter().map(|w| u16::from_be_bytes(*w)).collect();
    let [count, weight, sign, scale, digits @ ..] = words.as_slice() else {
        return Err(Garbled);
    };
    if !odd.is_empty() || digits.len() != usize::from(*count) || digits.iter().any(|d| *d > 9999) {
        return Err(Garbled);
    }
    let text = match *sign {
        NAN => "NaN".to_owned(),
        INFINITY => "Infinity".to_owned(),
        NEGATIVE_INFINITY => "-Infinity".to_owned(),
        POSITIVE => number(digits, *weight as i16, usize::from(*scale), ""),
        NEGATIVE => number(digits, *weight as i16, usize::from(*scale), "-"),
        _ => return Err(Garbled),
    };
    Decimal::parse(&text).ok_or(Garbled)
}

/// `weight` is the power of 10000 of the first digit.
fn number(digits: &[u16], weight: i16, scale: usize, sign: &str) -> String {
    let digit = |power: i32| -> u16 {
        let index = i32::from(weight) - power;
        usize::try_from(index)
            .ok()
            .and_then(|i| digits.get(i))
            .copied()
            .unwrap_or(0)
    };
    let mut text = String::from(sign);
    let first = i32::from(weight).max(0);
    // Writing to a String cannot fail.
    let _ = write!(text, "{}", digit(first));
    for power in (0..first).rev() {
        let _ = write!(text, "{:04}", digit(power));
    }
    if scale > 0 {
        text.push('.');
        let fraction = text.len();
        for power in 1..=(scale.div_ceil(4) as i32) {
            let _ = write!(text, "{:04}", digit(-power));
        }
        text.truncate(fraction + scale);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(words: &[u16]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_be_bytes()).collect()
    }

    #[test]
    fn numbers_keep_every_digit_and_their_scale() {
        let table: [(&[u16], &str); 9] = [
            (&[0, 0, 0, 0], "0"),
            (&[0, 0, 0, 3], "0.000"),
            (&[1, 0, 0, 0, 7], "7"),
            (&[1, 1, 0, 0, 1], "10000"),
            (&[2, 0, 0x4000, 2, 12, 3400], "-12.34"),
            (&[1, 0xFFFF, 0, 5, 1], "0.00010"),
            (&[1, 0xFFFE, 0, 8, 5000], "0.00005000"),
            (&[0, 0, 0xC000, 0], "NaN"),
            (&[0, 0, 0xF000, 0], "-Infinity"),
        ];
        for (words, expected) in table {
            assert_eq!(decode(&raw(words)).unwrap().as_str(), expected);
        }
    }

    #[test]
    fn garbled_numbers_are_refused() {
        for words in [
            &[1, 0, 0, 0][..],
            &[0, 0, 1, 0],
            &[1, 0, 0, 0, 10_000],
            &[0],
        ] {
            assert_eq!(decode(&raw(words)), Err(Garbled));
        }
        assert_eq!(decode(&[0; 9]), Err(Garbled));
    }
}
