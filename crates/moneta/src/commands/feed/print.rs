//! Printing changes: for people, or as the node's lines of JSON.

use std::io::{self, Write, stdout};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use moneta_feed::{Change, Gap, Mark, Set, Sink, SinkError, json};

/// Prints what it takes.
pub(super) struct Printer {
    is_json: bool,
}

impl Printer {
    /// As lines of JSON, or for people.
    pub(super) fn new(is_json: bool) -> Self {
        Self { is_json }
    }

    /// Prints how far all is told, which only lines of JSON say.
    ///
    /// # Errors
    /// Those of standard output.
    pub(super) fn mark(&self, mark: &Mark) -> io::Result<()> {
        if !self.is_json {
            return Ok(());
        }
        let mut line = Vec::new();
        json::write_mark(mark, &mut line);
        stdout().lock().write_all(&line)
    }
}

impl Sink for Printer {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let mut lines = Vec::new();
        for change in &changes {
            match self.is_json {
                true => json::write(change, &mut lines),
                false => lines.extend_from_slice(line(change).as_bytes()),
            }
        }
        Ok(stdout().lock().write_all(&lines)?)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(stdout().lock().flush()?)
    }

    fn take_lacks(&mut self) -> bool {
        false
    }
}

/// A change as people read it.
fn line(change: &Change) -> String {
    let named = |key: &[u8]| match std::str::from_utf8(key) {
        Ok(text) => escaped(text),
        Err(_) => format!("base64:{}", STANDARD.encode(key)),
    };
    match change {
        Change::Set(Set { key, meta, value, .. }) => {
            let stale = if meta.stale { " stale" } else { "" };
            let value = value.as_ref().map(|value| format!(" {}", STANDARD.encode(value))).unwrap_or_default();
            let (key, version, flags, expiry) = (named(key), meta.cas, meta.flags, meta.expiry.0);
            format!("set {key} version={version} flags={flags} expiry={expiry}{stale}{value}\n")
        }
        Change::Delete { key, version } => format!("delete {} version={}\n", named(key), version.0),
        Change::Flush(floor) => format!("flush version={} at={}\n", floor.version.0, floor.second),
        Change::Gap(Gap { since, cause }) => {
            let why = cause.map(|cause| format!(" ({cause})")).unwrap_or_default();
            format!("gap: changes before {since} ms are missing{why}\n")
        }
        Change::Lost { until } => {
            format!("lost: the node was killed, and lost what it took last before {until} ms\n")
        }
    }
}

/// Text from elsewhere as a terminal may show it: what moves the cursor, turns the direction of writing or ends a word is
/// escaped.
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
