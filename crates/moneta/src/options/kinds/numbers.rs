//! Values of options: what kinds there are, what each accepts, and how each is written back.
//!
//! Every source (flag, environment, file, default) gives text, and this is the only place that reads it. Whatever is
//! written here by [`Value`]'s `Display` is read back as the same value.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use moneta_flash::DeviceConfig;
use moneta_server::config::Commands;
use moneta_store::Promotion;

use crate::options::address::{HostPort, ListenAddress};
use crate::options::device;
use crate::options::promotion;
use crate::options::tier::{self, TierChoice};

/// One KiB in bytes.
pub const KIB: u64 = 1 << 10;
/// One MiB in bytes.
pub const MIB: u64 = 1 << 20;
/// One GiB in bytes.
pub const GIB: u64 = 1 << 30;
/// One TiB in bytes.
pub const TIB: u64 = 1 << 40;

/// What an option's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On or off.
    Switch,
    /// A whole number, both ends included.
    Number {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// A number of bytes, both ends included.
    Size {
        /// Bytes that a number without a suffix counts in: memcached's `-m` is in MiB, its `-I` in bytes.
        unit: u64,
        /// Least, bytes.
        min: u64,
        /// Greatest, bytes.
        max: u64,
    },
    /// Seconds, both ends included.
    Seconds {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// A time down to milliseconds, both ends included.
    Milliseconds {
        /// Least, milliseconds.
        min: u64,
        /// Greatest, milliseconds.
        max: u64,
    },
    /// A share in percent, from 0 to `max`.
    Percent {
        /// Greatest.
        max: u8,
    },
    /// File permissions in octal.
    Mode,
    /// Commands of operators, separated by commas, or `none`.
    Commands,
    /// One of a few words.
    Choice(&'static [&'static str]),
    /// A path of a file; may be left out.
    Path,
    /// Addresses to listen on, separated by commas.
    Addresses,
    /// The address of the admin listener, or `off`.
    Admin,
    /// A TCP port; may be left out.
    OptionalPort,
    /// Devices of the SSD tier with their sizes, separated by commas; may be left out.
    Devices,
    /// One directory of an engine with its size; may be left out.
    Place,
    /// Which hits below bring their item up.
    Promotion,
    /// Which engine a tier has: one of a few words, or a remote server.
    Tier(&'static [&'static str]),
}

/// A value that was read and is in range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Of a [`Kind::Switch`].
    Switch(bool),
    /// Of a [`Kind::Number`].
    Number(u64),
    /// Of a [`Kind::Size`], bytes.
    Size(u64),
    /// Of a [`Kind::Seconds`].
    Seconds(u64),
    /// Of a [`Kind::Milliseconds`].
    Duration(Duration),
    /// Of a [`Kind::Percent`].
    Percent(u8),
    /// Of a [`Kind::Mode`].
    Mode(u32),
    /// Of [`Kind::Commands`].
    Commands(Commands),
    /// Of a [`Kind::Choice`].
    Choice(&'static str),
    /// Of a [`Kind::Path`].
    Path(Option<PathBuf>),
    /// Of [`Kind::Addresses`].
    Addresses(Vec<ListenAddress>),
    /// Of [`Kind::Admin`].
    Admin(Option<HostPort>),
    /// Of [`Kind::OptionalPort`].
    OptionalPort(Option<u16>),
    /// Of [`Kind::Devices`].
    Devices(Vec<DeviceConfig>),
    /// Of [`Kind::Place`].
    Place(Option<DeviceConfig>),
    /// Of [`Kind::Promotion`].
    Promotion(Promotion),
    /// Of a [`Kind::Tier`].
    Tier(TierChoice),
}

