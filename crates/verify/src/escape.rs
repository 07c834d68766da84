//! Keys in lines that people read: as they are where they are plain, else percent-encoded as `lru_crawler metadump` has it.

use std::fmt::Write;

/// `key` with every byte that is no visible ASCII character, and `%`, as `%XX`.
pub fn escape(key: &[u8]) -> String {
    let mut text = String::with_capacity(key.len());
    for &byte in key {
        if byte.is_ascii_graphic() && byte != b'%' {
            text.push(char::from(byte));
        } else {
            write!(text, "%{byte:02X}").expect("a String takes everything");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_plain_is_escaped() {
        assert_eq!(escape(b"user:1/\xc3\xa9 %\n"), "user:1/%C3%A9%20%25%0A");
    }
}
