//! Reads a region's two ends: whether it is in use, and under which sequence number.
//!
//! One end is enough. They are written without a sync in between, over those of an earlier use; so at a restart each may
//! belong to another use, and the newer one counts.

use std::io;

use crate::devices::Devices;
use crate::format::record::salt_of;
use crate::format::region::{End, HEADER_BYTES, RegionHeader, Trailer};
use crate::format::{BLOCK, VERSION_1};
use crate::io::Aligned;

/// What a region's first and last block say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survey {
    /// It is free, or of an earlier tier on this device.
    Free,
    /// It is in use.
    InUse(Use),
}

/// A region in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Its sequence number.
    pub sequence: u64,
    /// The stamp that its records' sequence numbers count from.
    pub base: u64,
    /// Key of its records' checksums.
    pub salt: u64,
    /// When it was begun, in milliseconds since the Unix epoch; 0 if that is not known.
    pub begun: u64,
    /// Its trailer, unless it was being filled when the node ended.
    pub trailer: Option<Trailer>,
    /// One of its ends is damaged; the other was used.
    pub damaged: bool,
    /// Some of its blocks are known to be unreadable.
    pub unreadable: bool,
    /// Both its ends are lost. Its records are known except for their CAS values and times, so neither they nor older versions of
    /// their keys may be served.
    pub headless: bool,
}

/// Reads a region's first and last block.
///
/// # Errors
/// The device's, if one of them cannot be read and the other says nothing.
pub fn survey(devices: &Devices, region: usize) -> io::Result<Survey> {
    let first = read_end(devices, region, 0);
    let last = read_end(devices, region, devices.region_bytes() - BLOCK);
    match (first, last) {
        (Ok(first), Ok(last)) => Ok(weigh(first, last, devices.seed())),
        (Err(error), last) => match last.map(|last| weigh(End::Unknown, last, devices.seed())) {
            Ok(Survey::InUse(used)) => Ok(Survey::InUse(Use { unreadable: true, ..used })),
            _ => Err(error),
        },
        (Ok(first), Err(error)) => match weigh(first, End::Unknown, devices.seed()) {
            Survey::InUse(used) => Ok(Survey::InUse(Use { damaged: true, unreadable: true, ..used })),
            Survey::Free => Err(error),
        },
    }
}

fn read_end(devices: &Devices, region: usize, offset: usize) -> io::Result<End> {
    let (device, start) = devices.place(region);
    let mut block = Aligned::zeroed(BLOCK);
    devices.media(device).read_at(&mut block, start + offset as u64)?;
    let place = if offset == 0 { 0..HEADER_BYTES } else { BLOCK - HEADER_BYTES..BLOCK };
    let bytes = block[place].try_into().expect("as long as a header");
    let end = End::decode(bytes, devices.tier());
    Ok(if end == End::Unknown { End::repair(bytes, devices.tier()) } else { end })
}

/// Combines the two ends of a region, of a tier with that seed.
pub fn weigh(first: End, last: End, seed: u64) -> Survey {
    let header = match first {
        End::Header(header) => Some(header),
        _ => None,
    };
    let of_header = |RegionHeader { version, sequence, base, begun, .. }, damaged| {
        let salt = salt_of(version, sequence, seed);
        let (unreadable, headless) = (false, false);
        Survey::InUse(Use { sequence, base, salt, begun, trailer: None, damaged, unreadable, headless })
    };
    // A stale end comes from a write that was not synced. An end that cannot be decoded was valid once, so it counts as damaged.
    match (header, last) {
        (Some(header), last) if last.sequence().is_none_or(|sequence| sequence < header.sequence) => {
            of_header(header, last == End::Unknown && header.version != VERSION_1)
        }
        (None, End::Blank | End::Unknown) => Survey::Free,
        (header, End::Header(copy)) => of_header(copy, header.is_none()),
        (header, End::Trailer(trailer)) => Survey::InUse(Use {
            sequence: trailer.sequence,
            base: trailer.base,
            salt: salt_of(trailer.version, trailer.sequence, seed),
            begun: header.filter(|header| header.sequence == trailer.sequence).map_or(0, |header| header.begun),
            trailer: Some(trailer),
            damaged: header.is_none(),
            unreadable: false,
            headless: false,
        }),
        (Some(header), End::Blank | End::Unknown) => of_header(header, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::VERSION;

    fn header(version: u16, sequence: u64) -> End {
        End::Header(RegionHeader { version, tier: 1, sequence, base: sequence * 10, group: 0, begun: sequence * 100 })
    }

    fn trailer(sequence: u64) -> End {
        let (base, records_end, footer_bytes) = (sequence * 10, 64, 64);
        End::Trailer(Trailer {
            version: VERSION,
            tier: 1,
            sequence,
            base,
            records: 0,
            records_end,
            footer_bytes,
            footer_hash: 0,
        })
    }

    /// Sequence number, whether there is a trailer, whether an end is damaged; `None` for a free region.
    fn found(first: End, last: End) -> Option<(u64, bool, bool)> {
        match weigh(first, last, 5) {
            Survey::Free => None,
            Survey::InUse(used) => {
                assert_eq!(used.base, used.sequence * 10);
                Some((used.sequence, used.trailer.is_some(), used.damaged))
            }
        }
    }

    #[test]
    fn either_end_tells_that_a_region_is_in_use() {
        let (header, trailer) = (header(VERSION, 7), trailer(7));
        assert_eq!(found(header, header), Some((7, false, false)), "being filled");
        assert_eq!(found(header, trailer), Some((7, true, false)), "full");
        for lost in [End::Blank, End::Unknown] {
            assert_eq!(found(lost, header), Some((7, false, true)));
            assert_eq!(found(lost, trailer), Some((7, true, true)));
            assert_eq!(found(header, lost), Some((7, false, lost == End::Unknown)));
        }
        for (first, last) in [(End::Blank, End::Blank), (End::Unknown, End::Unknown), (End::Blank, End::Unknown)] {
            assert_eq!(found(first, last), None);
        }
    }

    #[test]
    fn what_an_earlier_use_left_at_one_end_does_not_count() {
        let (old, new) = (header(VERSION, 3), header(VERSION, 7));
        // The ends of a region that was flushed are not wiped. Of the two writes that begin its next use, and of the one
        // that ends it, any may be missing.
        assert_eq!(found(new, trailer(3)), Some((7, false, false)));
        assert_eq!(found(new, old), Some((7, false, false)));
        assert_eq!(found(old, new), Some((7, false, false)));
        assert_eq!(found(old, trailer(7)), Some((7, true, false)));
        assert_eq!(found(old, trailer(3)), Some((3, true, false)));
    }

    #[test]
    fn a_region_of_version_1_has_no_copy_to_miss() {
        assert_eq!(found(header(1, 7), End::Unknown), Some((7, false, false)));
        assert_eq!(found(header(1, 7), End::Blank), Some((7, false, false)));
        assert_eq!(found(header(1, 7), trailer(7)), Some((7, true, false)));
    }
}
