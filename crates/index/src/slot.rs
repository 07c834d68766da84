//! A slot: one entry of the index in one word.
//!
//! ```text
//!  63          64-T  63-T   62-T                    0
//! +----------------+--------+------------------------+
//! | tag (T bits)   | choice | payload (63 - T bits)  |
//! +----------------+--------+------------------------+
//! ```
//!
//! The word 0 is an empty slot, so an entry's payload is never 0. `choice` says whether the entry lies in its first or its
//! second bucket.

/// One entry, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot<const TAG_BITS: u32>(pub u64);

impl<const TAG_BITS: u32> Slot<TAG_BITS> {
    /// Bits of the payload.
    pub(crate) const PAYLOAD_BITS: u32 = 63 - TAG_BITS;
    const PAYLOAD_MASK: u64 = (1 << Self::PAYLOAD_BITS) - 1;

    #[inline]
    pub(crate) fn new(tag: u32, second: bool, payload: u64) -> Self {
        debug_assert!(payload != 0 && payload <= Self::PAYLOAD_MASK);
        Self(Self::label(tag, second) | payload)
    }

    /// Tag and choice where they stand in the word; comparing them is one comparison.
    #[inline]
    pub(crate) fn label(tag: u32, second: bool) -> u64 {
        (u64::from(tag) << (64 - TAG_BITS)) | (u64::from(second) << Self::PAYLOAD_BITS)
    }

    /// Whether it is an entry with that label. One comparison: what is left without the label is the payload, and from 1 up.
    #[inline]
    pub(crate) fn has_label(self, label: u64) -> bool {
        (self.0 ^ label).wrapping_sub(1) < Self::PAYLOAD_MASK
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[inline]
    pub(crate) fn tag(self) -> u32 {
        (self.0 >> (64 - TAG_BITS)) as u32
    }

    #[inline]
    pub(crate) fn is_second(self) -> bool {
        (self.0 >> Self::PAYLOAD_BITS) & 1 == 1
    }

    #[inline]
    pub(crate) fn payload(self) -> u64 {
        self.0 & Self::PAYLOAD_MASK
    }

    #[inline]
    pub(crate) fn with_payload(self, payload: u64) -> Self {
        debug_assert!(payload != 0 && payload <= Self::PAYLOAD_MASK);
        Self((self.0 & !Self::PAYLOAD_MASK) | payload)
    }

    /// The same entry in its other bucket.
    #[inline]
    pub(crate) fn displaced(self) -> Self {
        Self(self.0 ^ (1 << Self::PAYLOAD_BITS))
    }
}