impl Kind {
    /// Reads `text`; `None` if it is not a value of this kind or out of range ([`Kind::range`] says which that is).
    pub fn read(&self, text: &str) -> Option<Value> {
        let text = text.trim();
        match *self {
            Kind::Switch => switch(text).map(Value::Switch),
            Kind::Number { min, max } => within(text.parse().ok()?, min, max).map(Value::Number),
            Kind::Size { unit, min, max } => within(size(text, unit)?, min, max).map(Value::Size),
            Kind::Seconds { min, max } => within(seconds(text)?, min, max).map(Value::Seconds),
            Kind::Milliseconds { min, max } => {
                within(milliseconds(text)?, min, max).map(|time| Value::Duration(Duration::from_millis(time)))
            }
            Kind::Percent { max } => percent(text).filter(|share| *share <= max).map(Value::Percent),
            Kind::Mode => mode(text).map(Value::Mode),
            Kind::Choice(words) => words.iter().find(|word| **word == text).map(|word| Value::Choice(word)),
            Kind::Commands => text.parse().ok().map(Value::Commands),
            Kind::Path => Some(Value::Path((!text.is_empty()).then(|| PathBuf::from(text)))),
            Kind::Addresses => addresses(text).map(Value::Addresses),
            Kind::Admin if text == "off" => Some(Value::Admin(None)),
            Kind::Admin => HostPort::read(text).map(|address| Value::Admin(Some(address))),
            Kind::OptionalPort if text.is_empty() => Some(Value::OptionalPort(None)),
            Kind::OptionalPort => text.parse().ok().map(|port| Value::OptionalPort(Some(port))),
            Kind::Devices => device::read_list(text).map(Value::Devices),
            Kind::Place => place(text).map(Value::Place),
            Kind::Promotion => promotion::read(text).map(Value::Promotion),
            Kind::Tier(words) => tier::read(text, words).map(Value::Tier),
        }
    }

