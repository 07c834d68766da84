//! Keys and other bytes in lines of text: percent-encoded, so that they cannot break a line. Three formats, by who reads them:
//! programs that split lines, people who read names in any language, and people who compare keys byte by byte.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC};

/// Every byte but letters, digits, `-`, `.`, `_` and `~`, the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is not plain among the ASCII characters; no other byte is.
const NOT_PLAIN: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Appends `key` with every reserved byte as `%XX`, as `lru_crawler metadump` has it.
pub fn percent_encode(key: &[u8], out: &mut Vec<u8>) {
    for piece in percent_encoding::percent_encode(key, RESERVED) {
        out.extend_from_slice(piece.as_bytes());
    }
}

/// Appends text, encoding as `%XX` only bytes that would break a line or look like an escape. Other bytes stay, also those that
/// are not ASCII, which an [`AsciiSet`] cannot express.
pub fn escape_text(text: &[u8], out: &mut Vec<u8>) {
    for &byte in text {
        if byte > b' ' && !matches!(byte, 0x7f | b'%') {
            out.push(byte);
        } else {
            out.extend_from_slice(percent_encoding::percent_encode_byte(byte).as_bytes());
        }
    }
}

/// `key` with every byte that is no visible ASCII character, and `%`, as `%XX`.
pub fn escape_key(key: &[u8]) -> String {
    percent_encoding::percent_encode(key, NOT_PLAIN).to_string()
}

/// Whether a text command can carry the key as it is.
pub fn is_text_key(key: &[u8]) -> bool {
    key.iter().all(|&byte| byte > b' ' && byte != 0x7f)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_what_a_line_cannot_hold() {
        let mut out = Vec::new();
        percent_encode(b"a b%\n\xc3:~", &mut out);
        assert_eq!(out, b"a%20b%25%0A%C3%3A~");
        assert!(is_text_key(b"key:1") && !is_text_key(b"a b") && !is_text_key(b"a\x7f"));
    }

    #[test]
    fn text_stays_as_it_is_but_for_what_breaks_a_line() {
        let mut out = Vec::new();
        escape_text(b"a:b c%\x7f\r\n\xc3\xa9", &mut out);
        assert_eq!(out, b"a:b%20c%25%7F%0D%0A\xc3\xa9");
    }

    #[test]
    fn only_what_is_not_plain_is_escaped() {
        assert_eq!(escape_key(b"user:1/\xc3\xa9 %\n"), "user:1/%C3%A9%20%25%0A");
        let graphic: Vec<u8> = (0..=u8::MAX).filter(|byte| byte.is_ascii_graphic() && *byte != b'%').collect();
        assert_eq!(escape_key(&graphic).as_bytes(), graphic);
        let others = (0..=u8::MAX).filter(|byte| !graphic.contains(byte));
        assert!(others.clone().all(|byte| escape_key(&[byte]) == format!("%{byte:02X}")), "{others:?}");
    }
}
