//! Who is shown items.

use moneta_item::ItemRef;

/// Receives the item of a hit while it lies still in the engine. Encoders are visitors: the value is copied once, into the
/// connection's output buffer.
pub trait Visit {
    /// Called once for a hit that needs no wait.
    fn item(&mut self, item: &ItemRef<'_>);
}

impl<F: FnMut(&ItemRef<'_>)> Visit for F {
    #[inline]
    fn item(&mut self, item: &ItemRef<'_>) {
        self(item);
    }
}

/// A visitor that looks at nothing.
pub struct Unseen;

impl Visit for Unseen {
    fn item(&mut self, _: &ItemRef<'_>) {}
}