    /// What may be written, as the end of the sentence "it must be ...".
    pub fn range(&self) -> String {
        match *self {
            Kind::Switch => "true or false".into(),
            Kind::Number { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Size { unit, min, max } => format!(
                "a size from {} to {}: a whole number of {}, or one with a suffix k, m, g or t (KiB, MiB, GiB, TiB)",
                Value::Size(min),
                Value::Size(max),
                if unit == MIB { "MiB" } else { "bytes" },
            ),
            Kind::Seconds { min, max } => format!(
                "a time from {} to {}: a whole number of seconds, or one with a suffix s, m, h or d",
                Value::Seconds(min),
                Value::Seconds(max),
            ),
            Kind::Milliseconds { min, max } => format!(
                "a time from {} to {}: a whole number of seconds, or one with a suffix ms, s, m, h or d",
                Value::Duration(Duration::from_millis(min)),
                Value::Duration(Duration::from_millis(max)),
            ),
            Kind::Percent { max } => format!("a share from 0% to {max}%"),
            Kind::Mode => "file permissions in octal, from 0 to 777".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Path => "a path".into(),
            Kind::Commands => format!("`none`, or some of {}, separated by commas", Commands::ALL),
            Kind::Addresses => {
                "addresses separated by commas, each an IP address or host name, with `:port` if it is not --port's (IPv6 \
                 with a port: [::1]:11211)"
                    .into()
            }
            Kind::Admin => "an address with its port, as 127.0.0.1:11280 or [::1]:11280, or `off`".into(),
            Kind::OptionalPort => "a port from 0 to 65535, or nothing".into(),
            Kind::Devices => device::RANGE.into(),
            Kind::Place => {
                "PATH:SIZE: the path of a directory, and a whole number with a suffix m, g or t (MiB, GiB, TiB)".into()
            }
            Kind::Promotion => "always, second or a share from 0% to 100%".into(),
            Kind::Tier(words) => tier::range(words),
        }
    }

    /// What stands for the value in a usage line.
    pub fn placeholder(&self) -> String {
        let word = match self {
            Kind::Switch => "BOOL",
            Kind::Number { .. } => "N",
            Kind::Size { .. } => "SIZE",
            Kind::Seconds { .. } => "SECONDS",
            Kind::Milliseconds { .. } => "TIME",
            Kind::Percent { .. } => "PERCENT",
            Kind::Mode => "OCTAL",
            Kind::Choice(words) => return words.join("|"),
            Kind::Path => "FILE",
            Kind::Commands => "COMMANDS",
            Kind::Addresses => "ADDRESSES",
            Kind::Admin => "ADDRESS",
            Kind::OptionalPort => "PORT",
            Kind::Devices | Kind::Place => "PATH:SIZE",
            Kind::Tier(words) => return format!("{}|remote:ADDRESS", words.join("|")),
            Kind::Promotion => "always|second|PERCENT",
        };
        word.into()
    }
}

impl Value {
    /// The value as it would stand in a TOML file.
    pub fn to_toml(&self) -> String {
        match self {
            Value::Switch(on) => on.to_string(),
            Value::Number(number) => number.to_string(),
            Value::OptionalPort(Some(port)) => port.to_string(),
            other => toml::Value::String(other.to_string()).to_string(),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Switch(on) => write!(f, "{on}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::Size(bytes) => {
                write_in_units(f, *bytes, &[(TIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")], "B")
            }
            Value::Seconds(seconds) => write_in_units(f, *seconds, &[(86_400, "d"), (3_600, "h"), (60, "m")], "s"),
            Value::Duration(time) if time.subsec_millis() != 0 => write!(f, "{}ms", time.as_millis()),
            Value::Duration(time) => Value::Seconds(time.as_secs()).fmt(f),
            Value::Percent(share) => write!(f, "{share}%"),
            Value::Mode(mode) => write!(f, "{mode:o}"),
            Value::Commands(commands) => write!(f, "{commands}"),
            Value::Choice(word) => write!(f, "{word}"),
            Value::Path(path) => path.iter().try_for_each(|path| write!(f, "{}", path.display())),
            Value::Addresses(addresses) => write_list(f, addresses.iter()),
            Value::Admin(None) => write!(f, "off"),
            Value::Admin(Some(address)) => write!(f, "{address}"),
            Value::OptionalPort(port) => port.iter().try_for_each(|port| write!(f, "{port}")),
            Value::Devices(devices) => write_list(f, devices.iter().map(device::written)),
            Value::Place(place) => write_list(f, place.iter().map(device::written)),
            Value::Promotion(policy) => write!(f, "{}", promotion::written(*policy)),
            Value::Tier(choice) => write!(f, "{choice}"),
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

fn write_list(f: &mut fmt::Formatter<'_>, list: impl Iterator<Item = impl fmt::Display>) -> fmt::Result {
    for (position, element) in list.enumerate() {
        write!(f, "{}{element}", if position == 0 { "" } else { "," })?;
    }
    Ok(())
}

fn within(number: u64, min: u64, max: u64) -> Option<u64> {
    (min..=max).contains(&number).then_some(number)
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Splits `text` into its leading digits, as a number, and the rest.
fn number_and_suffix(text: &str) -> Option<(u64, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, suffix) = text.split_at(digits);
    Some((number.parse().ok()?, suffix.trim_start()))
}

/// Suffixes count in powers of 1024, as memcached's do. `MB` and `GB` are refused: some read them as powers of 1000.
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

fn seconds(text: &str) -> Option<u64> {
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

fn milliseconds(text: &str) -> Option<u64> {
    match text.strip_suffix("ms") {
        Some(number) => number.trim_end().parse().ok(),
        None => seconds(text)?.checked_mul(1_000),
    }
}

/// A whole number with or without its sign, up to 100.
pub fn percent(text: &str) -> Option<u8> {
    let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|share| digits_only && *share <= 100)
}

fn mode(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    let mode = u32::from_str_radix(digits, 8).ok()?;
    (mode <= 0o777).then_some(mode)
}

fn addresses(text: &str) -> Option<Vec<ListenAddress>> {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(ListenAddress::read).collect()
}

/// One place or none.
fn place(text: &str) -> Option<Option<DeviceConfig>> {
    let mut places = device::read_list(text)?;
    (places.len() <= 1).then(|| places.pop())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: Kind = Kind::Size { unit: MIB, min: 8 * MIB, max: 16 * TIB };
    const ITEM: Kind = Kind::Size { unit: 1, min: KIB, max: GIB };
    const TIMEOUT: Kind = Kind::Seconds { min: 0, max: 86_400 };

    #[test]
    fn a_bare_number_counts_in_the_options_own_unit() {
        assert_eq!(MEMORY.read("64"), Some(Value::Size(64 * MIB)));
        assert_eq!(ITEM.read("2048"), Some(Value::Size(2048)));
    }

    #[test]
    fn suffixes_are_powers_of_1024_in_either_case() {
        for text in ["4g", "4G", "4GiB", "4 GiB", "4096m", "4194304k"] {
            assert_eq!(MEMORY.read(text), Some(Value::Size(4 * GIB)), "{text}");
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
    fn seconds_take_suffixes_and_keep_their_range() {
        assert_eq!(TIMEOUT.read("90"), Some(Value::Seconds(90)));
        assert_eq!(TIMEOUT.read("2m"), Some(Value::Seconds(120)));
        assert_eq!(TIMEOUT.read("25h"), None);
        assert_eq!(TIMEOUT.read("2 minutes"), None);
    }

    #[test]
    fn times_may_be_as_short_as_milliseconds() {
        let kind = Kind::Milliseconds { min: 10, max: 60_000 };
        for (text, written) in [("100ms", "100ms"), ("1", "1s"), ("1500 ms", "1500ms"), ("1m", "1m"), ("60000ms", "1m")]
        {
            assert_eq!(kind.read(text).map(|value| value.to_string()).as_deref(), Some(written), "{text}");
        }
        for text in ["9ms", "0", "61s", "-1ms", "1.5s", "ms", ""] {
            assert_eq!(kind.read(text), None, "{text}");
        }
    }

    #[test]
    fn shares_are_whole_percents() {
        let kind = Kind::Percent { max: 90 };
        assert_eq!(kind.read("5"), Some(Value::Percent(5)));
        assert_eq!(kind.read("90%"), Some(Value::Percent(90)));
        for text in ["91", "101%", "-1", "+1", "0.5", "%", ""] {
            assert_eq!(kind.read(text), None, "{text}");
        }
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(Kind::Mode.read("0700"), Some(Value::Mode(0o700)));
        assert_eq!(Kind::Mode.read("770"), Some(Value::Mode(0o770)));
        assert_eq!(Kind::Mode.read("1777"), None);
        assert_eq!(Kind::Mode.read("rwx"), None);
        assert_eq!(Kind::Mode.read("789"), None);
    }

    #[test]
    fn what_is_written_is_read_back_as_the_same_value() {
        let samples = [
            (MEMORY, "1025m"),
            (ITEM, "1500"),
            (TIMEOUT, "3600"),
            (TIMEOUT, "61"),
            (TIMEOUT, "0"),
            (Kind::Mode, "0640"),
            (Kind::Switch, "yes"),
            (Kind::Addresses, "127.0.0.1, [::1]:11300,example.org"),
            (Kind::Admin, "off"),
            (Kind::Admin, "[::1]:11280"),
            (Kind::Milliseconds { min: 1, max: 100_000 }, "1500ms"),
            (Kind::Percent { max: 100 }, "7"),
            (Kind::OptionalPort, ""),
            (Kind::OptionalPort, "0"),
            (Kind::Devices, ""),
            (Kind::Devices, "/mnt/a:1500m, /dev/nvme1n1:2t"),
            (Kind::Place, ""),
            (Kind::Place, "/mnt/a:1500m"),
            (Kind::Tier(&["none"]), "none"),
            (Kind::Tier(&[]), "remote:/run/l1.sock"),
            (Kind::Promotion, "second"),
            (Kind::Promotion, "25%"),
        ];
        for (kind, text) in samples {
            let value = kind.read(text).unwrap_or_else(|| panic!("{text} is a value"));
            assert_eq!(kind.read(&value.to_string()), Some(value.clone()), "{text} is written {value}");
        }
    }
}
