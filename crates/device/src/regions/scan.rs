//! Reads a region record by record when it has no footer.
//!
//! Records are packed, so a damaged one hides where the next begins. The records after it matter all the same: deletes and
//! overwrites after a lost block must not be undone. So the scan searches byte by byte for the next sound record. Its checksum
//! is salted with its offset and with a key that clients do not know, so a part of a client's value does not pass for one.
//!
//! Only candidates that look like a record are hashed, up to a budget of bytes: values made to look like records must not
//! delay a start.

use moneta_store::{Key, KeyHash};

use crate::format::footer::{Span, Summary, kept};
use crate::format::record::{HEADER_BYTES as RECORD_HEADER, Header, KEY_BYTES_MAX, Salt, View, mark, salt_of};
use crate::format::region::HEADER_BYTES;
use crate::format::{VERSION, VERSION_1};
use crate::regions::listing::{Listed, Listing};
use crate::regions::survey::Use;

/// Bytes that may be hashed to find the record after a damaged one, as a multiple of the region's bytes.
const SCAN_BUDGET: u64 = 64;
/// The same for candidates that are not followed by another candidate.
const LONELY_BUDGET: u64 = 16;
/// The same for repairing one flipped bit.
const REPAIR_BUDGET: u64 = 16;
/// Candidates that are hashed to identify the use of a region.
const IDENTIFY_MAX: usize = 64;
/// With at most this many possible uses, one matching record is proof enough.
const IDENTIFY_SURELY: usize = 10_000;

/// Lists a region from its records. Damaged records are listed too, since no older version may replace them. In a region that
/// was open, the list ends where no further record is found. `bytes` are the region's, from its start.
pub fn from_records(bytes: &[u8], used: &Use, hash: KeyHash) -> Listing {
    let limit = used.trailer.map_or(bytes.len(), |trailer| (trailer.records_end as usize).min(bytes.len()));
    let mut scan = Scan {
        bytes: &bytes[..limit],
        salt: used.salt,
        scan_budget: SCAN_BUDGET * bytes.len() as u64,
        lonely_budget: LONELY_BUDGET * bytes.len() as u64,
        repair_budget: REPAIR_BUDGET * bytes.len() as u64,
        given_up: false,
    };
    let span = Span { begun: used.begun, ..Span::default() };
    // How far back older versions lie is unknown: assume the farthest.
    let summary = Summary { behind: used.sequence.saturating_sub(1), ..Summary::EMPTY };
    let damaged = u64::from(used.trailer.is_some());
    let bytes = bytes.len() as u64;
    let mut listing = Listing {
        records: Vec::new(),
        summary,
        span,
        records_end: 0,
        damaged,
        gaps: Vec::new(),
        unreadable: false,
        given_up: false,
        complete: false,
        bytes,
    };
    let add = |listing: &mut Listing, at: usize, view: View<'_>| {
        listing.summary.add(Summary::moment(view.expiry()), view.header.stamp(used.base));
        listing.span.version = listing.span.version.max(view.version(used.base).0);
        listing.records.push(Listed {
            hash: kept(Key::new(view.key(), hash).hash),
            offset: at as u32,
            length: view.header.len() as u32,
            is_tombstone: view.header.is(mark::TOMBSTONE),
        });
        at + view.header.len()
    };
    let (mut at, mut last) = (HEADER_BYTES, 0);
    while at < limit {
        if let Some(view) = scan.sound(at) {
            last = last.max(view.header.sequence);
            at = add(&mut listing, at, view);
            continue;
        }
        if let Some(bytes) = scan.repaired(at) {
            let view = View::read(&bytes).expect("it was put right");
            last = last.max(view.header.sequence);
            listing.damaged += 1;
            at = add(&mut listing, at, view);
            continue;
        }
        let head = scan.plausible(at, last);
        let next = head.and_then(|head| scan.directly_behind(at, &head)).or_else(|| scan.next_sound(at + 1, last));
        if next.is_none() && used.trailer.is_none() {
            // The end of the log.
            break;
        }
        listing.damaged += 1;
        let (end, before) = next.map_or((limit, u64::MAX), |(end, sequence)| (end, sequence));
        // The damage may be confined to the value of the record that begins here, or to what follows it.
        let head = head.filter(|head| at + head.len() <= end && head.sequence < before);
        let seen = match head.and_then(|_| View::read(&scan.bytes[at..])) {
            Some(view) => add(&mut listing, at, view),
            None => at,
        };
        if seen < end {
            listing.gaps.push(seen as u32..end as u32);
        }
        at = end;
    }
    listing.records_end = at.min(limit) as u32;
    listing.given_up = scan.given_up;
    listing
}

