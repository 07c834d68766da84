//! What it takes to answer a request later: its key and style, owned.

use moneta_protocol::command::{MetaStyle, Style};
use moneta_protocol::request::KEY_MAX;

use super::execute::stored_key;

/// A request's key, as sent, and style.
pub(super) struct Ticket {
    key: Box<[u8]>,
    style: Style<'static>,
    /// The flags of a meta line, which `style` cannot borrow.
    flags: Box<[u8]>,
}

impl Ticket {
    pub(super) fn new(key: &[u8], style: &Style<'_>) -> Self {
        let (style, flags): (_, &[u8]) = match *style {
            Style::Text(style) => (Style::Text(style), &[]),
            Style::Binary(style) => (Style::Binary(style), &[]),
            Style::Meta(style) => (Style::Meta(MetaStyle { flags: &[], ..style }), style.flags),
        };
        Self { key: key.into(), style, flags: flags.into() }
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Whether it is on `key`, as the store knows it.
    pub(super) fn is_of(&self, key: &[u8]) -> bool {
        let mut buffer = [0; KEY_MAX];
        stored_key(&self.key, &self.style, &mut buffer) == key
    }

    pub(super) fn style(&self) -> Style<'_> {
        match self.style {
            Style::Meta(style) => Style::Meta(MetaStyle { flags: &self.flags, ..style }),
            other => other,
        }
    }
}
