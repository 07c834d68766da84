//! Kinds whose values are numbers, sizes, times, shares, and what is written like them.

use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use crate::kinds::units::{Bytes, MIB, Time, milliseconds, percent, seconds, size};
use crate::kinds::{Form, Kind};

/// On or off.
pub struct Switch;

/// A whole number, both ends included.
pub struct Number<T> {
    /// Least.
    pub min: T,
    /// Greatest.
    pub max: T,
}

/// How often a flag is repeated, from 0 to `max`.
pub struct Count {
    /// Greatest.
    pub max: u8,
}

/// A number of bytes, both ends included.
pub struct Size<T> {
    unit: u64,
    min: u64,
    max: u64,
    value: PhantomData<fn() -> T>,
}

/// A time in whole seconds, both ends included.
pub struct Seconds {
    /// Least.
    pub min: u64,
    /// Greatest.
    pub max: u64,
}

/// A time down to milliseconds, both ends included.
pub struct Milliseconds {
    /// Least, milliseconds.
    pub min: u64,
    /// Greatest, milliseconds.
    pub max: u64,
}

/// A share in percent, from 0 to `max`.
pub struct Share {
    /// Greatest.
    pub max: u8,
}

/// File permissions in octal.
pub struct Mode;

/// A TCP port; may be left out.
pub struct OptionalPort;

impl Kind for Switch {
    type Value = bool;

    fn read(&self, text: &str) -> Option<bool> {
        match text {
            "true" | "1" | "yes" | "on" => Some(true),
            "false" | "0" | "no" | "off" => Some(false),
            _ => None,
        }
    }

    fn write(&self, on: &bool) -> String {
        on.to_string()
    }

    fn range(&self) -> String {
        "true or false".into()
    }

    fn placeholder(&self) -> String {
        "BOOL".into()
    }

    fn form(&self) -> Form {
        Form::Switch
    }

    fn is_bare(&self) -> bool {
        true
    }

    fn is_obvious(&self) -> bool {
        true
    }
}

impl<T: Copy + PartialOrd + FromStr + Display + Sync + 'static> Kind for Number<T> {
    type Value = T;

    fn read(&self, text: &str) -> Option<T> {
        text.parse().ok().filter(|number| (self.min..=self.max).contains(number))
    }

    fn write(&self, number: &T) -> String {
        number.to_string()
    }

    fn range(&self) -> String {
        format!("a whole number from {} to {}", self.min, self.max)
    }

    fn placeholder(&self) -> String {
        "N".into()
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl Kind for Count {
    type Value = u32;

    fn read(&self, text: &str) -> Option<u32> {
        text.parse().ok().filter(|number| *number <= u32::from(self.max))
    }

    fn write(&self, number: &u32) -> String {
        number.to_string()
    }

    fn range(&self) -> String {
        format!("a whole number from 0 to {}", self.max)
    }

    fn placeholder(&self) -> String {
        "N".into()
    }

    fn form(&self) -> Form {
        Form::Count { max: self.max }
    }

    fn is_bare(&self) -> bool {
        true
    }
}

impl<T> Size<T> {
    /// From `min` to `max` bytes, where a number without a suffix counts bytes.
    pub const fn in_bytes(min: u64, max: u64) -> Self {
        Self { unit: 1, min, max, value: PhantomData }
    }

    /// From `min` to `max` bytes, where a number without a suffix counts MiB.
    pub const fn in_mebibytes(min: u64, max: u64) -> Self {
        Self { unit: MIB, min, max, value: PhantomData }
    }
}

impl<T: Copy + PartialEq + TryFrom<u64> + TryInto<u64> + 'static> Kind for Size<T> {
    type Value = T;

    fn read(&self, text: &str) -> Option<T> {
        size(text, self.unit).filter(|bytes| (self.min..=self.max).contains(bytes))?.try_into().ok()
    }

    fn write(&self, bytes: &T) -> String {
        Bytes((*bytes).try_into().unwrap_or(u64::MAX)).to_string()
    }

    fn range(&self) -> String {
        format!(
            "a size from {} to {}: a whole number of {}, or one with a suffix k, m, g or t (KiB, MiB, GiB, TiB)",
            Bytes(self.min),
            Bytes(self.max),
            if self.unit == MIB { "MiB" } else { "bytes" },
        )
    }

    fn placeholder(&self) -> String {
        "SIZE".into()
    }
}

impl Kind for Seconds {
    type Value = Duration;

    fn read(&self, text: &str) -> Option<Duration> {
        seconds(text).filter(|time| (self.min..=self.max).contains(time)).map(Duration::from_secs)
    }

    fn write(&self, time: &Duration) -> String {
        Time(*time).to_string()
    }

    fn range(&self) -> String {
        format!(
            "a time from {} to {}: a whole number of seconds, or one with a suffix s, m, h or d",
            Time(Duration::from_secs(self.min)),
            Time(Duration::from_secs(self.max)),
        )
    }

    fn placeholder(&self) -> String {
        "SECONDS".into()
    }
}

impl Kind for Milliseconds {
    type Value = Duration;

