//! The lines of a feed over HTTP, and how they are printed.

use std::io::{Write, stdout};

use serde::Deserialize;

/// A line of an answer.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(super) enum Line {
    Set {
        #[serde(flatten)]
        key: KeyText,
        version: String,
        flags: u32,
        expiry: u32,
        stale: bool,
        value: Option<String>,
        /// When the key was last known to hold it, milliseconds since the Unix epoch; none: it does.
        as_of: Option<u64>,
    },
    Delete {
        #[serde(flatten)]
        key: KeyText,
        version: String,
    },
    Flush {
        version: String,
        second: u32,
    },
    Gap {
        since: u64,
    },
    Lost {
        until: u64,
    },
    End {
        cursor: String,
        watermark: u64,
        /// There was more than the answer has.
        more: bool,
    },
}

/// A key, as text or in base64.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct KeyText {
    pub(super) key: Option<String>,
    pub(super) key64: Option<String>,
}

/// Text from elsewhere as a terminal may show it: what moves the cursor, turns the direction of writing or ends a word is escaped.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\'' | '"' => safe.push(letter),
            ' ' => safe.push_str("\\u{20}"),
            _ => safe.extend(letter.escape_debug()),
        }
    }
    safe
}

/// Words from elsewhere, for a message: the first of them, escaped.
pub(super) fn words(text: &str) -> String {
    const SHOWN: usize = 200;
    let shown: Vec<String> = text.split_whitespace().map(escaped).collect();
    let shown = shown.join(" ");
    match shown.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &shown[..end]),
        None => shown,
    }
}

impl Line {
    /// Prints it for people.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn print(&self) -> anyhow::Result<()> {
        let named = |key: &KeyText| match (&key.key, &key.key64) {
            (Some(text), _) => escaped(text),
            (None, encoded) => format!("base64:{}", escaped(encoded.as_deref().unwrap_or_default())),
        };
        let mut out = stdout().lock();
        match self {
            Self::Set { key, version, flags, expiry, stale, value, .. } => {
                let stale = if *stale { " stale" } else { "" };
                let value = value.as_ref().map(|value| format!(" {}", escaped(value))).unwrap_or_default();
                let (key, version) = (named(key), escaped(version));
                writeln!(out, "set {key} version={version} flags={flags} expiry={expiry}{stale}{value}")
            }
            Self::Delete { key, version } => writeln!(out, "delete {} version={}", named(key), escaped(version)),
            Self::Flush { version, second } => writeln!(out, "flush version={} at={second}", escaped(version)),
            Self::Gap { since } => writeln!(out, "gap: changes before {since} ms are missing"),
            Self::Lost { until } => {
                writeln!(out, "lost: the node was killed, and lost what it took last before {until} ms")
            }
            Self::End { .. } => Ok(()),
        }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_from_elsewhere_does_nothing_to_a_terminal() {
        for (text, shown) in [
            ("user:17", "user:17"),
            ("it's \"é\"", "it's\\u{20}\"é\""),
            ("\u{1b}[2J\u{7}\r\n\t", "\\u{1b}[2J\\u{7}\\r\\n\\t"),
            ("a\u{202e}b\u{200f}\u{9b}", "a\\u{202e}b\\u{200f}\\u{9b}"),
            ("a\\b", "a\\\\b"),
        ] {
            assert_eq!(escaped(text), shown);
        }
        assert_eq!(words("not  here\n\u{1b}c"), "not here \\u{1b}c");
        assert_eq!(words(&"x ".repeat(1000)).chars().count(), 201);
    }
}
