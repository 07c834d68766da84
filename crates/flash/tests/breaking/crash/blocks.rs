//! Blocks that cannot be read when a node starts, and what that may cost.

use std::ops::Range;

use fastrand::Rng;

use super::super::drive::{HEAD, REGION};
use super::super::history::{name, value};

const BLOCK: usize = 4096;
/// Most bytes of a record in front of its key.
const HEADER_MAX: usize = 64;
/// Most bytes of a value in these tests, and more.
const VALUE_MAX: usize = 48 << 10;

/// A few blocks with something in them, at most one of a region: with both ends gone a region is more than a bad block.
pub fn choose(image: &[u8], rng: &mut Rng) -> Vec<u64> {
    let mut regions: Vec<u64> = (0..(image.len() as u64 - HEAD) / REGION).collect();
    rng.shuffle(&mut regions);
    let count = rng.usize(1..4);
    let used = regions.into_iter().filter_map(|region| {
        let start = (HEAD + region * REGION) as usize;
        let is_used = |block: &usize| image[start + block * BLOCK..][..BLOCK].iter().any(|byte| *byte != 0);
        let blocks: Vec<usize> = (0..REGION as usize / BLOCK).filter(is_used).collect();
        let ends = [blocks.first(), blocks.last()];
        // The ends are worth more than their share.
        let block = if rng.u8(0..4) == 0 { ends[rng.usize(0..2)].copied() } else { rng.choice(blocks) };
        block.map(|block| (start + block * BLOCK) as u64)
    });
    used.take(count).collect()
}

/// Whether bad blocks excuse that a key does not show what it shows without them, that is `sound`. `shows`: it shows something
/// else, rather than nothing.
pub fn excuse(image: &[u8], bad: &[u64], number: usize, sound: Option<u32>, shows: bool) -> bool {
    let needle = name(number);
    bad.iter().any(|block| {
        if let Some(region) = headless(image, *block as usize)
            && !shows
        {
            // Nothing tells any more what the region is: all that it holds is lost.
            return occurrences(image, region, &needle).next().is_some();
        }
        let bad = *block as usize..*block as usize + BLOCK;
        // Records in the block before it are misses if one reaches from there into it.
        let reach = if shows { bad.clone() } else { bad.start - BLOCK..bad.end };
        let near = reach.start.saturating_sub(VALUE_MAX)..(reach.end + HEADER_MAX + needle.len()).min(image.len());
        occurrences(image, near, &needle).any(|at| {
            let behind = at + needle.len();
            let found = version_at(number, &image[behind..]);
            // Where nothing shows without them, the newest record is a tombstone, or an item whose time is up.
            let counts = sound.is_none() || found == sound;
            let length = found.map_or(0, |version| value(number, version).len());
            counts && at - HEADER_MAX < reach.end && reach.start < behind + length
        })
    })
}

/// The region of a bad block that is one of its ends, if the crash has lost the other one.
fn headless(image: &[u8], bad: usize) -> Option<Range<usize>> {
    let start = HEAD as usize + (bad - HEAD as usize) / REGION as usize * REGION as usize;
    let (first, last) = (start, start + REGION as usize - BLOCK);
    let sequence = |at: usize| {
        let is_end = image[at..].starts_with(b"MONETARG") || image[at..].starts_with(b"MONETATR");
        is_end.then(|| u64::from_le_bytes(image[at + 24..at + 32].try_into().expect("eight bytes")))
    };
    let (header, tail) = (sequence(first), sequence(last + BLOCK - 64));
    let is_lost =
        (bad == first && tail < header) || (bad == last && header < tail) || header.is_none() && tail.is_none();
    is_lost.then_some(first..start + REGION as usize)
}

/// The version of a key whose value begins there; `None` for a tombstone, or what is none of the key.
pub fn version_at(number: usize, bytes: &[u8]) -> Option<u32> {
    let head = bytes[..bytes.len().min(HEADER_MAX)].split(|byte| *byte == b';').next()?;
    std::str::from_utf8(head).ok()?.strip_prefix(&format!("{number}:"))?.parse().ok()
}

/// Where `needle` is in a part of an image.
pub fn occurrences<'i>(image: &'i [u8], part: Range<usize>, needle: &'i [u8]) -> impl Iterator<Item = usize> + 'i {
    let found = image[part.clone()].windows(needle.len()).enumerate().filter(move |(_, window)| *window == needle);
    found.map(move |(at, _)| part.start + at)
}
