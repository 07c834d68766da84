//! Numbers as short as a column takes them.

/// A count or rate: `950`, `12.3k`, `1.20M`.
pub(crate) fn count(value: f64) -> String {
    short(value, 1000.0, ["", "k", "M", "G", "T"])
}

/// Bytes: `512B`, `1.5K`, `64.0M`.
pub(crate) fn bytes(value: f64) -> String {
    short(value, 1024.0, ["B", "K", "M", "G", "T"])
}

fn short(value: f64, step: f64, units: [&str; 5]) -> String {
    let mut value = value.max(0.0);
    let mut place = 0;
    while value >= step * 0.9995 && place + 1 < units.len() {
        value /= step;
        place += 1;
    }
    let unit = units[place];
    match place {
        0 if value < 10.0 && value.fract() > 0.0 => format!("{value:.1}{unit}"),
        0 => format!("{value:.0}{unit}"),
        _ if value < 10.0 => format!("{value:.2}{unit}"),
        _ if value < 100.0 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// A time in seconds: `12µs`, `1.4ms`, `2.0s`.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0}µs", s * 1e6),
        s if s < 10e-3 => format!("{:.1}ms", s * 1e3),
        s if s < 1.0 => format!("{:.0}ms", s * 1e3),
        s => format!("{s:.1}s"),
    }
}

/// A share of 1: `99.2%`.
pub(crate) fn share(share: f64) -> String {
    if share >= 0.99995 { "100%".into() } else { format!("{:.1}%", share * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(
            [0.0, 0.4, 950.0, 999.7, 12_345.0, 1.2e6].map(count),
            ["0", "0.4", "950", "1.00k", "12.3k", "1.20M"]
        );
        assert_eq!([512.0, 1536.0, 67_108_864.0].map(bytes), ["512B", "1.50K", "64.0M"]);
        assert_eq!([12e-6, 1.4e-3, 0.05, 2.0].map(time), ["12µs", "1.4ms", "50ms", "2.0s"]);
        assert_eq!([0.992, 1.0, 0.0].map(share), ["99.2%", "100%", "0.0%"]);
    }
}
