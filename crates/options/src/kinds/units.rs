//! Numbers with units: sizes, times and shares as an operator writes them.

use std::fmt;
use std::time::Duration;

/// One KiB in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;
/// One TiB in bytes.
pub const TIB: u64 = 1 << 40;

/// Shows a number of bytes in the largest unit that divides it.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

/// Shows a time in the largest unit that divides it, down to milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Time(pub Duration);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_in_units(f, self.0, &[(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")], "B")
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.subsec_millis() {
            0 => write_in_units(f, self.0.as_secs(), &[(86_400, "d"), (3_600, "h"), (60, "m")], "s"),
            _ => write!(f, "{}ms", self.0.as_millis()),
        }
    }
}

/// Writes `amount` in the largest unit that divides it.
fn write_in_units(f: &mut fmt::Formatter<'_>, amount: u64, units: &[(u64, &str)], base: &str) -> fmt::Result {
    match units.iter().find(|(unit, _)| amount != 0 && amount.is_multiple_of(*unit)) {
        Some((unit, name)) => write!(f, "{}{name}", amount / unit),
        None => write!(f, "{amount}{base}"),
    }
}

/// Splits `text` into its leading digits, as a number, and the rest.
fn number_and_suffix(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    Some((number.parse().ok()?, suffix.trim_start()))
}

/// Reads a size; a number without a suffix counts in `unit` bytes. Suffixes count in powers of 1024, as memcached's do. `MB` and
/// `GB` are refused: some read them as powers of 1000.
pub fn size(text: &str, unit: u64) -> Option<u64> {
    let (number, suffix) = number_and_suffix(text)?;
    let factor = match suffix.to_ascii_lowercase().as_str() {
        "" => unit,
        "b" => 1,
        "k" | "kib" => KIB,
        "m" | "mib" => MIB,
        "g" | "gib" => GIB,
        "t" | "tib" => TIB,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads a time in whole seconds; a number without a suffix counts in seconds.
pub fn seconds(text: &str) -> Option<u64> {
    let (number, suffix) = number_and_suffix(text)?;
    let factor = match suffix {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(factor)
}

/// Reads a time in milliseconds; a number without a suffix counts in seconds.
pub fn milliseconds(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(number) => number.trim_end().parse().ok(),
        None => seconds(text)?.checked_mul(1_000),
    }
}

/// Reads a share: a whole number with or without its sign, up to 100.
pub fn percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|share| digits_only && *share <= 100)
}
