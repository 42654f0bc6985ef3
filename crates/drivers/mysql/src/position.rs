//! How far a server has come, as one number that grows with every transaction.
//!
//! MariaDB numbers the transactions of a domain one after the other, whichever server writes them:
//! `domain-server-number`. MySQL names sets: `uuid:1-5:7`, and how many a set holds is the number.

/// The number of a domain's last transaction in `0-1-100,5-1-7`. With one domain alone it is that one,
/// else the domain named.
pub(crate) fn mariadb(text: &str, domain: u32) -> Option<u64> {
    let parts = text.split(',').filter_map(|gtid| {
        let mut parts = gtid.trim().split('-');
        let domain: u32 = parts.next()?.parse().ok()?;
        let number: u64 = parts.nth(1)?.parse().ok()?;
        Some((domain, number))
    });
    let found: Vec<(u32, u64)> = parts.collect();
    match found.as_slice() {
        [(_, number)] => Some(*number),
        many => many
            .iter()
            .find(|(its, _)| *its == domain)
            .map(|(_, number)| *number),
    }
}

/// How many transactions a set holds; `None`: none, or it is no set.
pub(crate) fn mysql(text: &str) -> Option<u64> {
    let mut count = 0_u64;
    for part in text.split(',') {
        for range in part.trim().split(':').skip(1) {
            // A tag stands between, in MySQL 8.3 and later.
            if range.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                continue;
            }
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let (from, to): (u64, u64) = (from.parse().ok()?, to.parse().ok()?);
            count = count.checked_add(to.checked_sub(from)?.checked_add(1)?)?;
        }
    }
    (count > 0).then_some(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_the_only_or_the_named_domain_counts() {
        assert_eq!(mariadb("0-1-100", 0), Some(100));
        assert_eq!(mariadb("5-2-7", 0), Some(7), "the only one");
        assert_eq!(mariadb("0-1-100,5-2-7", 5), Some(7));
        assert_eq!(mariadb("1-1-100,5-2-7", 0), None);
        assert_eq!(mariadb("", 0), None);
        assert_eq!(mariadb("nonsense", 0), None);
    }

    #[test]
    fn a_set_is_as_large_as_its_ranges_together() {
        let uuid = "3E11FA47-71CA-11E1-9E33-C80AA9429562";
        assert_eq!(mysql(&format!("{uuid}:1-5")), Some(5));
        assert_eq!(mysql(&format!("{uuid}:1-5:7:9-10,\n{uuid}:1")), Some(9));
        assert_eq!(mysql(&format!("{uuid}:1-5:tag:1-2")), Some(7));
        assert_eq!(mysql(""), None);
        assert_eq!(mysql(&format!("{uuid}:5-1")), None);
    }
}
