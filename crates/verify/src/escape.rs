//! Keys in lines that people read: as they are where they are plain, else percent-encoded as `lru_crawler metadump` has it.

use percent_encoding::{AsciiSet, CONTROLS, percent_encode};

/// What is not plain among the ASCII characters; no other byte is.
const NOT_PLAIN: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// `key` with every byte that is no visible ASCII character, and `%`, as `%XX`.
pub fn escape(key: &[u8]) -> String {
    percent_encode(key, NOT_PLAIN).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_plain_is_escaped() {
        assert_eq!(escape(b"user:1/\xc3\xa9 %\n"), "user:1/%C3%A9%20%25%0A");
        let graphic: Vec<u8> = (0..=u8::MAX).filter(|byte| byte.is_ascii_graphic() && *byte != b'%').collect();
        assert_eq!(escape(&graphic).as_bytes(), graphic);
        let others = (0..=u8::MAX).filter(|byte| !graphic.contains(byte));
        assert!(others.clone().all(|byte| escape(&[byte]) == format!("%{byte:02X}")), "{others:?}");
    }
}
