//! Keys in lines meant for people and tools: percent-encoded, so that a line stays a line.

/// Appends `key`, every byte but letters, digits, `-`, `.`, `_` and `~` as `%XX` (RFC 3986).
pub fn percent_encode(key: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in key {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(byte);
        } else {
            out.extend_from_slice(&[b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }
}

/// Appends text that tools show as it is: only what would break a line, or be taken for an escape, is encoded as `%XX`.
pub fn escape_text(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if *byte > b' ' && !matches!(byte, 0x7f | b'%') {
            out.push(*byte);
        } else {
            percent_encode(&[*byte], out);
        }
    }
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
}
