//! Days and times of day as the protocol counts them.

pub(super) const MICROS_PER_DAY: i64 = 86_400_000_000;
pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;

/// Days since 1970-01-01 of a day that exists; `None`: there is no such day (`0000-00-00`, `2020-02-30`).
pub(super) fn days(year: u16, month: u8, day: u8) -> Option<i32> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        _ => return None,
    };
    if !(1..=last).contains(&day) {
        return None;
    }
    // Years that begin in March, so that the leap day is the last of its year.
    let year = i32::from(year) - i32::from(month <= 2);
    let month_from_march = (i32::from(month) + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + i32::from(day) - 1;
    let day_of_era = year.rem_euclid(400) * 365 + year.rem_euclid(400) / 4
        - year.rem_euclid(400) / 100
        + day_of_year;
    Some(year.div_euclid(400) * 146_097 + day_of_era - 719_468)
}

/// Year, month and day; `None`: not in the years from 0 to 9999.
pub(super) fn civil(days: i32) -> Option<(u16, u8, u8)> {
    let shifted = i64::from(days) + 719_468;
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + shifted.div_euclid(146_097) * 400 + i64::from(month <= 2);
    let year = u16::try_from(year).ok().filter(|year| *year <= 9999)?;
    Some((year, u8::try_from(month).ok()?, u8::try_from(day).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_dates_are_each_others_inverse() {
        for day in -719_528..=2_932_896 {
            let (year, month, of_month) = civil(day).unwrap();
            assert_eq!(days(year, month, of_month), Some(day));
        }
        assert_eq!(civil(-719_529), None);
        assert_eq!(civil(2_932_897), None);
        assert_eq!(days(1970, 1, 1), Some(0));
        assert_eq!(civil(0), Some((1970, 1, 1)));
    }

    #[test]
    fn days_that_do_not_exist_have_no_number() {
        for (year, month, day) in [
            (0, 0, 0),
            (2021, 2, 29),
            (1900, 2, 29),
            (2020, 4, 31),
            (2020, 1, 0),
        ] {
            assert_eq!(days(year, month, day), None);
        }
        assert!(days(2000, 2, 29).is_some());
    }
}