    fn read(&self, text: &str) -> Option<Duration> {
        milliseconds(text).filter(|time| (self.min..=self.max).contains(time)).map(Duration::from_millis)
    }

    fn write(&self, time: &Duration) -> String {
        Time(*time).to_string()
    }

    fn range(&self) -> String {
        format!(
            "a time from {} to {}: a whole number of seconds, or one with a suffix ms, s, m, h or d",
            Time(Duration::from_millis(self.min)),
            Time(Duration::from_millis(self.max)),
        )
    }

    fn placeholder(&self) -> String {
        "TIME".into()
    }
}

impl Kind for Share {
    type Value = u8;

    fn read(&self, text: &str) -> Option<u8> {
        percent(text).filter(|share| *share <= self.max)
    }

    fn write(&self, share: &u8) -> String {
        format!("{share}%")
    }

    fn range(&self) -> String {
        format!("a share from 0% to {}%", self.max)
    }

    fn placeholder(&self) -> String {
        "PERCENT".into()
    }
}

impl Kind for Mode {
    type Value = u32;

    fn read(&self, text: &str) -> Option<u32> {
        let digits = text.strip_prefix("0o").unwrap_or(text);
        u32::from_str_radix(digits, 8).ok().filter(|mode| *mode <= 0o777)
    }

    fn write(&self, mode: &u32) -> String {
        format!("{mode:o}")
    }

    fn range(&self) -> String {
        "file permissions in octal, from 0 to 777".into()
    }

    fn placeholder(&self) -> String {
        "OCTAL".into()
    }
}

impl Kind for OptionalPort {
    type Value = Option<u16>;

    fn read(&self, text: &str) -> Option<Option<u16>> {
        if text.is_empty() { Some(None) } else { text.parse().ok().map(Some) }
    }

    fn write(&self, port: &Option<u16>) -> String {
        port.map_or_else(String::new, |port| port.to_string())
    }

    fn range(&self) -> String {
        "a port from 0 to 65535, or nothing".into()
    }

    fn placeholder(&self) -> String {
        "PORT".into()
    }

    fn is_bare(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::units::{GIB, KIB, TIB};

    const MEMORY: Size<u64> = Size::in_mebibytes(8 * MIB, 16 * TIB);
    const ITEM: Size<usize> = Size::in_bytes(KIB, GIB);
    const TIMEOUT: Seconds = Seconds { min: 0, max: 86_400 };

    #[test]
    fn a_bare_number_counts_in_the_options_own_unit() {
        assert_eq!(MEMORY.read("64"), Some(64 * MIB));
        assert_eq!(ITEM.read("2048"), Some(2048));
    }

    #[test]
    fn suffixes_are_powers_of_1024_in_either_case() {
        for text in ["4g", "4G", "4GiB", "4 GiB", "4096m", "4194304k"] {
            assert_eq!(MEMORY.read(text), Some(4 * GIB), "{text}");
        }
    }

    #[test]
    fn ambiguous_negative_fractional_and_overflowing_sizes_are_refused() {
        for text in ["4GB", "-4", "1.5g", "", "g", "0x10", "99999999999999999999", "18446744073709551615t", "7", "17t"]
        {
            assert_eq!(MEMORY.read(text), None, "{text}");
        }
    }

    #[test]
    fn a_size_that_its_type_cannot_hold_is_refused() {
        let narrow = Size::<u32>::in_bytes(0, 16 * TIB);
        assert_eq!(narrow.read("1g"), Some(1 << 30));
        assert_eq!(narrow.read("4g"), None);
    }

    #[test]
    fn seconds_take_suffixes_and_keep_their_range() {
        assert_eq!(TIMEOUT.read("90"), Some(Duration::from_secs(90)));
        assert_eq!(TIMEOUT.read("2m"), Some(Duration::from_secs(120)));
        assert_eq!(TIMEOUT.read("25h"), None);
        assert_eq!(TIMEOUT.read("2 minutes"), None);
    }

    #[test]
    fn times_may_be_as_short_as_milliseconds() {
        let kind = Milliseconds { min: 10, max: 60_000 };
        for (text, written) in [("100ms", "100ms"), ("1", "1s"), ("1500 ms", "1500ms"), ("1m", "1m"), ("60000ms", "1m")]
        {
            assert_eq!(kind.read(text).map(|time| kind.write(&time)).as_deref(), Some(written), "{text}");
        }
        for text in ["9ms", "0", "61s", "-1ms", "1.5s", "ms", ""] {
            assert_eq!(kind.read(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_whole_percents() {
        let kind = Share { max: 90 };
        assert_eq!(kind.read("5"), Some(5));
        assert_eq!(kind.read("90%"), Some(90));
        for text in ["91", "101%", "-1", "+1", "0.5", "%", ""] {
            assert_eq!(kind.read(text), None, "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(Mode.read("0700"), Some(0o700));
        assert_eq!(Mode.read("770"), Some(0o770));
        for text in ["1777", "rwx", "789"] {
            assert_eq!(Mode.read(text), None, "{text}");
        }
    }
}
