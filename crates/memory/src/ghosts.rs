//! Ghosts: hashes of keys evicted from the probationary log. A write that finds its key here was wanted again soon after
//! it left, and goes straight to the main log (S3-FIFO, Yang et al., SOSP 2023, section 4).
//!
//! A set-associative table of 32-bit fingerprints: a cache line holds 16 of them in order of arrival, and a newcomer
//! pushes out the oldest of its line. That keeps the order of the whole table nearly first-in-first-out, for 4 bytes a
//! ghost and one cache line a look.

use moneta_pages::{PAGE_BYTES, Page};

use crate::shard::SHARD_BITS_MAX;

/// Ghosts in a line.
const WAYS: usize = 16;
/// Words of 64 bits in a line.
const LINE_WORDS: usize = WAYS / 2;
/// Ghosts in a page.
pub(crate) const PAGE_GHOSTS: usize = PAGE_BYTES / 4;

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

    /// Remembers a key.
    pub(crate) fn add(&mut self, hash: u64) {
        let Some((line, fingerprint)) = self.line(hash) else { return };
        let mut carry = fingerprint;
        for word in line.iter_mut() {
            let pushed_out = (*word >> 32) as u32;
            *word = (*word << 32) | u64::from(carry);
            carry = pushed_out;
        }
    }

    /// Whether a key is remembered; it is forgotten with the question.
    pub(crate) fn take(&mut self, hash: u64) -> bool {
        let Some((line, fingerprint)) = self.line(hash) else { return false };
        for word in line.iter_mut() {
            for shift in [0, 32] {
                if (*word >> shift) as u32 == fingerprint {
                    *word &= !(u64::from(u32::MAX) << shift);
                    return true;
                }
            }
        }
        false
    }

    /// The line and fingerprint of a hash. The fingerprint 0 means none, so it is never used.
    fn line(&mut self, hash: u64) -> Option<(&mut [u64], u32)> {
        if self.pages.is_empty() {
            return None;
        }
        let lines = self.pages.len() * PAGE_GHOSTS / WAYS;
        // The topmost bits are the same for all keys of a shard; those below choose the line (multiply-shift), the low ones
        // tell keys apart.
        let line = ((u128::from(hash << SHARD_BITS_MAX) * lines as u128) >> 64) as usize;
        let fingerprint = (hash as u32).max(1);
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

    #[test]
    fn remembers_the_latest_and_forgets_the_oldest() {
        let mut ghosts = Ghosts::default();
        ghosts.grow(PagePool::new().take().expect("memory"));
        let total = 4 * PAGE_GHOSTS as u64;
        for number in 0..total {
            ghosts.add(hash(number));
        }
        let recent = (total - PAGE_GHOSTS as u64 / 4..total).filter(|&number| ghosts.take(hash(number))).count();
        assert!(recent > PAGE_GHOSTS / 4 * 99 / 100, "{recent} of the latest quarter");
        let old = (0..PAGE_GHOSTS as u64).filter(|&number| ghosts.take(hash(number))).count();
        assert!(old < PAGE_GHOSTS / 50, "{old} of the oldest");
    }

    #[test]
    fn a_ghost_is_taken_once() {
        let mut ghosts = Ghosts::default();
        ghosts.grow(PagePool::new().take().expect("memory"));
        ghosts.add(hash(1));
        assert!(ghosts.take(hash(1)));
        assert!(!ghosts.take(hash(1)));
    }

    #[test]
    fn without_memory_nothing_is_remembered() {
        let mut ghosts = Ghosts::default();
        ghosts.add(1);
        assert!(!ghosts.take(1));
    }
}
