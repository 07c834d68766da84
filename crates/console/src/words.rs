//! Numbers, times and states, for people.

use moneta_control::leases::Standing;
use moneta_control::record::Status;
use serde_json::Value;

/// A number with its thousands apart.
pub(crate) fn whole(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// A number in the largest of thousands, millions and billions of which there is one.
pub(crate) fn short(number: f64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    match units.into_iter().find(|(unit, _)| number >= *unit) {
        Some((unit, name)) if number / unit >= 100.0 => format!("{:.0}{name}", number / unit),
        Some((unit, name)) => format!("{:.1}{name}", number / unit),
        None if number.fract() == 0.0 || number >= 100.0 => format!("{number:.0}"),
        None => format!("{number:.1}"),
    }
}

/// Bytes in the largest unit of which there is one.
pub(crate) fn bytes(number: f64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| number >= *unit as f64) {
        Some((unit, name)) => format!("{:.1} {name}", number / unit as f64),
        None => format!("{number:.0} B"),
    }
}

/// A share as percent.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 99.95 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}

/// Microseconds in a unit that fits.
pub(crate) fn micros(number: f64) -> String {
    match number {
        n if n >= 1e6 => format!("{:.1} s", n / 1e6),
        n if n >= 1e3 => format!("{:.1} ms", n / 1e3),
        n if n >= 10.0 => format!("{n:.0} µs"),
        n => format!("{n:.1} µs"),
    }
}

/// How long ago something was, in its largest unit.
pub(crate) fn ago(millis: u64) -> String {
    match millis / 1_000 {
        0..=1 => "now".into(),
        seconds @ 2..=119 => format!("{seconds} s ago"),
        seconds @ 120..=7_199 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..=172_799 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} d ago", seconds / 86_400),
    }
}

/// A time that is left, in its two largest units.
pub(crate) fn lasting(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min {} s", seconds / 60, seconds % 60),
        7_200..=172_799 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// A text, or its begin where it is longer.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most { text.to_owned() } else { text.chars().take(most).chain(['…']).collect() }
}

/// A number in an object, if it is there.
pub(crate) fn number(object: &Value, path: &[&str]) -> Option<f64> {
    path.iter().try_fold(object, |of, name| of.get(name))?.as_f64()
}

/// How it is with an instance or a slot, in one of the words that the style has colours for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    /// It serves.
    Good,
    /// It starts, or is taken out by an operator.
    Idle,
    /// It is suspect.
    Doubtful,
    /// It is down, away, or missing.
    Bad,
}

impl Health {
    /// Of what an instance is and how it stands.
    pub(crate) fn of(status: Option<Status>, standing: Option<Standing>) -> Self {
        match (standing, status) {
            (None | Some(Standing::Away), _) | (_, Some(Status::Down) | None) => Self::Bad,
            (Some(Standing::Suspect), _) => Self::Doubtful,
            (Some(Standing::Live), Some(Status::Up)) => Self::Good,
            (Some(Standing::Live), Some(Status::Starting | Status::OutOfService)) => Self::Idle,
        }
    }

    /// The class that gives its colour.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Idle => "idle",
            Self::Doubtful => "doubtful",
            Self::Bad => "bad",
        }
    }
}

/// A status and how its instance stands, in words.
pub(crate) fn stands(status: Option<Status>, standing: Option<Standing>) -> &'static str {
    match (standing, status) {
        (None, _) => "gone",
        (Some(Standing::Away), _) => "away",
        (Some(Standing::Suspect), _) => "suspect",
        (_, Some(Status::Up)) => "up",
        (_, Some(Status::Starting)) => "starting",
        (_, Some(Status::OutOfService)) => "out of service",
        (_, Some(Status::Down)) => "down",
        (_, None) => "unknown",
    }
}

/// The time at which a version was made, in milliseconds of Unix time: its upper 42 bits are milliseconds since 2020.
pub(crate) fn version_time(version: u64) -> u64 {
    const EPOCH_2020: u64 = 1_577_836_800_000;
    (version >> 22) + EPOCH_2020
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_for_people() {
        assert_eq!(
            [0, 999, 1_000, 18_000, 1_234_567].map(whole),
            ["0", "999", "1\u{202f}000", "18\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!(
            [0.0, 0.5, 7.0, 999.0, 1_000.0, 123_456.0, 2e9].map(short),
            ["0", "0.5", "7", "999", "1.0k", "123k", "2.0G"]
        );
        assert_eq!([0.0, 1023.0, 1536.0, (3u64 << 30) as f64].map(bytes), ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([0.0, 0.5, 0.9994, 1.0].map(percent), ["0 %", "50.0 %", "99.9 %", "100 %"]);
        assert_eq!([3.25, 48.0, 1500.0, 2e6].map(micros), ["3.2 µs", "48 µs", "1.5 ms", "2.0 s"]);
        assert_eq!(
            [900, 5_000, 300_000, 7_300_000, 400_000_000].map(ago),
            ["now", "5 s ago", "5 min ago", "2 h ago", "4 d ago"]
        );
        assert_eq!([7, 300, 7_260, 180_000].map(lasting), ["7 s", "5 min 0 s", "2 h 1 min", "2 d 2 h"]);
    }
}
