//! Times as people write them, and as they are shown.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A text that is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no time: one is written as 2026-03-01T12:00:00Z, as Unix seconds, or as how long ago: 90m, 2h, 3days")]
pub struct NoTime;

/// Unix seconds above this are milliseconds: the year 5138.
const SECONDS_MAX: u64 = 100_000_000_000;

/// Reads a time: in UTC, as a number of Unix seconds or milliseconds, or as how long before `now` it is. All in milliseconds of Unix
/// time.
///
/// # Errors
/// [`NoTime`] if it is none of these.
pub fn read(text: &str, now: u64) -> Result<u64, NoTime> {
    let text = text.trim();
    if let Ok(number) = text.parse::<u64>() {
        return Ok(if number < SECONDS_MAX { number * 1_000 } else { number });
    }
    let ago = text.strip_suffix("ago").unwrap_or(text).trim().trim_start_matches('-');
    if let Ok(ago) = humantime::parse_duration(ago) {
        return Ok(now.saturating_sub(u64::try_from(ago.as_millis()).unwrap_or(u64::MAX)));
    }
    // What a browser's field for a time gives has no seconds.
    let whole = if text.len() == "2026-03-01T12:00".len() { format!("{text}:00") } else { text.to_owned() };
    let time = humantime::parse_rfc3339_weak(&whole).map_err(|_| NoTime)?;
    let since = time.duration_since(UNIX_EPOCH).map_err(|_| NoTime)?;
    u64::try_from(since.as_millis()).map_err(|_| NoTime)
}

/// A time, in UTC to the second.
pub fn show(unix_ms: u64) -> String {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(unix_ms / 1_000)).unwrap_or(SystemTime::UNIX_EPOCH);
    // Beyond the year 9999 there is no such text.
    match unix_ms / 1_000 {
        0..=253_402_300_799 => humantime::format_rfc3339_seconds(time).to_string(),
        seconds => format!("Unix second {seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_read_as_it_is_written() {
        let now = 1_800_000_000_000;
        for (text, time) in [
            ("1799999990", now - 10_000),
            ("1799999990500", now - 9_500),
            ("10s", now - 10_000),
            ("-2h", now - 7_200_000),
            ("1h 30m ago", now - 5_400_000),
            ("2027-01-15T08:00:00Z", now),
            ("2027-01-15 08:00:00", now),
            ("2027-01-15T08:00", now),
        ] {
            assert_eq!(read(text, now), Ok(time), "{text}");
        }
        for text in ["", "noon", "2027-13-01T00:00:00Z", "-", "1800000000000x"] {
            assert_eq!(read(text, now), Err(NoTime), "{text}");
        }
        assert_eq!(show(now + 999), "2027-01-15T08:00:00Z");
        assert_eq!(show(u64::MAX), "Unix second 18446744073709551");
    }
}
