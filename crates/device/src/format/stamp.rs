//! Stamps of records, as regions keep them: they order the writes of a key, serve as CAS values, and tell when a record was
//! written.
//!
//! | stamps | are | of |
//! |---|---|---|
//! | below 2^53 | counted up from 1 | a tier that a lone node began |
//! | below 2^57 | the Unix second shifted by 24 bits, or one more than the stamp before | formats 1 and 2 |
//! | from there on | versions; they have been above 2^57 since 2021 | all others |

use moneta_store::{Origin, Version};

/// Stamps below this are counted.
pub const COUNTED_END: u64 = 1 << 53;
/// Records of counted stamps have in their sequence number how far the stamp is from the base of the region, and above these bits
/// the lowest of the Unix second of the write, as many.
pub const COUNTED_BITS: u32 = 24;
/// First distance that does not fit.
pub const COUNTED_SPAN: u64 = 1 << COUNTED_BITS;
/// A write whose second seems to be so little ahead of the clock is from now: the clock was set back.
const SET_BACK: u32 = 3600;
/// The time and counter of versions in a region differ by less than this.
pub const VERSIONS_SPAN: u64 = 1 << 48;
/// Stamps below this, and not counted, are of formats 1 and 2.
pub const VERSIONS_FROM: u64 = 1 << 57;
/// Where the Unix second begins in stamps of formats 1 and 2.
pub const OLD_SECOND_SHIFT: u32 = 24;

/// The moment of a stamp's time and counter, in milliseconds since the Unix epoch.
pub fn millis_of(stamp: u64) -> u64 {
    Version::new(stamp, Origin(0)).millis()
}

/// Time and counter of a stamp of any format.
pub fn local_of(stamp: u64) -> u64 {
    if stamp >= VERSIONS_FROM {
        return Version(stamp).local();
    }
    match stamp >> OLD_SECOND_SHIFT {
        0 => 0,
        second => Version::at((second + 1) * 1000).local(),
    }
}

/// The stamp that is `sequence` after `base`: of a version, in time and counter.
#[inline]
pub fn stamp_after(base: u64, sequence: u64) -> u64 {
    if base < COUNTED_END {
        return base + sequence % COUNTED_SPAN;
    }
    let step = if base >= VERSIONS_FROM { Version::new(sequence, Origin(0)).0 } else { sequence };
    base.saturating_add(step)
}

/// The Unix second in which a stamp was given out, about.
pub fn second_of(stamp: u64) -> u32 {
    let second = if stamp >= VERSIONS_FROM { Version(stamp).millis() / 1000 } else { stamp >> OLD_SECOND_SHIFT };
    u32::try_from(second).unwrap_or(u32::MAX)
}

/// The Unix second in which a record with this sequence number in a region with this base was written, as far as both tell: of a
/// counted stamp its lowest bits; see [`second_before`].
pub fn second_written(base: u64, sequence: u64) -> u32 {
    if base < COUNTED_END { (sequence >> COUNTED_BITS) as u32 } else { second_of(stamp_after(base, sequence)) }
}

/// What [`second_written`] told, at second `now`: of a counted stamp the last second with those bits. Stamps may run up to a
/// second ahead of the clock.
pub fn second_before(now: u32, told: u32) -> u32 {
    const BITS: u32 = COUNTED_SPAN as u32 - 1;
    if told > BITS {
        return told.min(now);
    }
    let age = now.wrapping_sub(told) & BITS;
    if age > BITS - SET_BACK { now } else { now - age.min(now) }
}
