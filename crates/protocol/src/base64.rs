//! Keys that came as base64 (meta flag `b`), and what is sent so: the standard alphabet with padding.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use moneta_item::request::KEY_MAX;

/// Room for a decoded key. What is sent is at most [`KEY_MAX`] long, so what it decodes to is shorter still.
pub type KeyBuffer = [u8; KEY_MAX];

/// Decodes a key into `buffer`; `None` if it is not base64 or decodes to nothing.
pub fn decode_key<'b>(key: &[u8], buffer: &'b mut KeyBuffer) -> Option<&'b [u8]> {
    match STANDARD.decode_slice(key, buffer) {
        Ok(length) if length > 0 => Some(&buffer[..length]),
        _ => None,
    }
}

/// Decodes bytes of any length; `None` if they are not base64.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// A key as base64.
pub fn encode_key(key: &[u8]) -> String {
    STANDARD.encode(key)
}

/// Appends a value as base64.
pub fn append(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + value.len().div_ceil(3) * 4, 0);
    let written = STANDARD.encode_slice(value, &mut out[start..]).expect("there is room for it");
    debug_assert_eq!(start + written, out.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_padded_base64_only() {
        let mut buffer = [0; KEY_MAX];
        assert_eq!(decode_key(b"YQ==", &mut buffer), Some(&b"a"[..]));
        assert_eq!(decode_key(b"AP8g", &mut buffer), Some(&b"\x00\xff "[..]));
        for bad in [&b""[..], b"YQ=", b"YQ", b"!!!", b"YR==", b"===="] {
            assert_eq!(decode_key(bad, &mut buffer), None, "{bad:?}");
        }
        assert_eq!(encode_key(b"\x00\xff "), "AP8g");
        let mut out = b"=".to_vec();
        [&b""[..], b"\x00\xff ", b"a"].into_iter().for_each(|value| append(value, &mut out));
        assert_eq!(out, b"=AP8gYQ==");
        assert_eq!(decode_key(&[b'Y'; 248], &mut buffer).map(<[u8]>::len), Some(186));
    }
}
