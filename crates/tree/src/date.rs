//! The calendar.

/// Year, month and day in the Gregorian calendar of a day number; day 0 is 1970-01-01.
///
/// Years begin in March, so that the leap day is the last day; then months begin on day (153 m + 2)
/// / 5.
pub fn date(days: i64) -> (i64, i64, i64) {
    const ERA_DAYS: i64 = 146_097; // 400 years
    let days = days + 719_468; // day 0 is 0000-03-01
    let (era, day) = (days.div_euclid(ERA_DAYS), days.rem_euclid(ERA_DAYS));
    let year = (day - day / 1460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (era * 400 + year + next_year, month, day)
}

/// The days from 1970-01-01 to a day of the years 0 to 9999. `None` if there is no such day.
pub fn days(year: i64, month: i64, day: i64) -> Option<i64> {
    /// Days before each month of a year that is not a leap year.
    const DAYS_BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let index = usize::try_from(month - 1).ok()?;
    let before = *DAYS_BEFORE.get(index)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let leap_days = |years: i64| years / 4 - years / 100 + years / 400;
    let past = if year == 0 { -1 } else { leap_days(year - 1) };
    let leap_day = i64::from(is_leap && month > 2);
    // 719,162 days are before 1970, counted from the first day of the year 1.
    let days = (year - 1) * 365 + past + before + leap_day + day - 1 - 719_162;
    // The reverse tells whether the month has that many days.
    (date(days) == (year, month, day)).then_some(days)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_and_centuries() {
        for (days, expected) in [
            (-719_468, (0, 3, 1)),
            (-1, (1969, 12, 31)),
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (47_540, (2100, 2, 28)),
            (47_541, (2100, 3, 1)),
        ] {
            assert_eq!(date(days), expected);
            assert_eq!(super::days(expected.0, expected.1, expected.2), Some(days));
        }
    }
}
