//! Card numbers and US social security numbers: groups of digits that pass a test.

use std::ops::Range;

/// The lengths of card numbers.
const CARD: std::ops::RangeInclusive<usize> = 13..=19;

/// Where such numbers are, except within hexadecimal ids.
pub(super) fn secrets(text: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    for run in runs(text) {
        let mut first = 0;
        while first < run.len() {
            match number_at(text, &run[first..]) {
                Some(groups) => {
                    found.push(run[first].start..run[first + groups - 1].end);
                    first += groups;
                }
                None => first += 1,
            }
        }
    }
    found
}

/// Runs of groups of digits, the groups one blank, dash or dot apart.
fn runs(text: &str) -> Vec<Vec<Range<usize>>> {
    let bytes = text.as_bytes();
    let mut runs: Vec<Vec<Range<usize>>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let start = at;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            at += 1;
        }
        if is_in_hexadecimal(bytes, start, at) {
            continue;
        }
        let group = start..at;
        match runs.last_mut() {
            Some(run) if follows(bytes, run, start) => run.push(group),
            _ => runs.push(vec![group]),
        }
    }
    runs
}

/// Whether the word around these digits is a hexadecimal number with a letter in it.
fn is_in_hexadecimal(bytes: &[u8], start: usize, end: usize) -> bool {
    let is_word = |byte: &&u8| byte.is_ascii_alphanumeric();
    let before = bytes[..start].iter().rev().take_while(is_word);
    let after = bytes[end..].iter().take_while(is_word);
    let mut around = before.chain(after);
    let (mut letters, mut all) = (false, true);
    for byte in &mut around {
        letters |= byte.is_ascii_alphabetic();
        all &= byte.is_ascii_hexdigit();
    }
    letters && all
}

fn follows(bytes: &[u8], run: &[Range<usize>], start: usize) -> bool {
    run.last()
        .is_some_and(|last| last.end + 1 == start && matches!(bytes[last.end], b' ' | b'-' | b'.'))
}

/// How many of the groups, from the first on, are a number to be masked; the longest wins.
fn number_at(text: &str, groups: &[Range<usize>]) -> Option<usize> {
    let mut digits: Vec<u8> = Vec::new();
    let mut found = None;
    for (index, group) in groups.iter().enumerate() {
        digits.extend(text[group.clone()].bytes().map(|byte| byte - b'0'));
        if digits.len() > *CARD.end() {
            break;
        }
        if is_card(&digits) || is_social_security(&groups[..=index], &digits) {
            found = Some(index + 1);
        }
    }
    found
}

/// By length, the issuers' first digits (which leave dates of this century out) and check digit: the
/// formula of Luhn, ISO/IEC 7812-1.
fn is_card(digits: &[u8]) -> bool {
    if !CARD.contains(&digits.len()) {
        return false;
    }
    let issuer = digits[..4]
        .iter()
        .fold(0, |sum, d| sum * 10 + u32::from(*d));
    if !matches!(issuer, 2221..=2720 | 3000..=6999) {
        return false;
    }
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(index, digit)| match (index % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit) => digit * 2 / 10 + digit * 2 % 10,
        })
        .sum();
    sum.is_multiple_of(10)
}

/// 3-2-4 digits, without the areas and numbers that are never given out.
fn is_social_security(groups: &[Range<usize>], digits: &[u8]) -> bool {
    let lengths = groups.iter().map(Range::len);
    lengths.eq([3, 2, 4])
        && !matches!(digits[..3], [0, 0, 0] | [6, 6, 6] | [9, ..])
        && digits[3..5] != [0, 0]
        && digits[5..] != [0, 0, 0, 0]
}
