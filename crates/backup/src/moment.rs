//! Moments: now, and as people write them.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY: u64 = 86_400;
/// Days from 0000-03-01 to 1970-01-01.
const TO_EPOCH: u64 = 719_468;
/// A number from which on it counts milliseconds: as seconds it is in the year 5138.
const MILLIS_FROM: u64 = 100_000_000_000;

/// Milliseconds since the Unix epoch.
pub fn millis() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_millis()).unwrap_or(u64::MAX)
}

/// The second of a moment in milliseconds.
pub(crate) fn second(millis: u64) -> u32 {
    u32::try_from(millis / 1000).unwrap_or(u32::MAX)
}

/// A moment in Unix milliseconds as RFC 3339 has it, in UTC: `2026-01-31T12:00:00.123Z`.
pub fn text(millis: u64) -> String {
    let (seconds, millis) = (millis / 1000, millis % 1000);
    // By Howard Hinnant's `civil_from_days`: years begin in March, so that the day that some have more is their last.
    let day = seconds / DAY + TO_EPOCH;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let (hour, minute, second) = (seconds % DAY / 3600, seconds % 3600 / 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// A moment in Unix milliseconds: `now`, RFC 3339 in UTC (`2026-01-31T12:00:00Z`, `2026-01-31 12:00`), `2h ago` with s, m, h or
/// d, or a number of seconds or milliseconds since 1970.
pub fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    if text == "now" {
        return Some(millis());
    }
    if let Some(ago) = text.strip_suffix("ago") {
        let ago = ago.trim();
        let split = ago.len().checked_sub(1).filter(|at| ago.is_char_boundary(*at))?;
        let unit = match &ago[split..] {
            "s" => 1,
            "m" => 60,
            "h" => 3600,
            "d" => DAY,
            _ => return None,
        };
        let seconds = ago[..split].trim().parse::<u64>().ok()?.checked_mul(unit)?;
        return millis().checked_sub(seconds.checked_mul(1000)?);
    }
    if let Ok(number) = text.parse::<u64>() {
        return if number < MILLIS_FROM { number.checked_mul(1000) } else { Some(number) };
    }
    of_calendar(text)
}

fn of_calendar(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut date = date.split('-').map(|part| part.parse::<u64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let time = time.strip_suffix(['Z', 'z']).unwrap_or(time);
    let (time, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut time = time.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next().unwrap_or(Some(0))?);
    let is_right = date.next().is_none() && time.next().is_none() && (1970..10_000).contains(&year);
    let digits = fraction.get(..fraction.len().min(3))?;
    let fraction = if digits.is_empty() { 0 } else { format!("{digits:0<3}").parse::<u64>().ok()? };
    if !is_right || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let year = if month <= 2 { year - 1 } else { year };
    let march_month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * march_month + 2) / 5 + day - 1;
    let (era, year_of_era) = (year / 400, year % 400);
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    let days = (era * 146_097 + of_era).checked_sub(TO_EPOCH)?;
    Some(((days * DAY) + hour * 3600 + minute * 60 + second) * 1000 + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_reads_as_it_is_written() {
        for seconds in [0, 951_782_399, 951_782_400, 951_868_800, 1_709_251_199, 4_107_542_400, 1_767_225_599] {
            let millis = seconds * 1000 + 7;
            assert_eq!(parse(&text(millis)), Some(millis), "{}", text(millis));
        }
        assert_eq!(text(951_782_400_000), "2000-02-29T00:00:00.000Z");
    }

    #[test]
    fn people_write_moments_in_several_ways() {
        assert_eq!(parse("2000-02-29 00:00"), Some(951_782_400_000));
        assert_eq!(parse("951782400"), Some(951_782_400_000));
        assert_eq!(parse("951782400001"), Some(951_782_400_001));
        let hour_ago = parse("1h ago").expect("it is one");
        assert!((millis() - hour_ago).abs_diff(3_600_000) < 60_000);
        for wrong in
            ["", "yesterday", "2026-13-01T00:00:00Z", "2026-01-31", "5x ago", "2026-01-31T12:00:00+02:00", "-1"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