/// Finds which of these uses a region's records belong to, when its ends are lost: the sequence number and the checksum key.
/// The first records belong to the newest use, since a region is filled from its start.
pub fn identify(bytes: &[u8], sequences: &[u64], seed: u64) -> Option<(u64, u64)> {
    let mut scan = Scan { bytes, salt: 0, scan_budget: 0, lonely_budget: 0, repair_budget: 0, given_up: false };
    let salts: Vec<(u64, u64)> = sequences
        .iter()
        .flat_map(|sequence| [VERSION, VERSION_1].map(|version| (*sequence, salt_of(version, *sequence, seed))))
        .collect();
    let (mut at, mut tried) = (HEADER_BYTES, 0);
    while at < bytes.len() && tried < IDENTIFY_MAX {
        let header = scan.plausible(at, 0);
        let Some(header) = header.filter(|header| scan.may_follow(at + header.len(), header.sequence)) else {
            at += 1;
            continue;
        };
        tried += 1;
        let view = View::read(&bytes[at..]).expect("it is whole");
        let content = view.content_hash();
        let fits = |salt: u64| view.is_sound_with(content, Salt { key: salt, offset: at as u32 });
        if let Some(found) = salts.iter().find(|(_, salt)| fits(*salt)) {
            scan.salt = found.1;
            // One in 2^32 fits by chance.
            let next = at + header.len();
            if sequences.len() <= IDENTIFY_SURELY || scan.sound(next).is_some() {
                return Some(*found);
            }
        }
        at += 1;
    }
    None
}

struct Scan<'b> {
    /// The region's bytes, up to the end of its records if that is known.
    bytes: &'b [u8],
    salt: u64,
    scan_budget: u64,
    lonely_budget: u64,
    repair_budget: u64,
    /// The budget ran out before all candidates were hashed.
    given_up: bool,
}

impl<'b> Scan<'b> {
    /// The record at an offset, if it is sound.
    fn sound(&self, at: usize) -> Option<View<'b>> {
        let view = View::read(self.bytes.get(at..)?)?;
        (view.is_whole() && view.is_sound(Salt { key: self.salt, offset: at as u32 })).then_some(view)
    }

    /// The record directly after one with that header, if it is sound and newer: then only the first one's value is damaged.
    fn directly_behind(&self, at: usize, header: &Header) -> Option<(usize, u64)> {
        let next = at + header.len();
        let sequence = self.sound(next)?.header.sequence;
        (sequence > header.sequence).then_some((next, sequence))
    }

    /// The first sound record from an offset on that is newer than `after`: where it begins, and its sequence number.
    fn next_sound(&mut self, from: usize, after: u64) -> Option<(usize, u64)> {
        for at in from..self.bytes.len() {
            let Some(header) = self.plausible(at, after) else { continue };
            let is_followed = self.may_follow(at + header.len(), header.sequence);
            let budget = if is_followed { &mut self.scan_budget } else { &mut self.lonely_budget };
            let Some(left) = budget.checked_sub(header.len() as u64) else {
                self.given_up = true;
                continue;
            };
            *budget = left;
            if self.sound(at).is_some() {
                return Some((at, header.sequence));
            }
        }
        None
    }

    /// The header at an offset, if it can be that of a whole record newer than `after`.
    #[inline]
    fn plausible(&self, at: usize, after: u64) -> Option<Header> {
        let bytes = self.bytes.get(at..at + RECORD_HEADER)?;
        // Most offsets fail here, and all zeros do.
        if bytes[14] == 0 || bytes[14] > KEY_BYTES_MAX {
            return None;
        }
        let header = Header::read(bytes)?;
        let is_possible = header.sequence > after
            && header.len() <= self.bytes.len() - at
            && (!header.is(mark::TOMBSTONE) || header.value_length == 0);
        is_possible.then_some(header)
    }

    /// Whether a record after one with that sequence number may begin at an offset, or nothing was written there yet, or the block
    /// is lost.
    fn may_follow(&self, at: usize, after: u64) -> bool {
        match self.bytes.get(at..at + RECORD_HEADER) {
            None => true,
            Some(bytes) => bytes.iter().all(|byte| *byte == 0) || self.plausible(at, after).is_some(),
        }
    }

    /// Repairs a record with one flipped bit in header or key. It is not served, but gives its key and where the next one begins.
    fn repaired(&mut self, at: usize) -> Option<Vec<u8>> {
        let rest = self.bytes.get(at..)?;
        let header_end = Header::read(rest)?.value_start().min(rest.len());
        let mut head = rest[..header_end].to_vec();
        for bit in 0..header_end * 8 {
            head[bit / 8] ^= 1 << (bit % 8);
            let found = self.with_head(at, &head);
            if found.is_some() {
                return found;
            }
            head[bit / 8] ^= 1 << (bit % 8);
        }
        None
    }

    /// The record at an offset with its first bytes replaced by `head`, if that makes it sound.
    fn with_head(&mut self, at: usize, head: &[u8]) -> Option<Vec<u8>> {
        let header = Header::read(head)?;
        let bytes = self.bytes.get(at..at + header.len())?;
        self.repair_budget = self.repair_budget.checked_sub(header.len() as u64)?;
        let patched = head.len().min(bytes.len());
        let mut whole = bytes.to_vec();
        whole[..patched].copy_from_slice(&head[..patched]);
        let view = View::read(&whole)?;
        view.is_sound(Salt { key: self.salt, offset: at as u32 }).then_some(whole)
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn damage_costs_what_it_hits_and_no_more(data in prop::collection::vec(any::<u8>(), 0..2000)) {
            crate::regions::check::check_region(&data);
        }
    }
}
