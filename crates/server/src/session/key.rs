//! Keys as clients send them, and as the store has them.

use moneta_protocol::base64::{KeyBuffer, decode_key};
use moneta_protocol::command::Style;

/// The key in the store's form. Only meta keys may be in base64; the decoder has checked that they decode.
#[inline]
pub(super) fn stored_key<'a>(key: &'a [u8], style: &Style<'_>, buffer: &'a mut KeyBuffer) -> &'a [u8] {
    match style {
        Style::Meta(style) if style.base64_key => decode_key(key, buffer).unwrap_or_default(),
        _ => key,
    }
}
