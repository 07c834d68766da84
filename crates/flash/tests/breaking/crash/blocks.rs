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
    let (needle, length) = match sound {
        Some(version) => {
            let value = value(number, version);
            let start = value.iter().position(|byte| *byte == b';').expect("a value has a head");
            ([name(number), value[..=start].to_vec()].concat(), value.len())
        }
        // A tombstone, which has no more than a key.
        None => (name(number), 0),
    };
    bad.iter().any(|block| {
        let bad = *block as usize..*block as usize + BLOCK;
        // Records in the block before it are misses if one reaches from there into it.
        let reach = if shows { bad.clone() } else { bad.start - BLOCK..bad.end };
        let near = reach.start.saturating_sub(VALUE_MAX)..(reach.end + HEADER_MAX + needle.len()).min(image.len());
        occurrences(image, near, &needle).any(|at| {
            let record = at - HEADER_MAX..at + name(number).len() + length;
            record.start < reach.end && reach.start < record.end
        })
    })
}

fn occurrences<'i>(image: &'i [u8], part: Range<usize>, needle: &'i [u8]) -> impl Iterator<Item = usize> + 'i {
    let found = image[part.clone()].windows(needle.len()).enumerate().filter(move |(_, window)| *window == needle);
    found.map(move |(at, _)| part.start + at)
}
