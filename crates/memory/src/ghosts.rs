//! Ghosts: hashes of evicted keys. A write that finds its key here was wanted again soon after it left, and goes straight to
//! the main log (S3-FIFO, Yang et al., SOSP 2023, section 4). From which log it left, and how long ago, says which of the two
//! logs is too short.
//!
//! A set-associative table: a cache line holds 32 ghosts in order of arrival, and a newcomer pushes out the oldest of its
//! line. That keeps the order of the whole table nearly first-in-first-out, for 2 bytes a ghost and one cache line a look.
//!
//! ```text
//!  15    14 ... 0
//! +-----+-------------+
//! | log | fingerprint |   0: none
//! +-----+-------------+
//! ```
//!
//! The table grows in whole pages, so there may be many more places than items. Only as many of a line's youngest places are
//! looked at as make one ghost an item: what was pushed further would not be a hit in a cache of twice the size.

use moneta_pages::{PAGE_BYTES, Page};

use crate::hash_bits::SHARD_BITS_MAX;
use crate::segments::Log;

/// Places in a line.
const WAYS: usize = 32;
/// Words of 64 bits in a line.
const LINE_WORDS: usize = WAYS / PER_WORD;
/// Ghosts in a word.
const PER_WORD: usize = 4;
/// Ghosts in a page.
pub(crate) const PAGE_GHOSTS: usize = PAGE_BYTES / 2;
/// The bit of a ghost that tells the main log.
const MAIN: u16 = 1 << 15;

/// What is known of a key that was evicted lately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// The log it left.
    pub(crate) log: Log,
    /// Whether it belongs to the younger half of the ghosts.
    pub(crate) recent: bool,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    pages: Vec<Page>,
}

impl Ghosts {
    /// Pages it is made of.
    pub(crate) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Makes the table one page larger. Which line a hash belongs to depends on the number of pages, so all ghosts are
    /// forgotten; it happens a few times while a shard first fills.
    pub(crate) fn grow(&mut self, page: Page) {
        self.pages.push(page);
        self.clear();
    }

    /// Gives back all pages but `pages`. All ghosts are forgotten, as in [`Ghosts::grow`].
    pub(crate) fn shrink(&mut self, pages: usize) {
        self.pages.truncate(pages);
        self.clear();
    }

    /// Forgets all ghosts.
    pub(crate) fn clear(&mut self) {
        self.pages.iter_mut().for_each(Page::zero);
    }

    /// Remembers a key that left `log`.
    pub(crate) fn add(&mut self, hash: u64, log: Log) {
        let Some((line, fingerprint)) = self.line(hash) else { return };
        let mut carry = u64::from(if log == Log::Main { fingerprint | MAIN } else { fingerprint });
        for word in line.iter_mut() {
            let pushed_out = *word >> 48;
            *word = *word << 16 | carry;
            carry = pushed_out;
        }
    }

    /// What is remembered of a key, among as many ghosts as there are `items`. It is forgotten with the question.
    pub(crate) fn take(&mut self, hash: u64, items: usize) -> Option<Ghost> {
        let ways = self.ways(items);
        let (line, fingerprint) = self.line(hash)?;
        for place in 0..ways {
            let (word, shift) = (&mut line[place / PER_WORD], place % PER_WORD * 16);
            let ghost = (*word >> shift) as u16;
            if ghost & !MAIN == fingerprint {
                *word &= !(u64::from(u16::MAX) << shift);
                let log = if ghost & MAIN != 0 { Log::Main } else { Log::Small };
                return Some(Ghost { log, recent: 2 * place < ways });
            }
        }
        None
    }

    /// Places of a line that are in force with so many items.
    fn ways(&self, items: usize) -> usize {
        let places = (self.pages.len() * PAGE_GHOSTS).max(1);
        ((items * WAYS + places / 2) / places).clamp(1, WAYS)
    }

    /// The line and fingerprint of a hash. The fingerprint 0 means none, so it is never used.
    fn line(&mut self, hash: u64) -> Option<(&mut [u64], u16)> {
        if self.pages.is_empty() {
            return None;
        }
        let lines = self.pages.len() * PAGE_GHOSTS / WAYS;
        // The topmost bits are the same for all keys of a shard; those below choose the line (multiply-shift), the low ones
        // tell keys apart.
        let line = ((u128::from(hash << SHARD_BITS_MAX) * lines as u128) >> 64) as usize;
        let fingerprint = (hash as u16 & !MAIN).max(1);
        let lines_per_page = PAGE_GHOSTS / WAYS;
        let start = line % lines_per_page * LINE_WORDS;
        let words = self.pages[line / lines_per_page].words_mut();
        Some((&mut words[start..start + LINE_WORDS], fingerprint))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moneta_pages::PagePool;

    fn hash(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xd6e8_feb8_6659_fd93)
    }

    fn table() -> Ghosts {
        let mut ghosts = Ghosts::default();
        ghosts.grow(PagePool::new().take().expect("memory"));
        ghosts
    }

    #[test]
    fn remembers_the_latest_and_forgets_the_oldest() {
        let mut ghosts = table();
        let total = 4 * PAGE_GHOSTS as u64;
        for number in 0..total {
            ghosts.add(hash(number), Log::Small);
        }
        let mut count = |range: std::ops::Range<u64>| {
            range.filter(|&number| ghosts.take(hash(number), PAGE_GHOSTS).is_some()).count()
        };
        let recent = count(total - PAGE_GHOSTS as u64 / 4..total);
        assert!(recent > PAGE_GHOSTS / 4 * 99 / 100, "{recent} of the latest quarter");
        let old = count(0..PAGE_GHOSTS as u64);
        assert!(old < PAGE_GHOSTS / 50, "{old} of the oldest");
    }

    #[test]
    fn there_are_no_more_ghosts_than_items() {
        for items in [PAGE_GHOSTS / 16, PAGE_GHOSTS / 3, PAGE_GHOSTS] {
            let mut ghosts = table();
            let total = 4 * PAGE_GHOSTS as u64;
            (0..total).for_each(|number| ghosts.add(hash(number), Log::Small));
            let found = (0..total).filter(|&number| ghosts.take(hash(number), items).is_some()).count();
            assert!((items * 9 / 10..=items * 11 / 10).contains(&found), "{found} ghosts of {items} items");
        }
    }

    #[test]
    fn a_ghost_tells_the_log_it_left_and_whether_that_was_lately() {
        let mut ghosts = table();
        let items = PAGE_GHOSTS / 2;
        for number in 0..items as u64 {
            ghosts.add(hash(number), if number % 3 == 0 { Log::Main } else { Log::Small });
        }
        let (mut recent, mut older) = (0, 0);
        for number in 0..items as u64 {
            let Some(ghost) = ghosts.take(hash(number), items) else { continue };
            assert_eq!(ghost.log, if number % 3 == 0 { Log::Main } else { Log::Small });
            recent += usize::from(ghost.recent && number >= items as u64 * 3 / 4);
            older += usize::from(ghost.recent && number < items as u64 / 4);
        }
        assert!(recent > items / 4 * 9 / 10, "{recent} of the youngest quarter are recent");
        assert!(older < items / 40, "{older} of the oldest quarter are recent");
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let mut ghosts = table();
        ghosts.add(hash(1), Log::Small);
        assert!(ghosts.take(hash(1), 1).is_some());
        assert!(ghosts.take(hash(1), 1).is_none());
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let mut ghosts = Ghosts::default();
        ghosts.add(1, Log::Small);
        assert!(ghosts.take(1, 1).is_none());
    }
}
