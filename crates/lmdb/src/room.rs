//! What goes by itself: the oldest items when room is needed, and the dead at each turn of the sweeper.
//!
//! LMDB copies every page that a removal touches, and uses what a transaction freed again only from the second one after it.
//! So items at random keys take more room to remove than they leave, until then. That is why they go in bites: transactions
//! of few items, between which writers get their turn. A bite for which there is no room is halved.

use std::sync::atomic::Ordering;

use heed::RwTxn;
use moneta_embedded::{Failure, Life};
use moneta_store::component::RemovalCause;

use crate::environment::{LmdbDatabase, failure};
use crate::tables::{Left, Tables};

/// Part of the file that is emptied when a batch found no room,
const ROOM_PART: u64 = 32;
/// but no more than so many pages: the writer waits meanwhile.
const ROOM_PAGES_MAX: u64 = 4096;
/// Items of a bite when room is made.
const EVICTED: usize = 32;
/// Fewest bites: from the second one on, LMDB uses the pages of earlier batches and of those who read them.
const BITES_MIN: usize = 2;
/// Most bites.
const BITES_MAX: usize = 64;
/// Pages of the reserve for each item of the sweeper's bite: so two bites take less than the reserve,
const RESERVE_PAGES_PER_SWEPT: u64 = 16;
/// of which there are no more than so many: writers wait meanwhile.
const SWEPT_MAX: u64 = 1000;
/// Items of each kind, expired and flushed, that go in one turn of the sweeper, about.
const SWEPT_PER_TURN: usize = 20_000;

/// What went in one transaction.
struct Bite {
    items: usize,
    /// By how much the trees have become smaller.
    pages: u64,
}

impl LmdbDatabase {
    /// Removes some of the oldest items; false if none could go.
    pub(crate) fn evict_some(&self) -> Result<bool, Failure> {
        let goal = (self.bytes / self.page_bytes / ROOM_PART).clamp(1, ROOM_PAGES_MAX);
        let (mut most, mut bites, mut freed) = (EVICTED, 0, 0);
        while bites < BITES_MIN || freed < goal && bites < BITES_MAX {
            let wanted = goal.saturating_sub(freed).max(1);
            match self.remove_bite(most, wanted, |tables, txn| tables.remove_oldest(txn, |_| true)) {
                Ok(bite) if bite.items == 0 => break,
                // Many of these share a page. They do not lack it, but what batches before took, and that is free now.
                Ok(bite) if bite.pages < bite.items as u64 && bites + 1 >= BITES_MIN => return Ok(true),
                Ok(bite) => freed += bite.pages,
                Err(Failure::Full(_)) if most > 1 => {
                    most /= 2;
                    continue;
                }
                Err(Failure::Full(_)) => break,
                Err(failure) => return Err(failure),
            }
            bites += 1;
        }
        Ok(bites > 0)
    }

    /// Removes what is dead, a bounded number of items.
    pub(crate) fn sweep(&self) -> Result<(), Failure> {
        let (now, flushed_below) = (self.shared.now(), self.shared.flushed_below());
        self.sweep_while(|tables, txn| tables.remove_oldest(txn, |sequence| sequence <= flushed_below))?;
        self.sweep_while(|tables, txn| tables.remove_expired(txn, now))
    }

    /// Has `next` remove items as long as it finds some. What there is no room for waits for the next turn: reads do not show it.
    fn sweep_while(
        &self,
        mut next: impl FnMut(&Tables, &mut RwTxn<'_>) -> heed::Result<Option<Left>>,
    ) -> Result<(), Failure> {
        let most = (self.reserve_pages() / RESERVE_PAGES_PER_SWEPT).clamp(1, SWEPT_MAX);
        let (mut most, mut swept) = (usize::try_from(most).unwrap_or(1), 0);
        while swept < SWEPT_PER_TURN {
            match self.remove_bite(most, u64::MAX, &mut next) {
                Ok(bite) if bite.items == 0 => break,
                Ok(bite) => swept += bite.items,
                Err(Failure::Full(_)) if most > 1 => most /= 2,
                Err(Failure::Full(_)) => break,
                Err(failure) => return Err(failure),
            }
        }
        Ok(())
    }

    /// Has `next` remove up to `most` items in one transaction, and no more when they have left `pages` pages.
    fn remove_bite(
        &self,
        most: usize,
        pages: u64,
        mut next: impl FnMut(&Tables, &mut RwTxn<'_>) -> heed::Result<Option<Left>>,
    ) -> Result<Bite, Failure> {
        let failed = |error| failure("remove items", &error);
        let mut txn = self.env.write_txn().map_err(failed)?;
        let before = self.tables.pages(&txn).map_err(failed)?;
        let (mut gone, mut freed) = (Vec::new(), 0);
        while gone.len() < most && freed < pages {
            let Some(left) = next(&self.tables, &mut txn).map_err(failed)? else { break };
            gone.push(left);
            freed = before.saturating_sub(self.tables.pages(&txn).map_err(failed)?);
        }
        if !gone.is_empty() {
            gone.iter().for_each(|left| self.remember(left));
            txn.commit().map_err(failed)?;
            gone.iter().for_each(|left| self.departed(left));
        }
        Ok(Bite { items: gone.len(), pages: freed })
    }

    /// Remembers an item that goes as its time is up: before it has gone, and no longer shows that it was there.
    pub(crate) fn remember(&self, left: &Left) {
        if self.shared.life(&left.header) == Life::Expired {
            self.shared.expired(&left.key, &left.header);
        }
    }

    /// Counts an evicted or expired item, and tells the observer.
    pub(crate) fn departed(&self, left: &Left) {
        let (counter, why) = match self.shared.life(&left.header) {
            Life::Live => (&self.counters.evicted, Some(RemovalCause::Evicted)),
            Life::Expired => (&self.counters.expired, Some(RemovalCause::Expired)),
            Life::Flushed => (&self.counters.flushed, None),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if why == Some(RemovalCause::Evicted) {
            self.counters.evicted_bytes.fetch_add(left.value_bytes as u64, Ordering::Relaxed);
        }
        if let Some(why) = why {
            self.shared.removed(&left.key, &left.header, left.value_bytes, why);
        }
    }
}
