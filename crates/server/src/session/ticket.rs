//! What it takes to answer a request later: its key and style, owned.

use moneta_protocol::command::{MetaStyle, Style};
use moneta_store::request::KEY_MAX;

use smallvec::SmallVec;

use super::key::stored_key;

/// Bytes of key and flags that lie in the ticket itself; longer ones are allocated.
const INLINE: usize = 48;

/// A request's key, as sent, and style.
pub(super) struct Ticket {
    /// The key, then the flags of a meta line, which `style` cannot borrow.
    bytes: SmallVec<[u8; INLINE]>,
    key_length: usize,
    style: Style<'static>,
}

impl Ticket {
    pub(super) fn new(key: &[u8], style: &Style<'_>) -> Self {
        let (style, flags): (_, &[u8]) = match *style {
            Style::Text(style) => (Style::Text(style), &[]),
            Style::Binary(style) => (Style::Binary(style), &[]),
            Style::Meta(style) => (Style::Meta(MetaStyle { flags: &[], ..style }), style.flags),
        };
        let mut bytes = SmallVec::from_slice(key);
        if !flags.is_empty() {
            bytes.extend_from_slice(flags);
        }
        Self { bytes, key_length: key.len(), style }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.bytes[..self.key_length]
    }

    /// Whether it is on `key`, as the store knows it.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        let mut buffer = [0; KEY_MAX];
        stored_key(self.key(), &self.style, &mut buffer) == key
    }

    /// Shows the style. That of a text or binary request, which nearly all are, is not copied for that.
    pub(super) fn with_style<R>(&self, show: impl FnOnce(&Style<'_>) -> R) -> R {
        match &self.style {
            Style::Meta(style) => show(&Style::Meta(MetaStyle { flags: &self.bytes[self.key_length..], ..*style })),
            other => show(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_and_flags_come_back_whether_they_fit_into_the_ticket_or_not() {
        for key in [&b"k"[..], &[b'k'; INLINE], &[b'k'; KEY_MAX]] {
            let style = Style::Meta(MetaStyle { flags: b"v O123 k", ..MetaStyle::default() });
            let ticket = Ticket::new(key, &style);
            assert_eq!(ticket.key(), key);
            ticket.with_style(|kept| assert_eq!(*kept, style));
            assert!(ticket.is_of(key) && !ticket.is_of(b"other"));
        }
    }
}
