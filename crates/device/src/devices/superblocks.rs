//! The superblocks of all devices of a tier, and the order in which they are written.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::state::TierState;
use super::superblock::{Head, IN_USE, RETIRED_MAX, Superblock};
use super::tier::{Candidate, Plan};
use crate::error::TierError;
use crate::io::{Media, in_doubt};

/// The last written superblocks, one for each device.
pub(super) struct Superblocks {
    generation: u64,
    members: Vec<Member>,
    /// Syncs of devices that have failed, whichever thread made them.
    failed_syncs: Arc<AtomicU64>,
}

struct Member {
    superblock: Superblock,
    /// The copy to write next: never the newest valid one.
    copy: usize,
}

impl Superblocks {
    /// Writes the superblocks of `plan`. At every moment the devices hold the old tier, the kept tier, or a tier that starts empty:
    /// never a mixture that would be refused.
    pub(super) fn carry_out(
        plan: Plan,
        candidates: &[Candidate],
        media: &[Arc<dyn Media>],
        failed_syncs: Arc<AtomicU64>,
    ) -> Result<Self, TierError> {
        let members = Vec::with_capacity(candidates.len());
        let mut superblocks = Self { generation: plan.generation, members, failed_syncs };
        if plan.fresh {
            give_up(candidates, media, plan.generation + 1)?;
            superblocks.generation += 1;
        }
        for (wanted, candidate) in plan.superblocks.into_iter().zip(candidates) {
            let given_up = usize::from(plan.fresh && is_alive(candidate));
            superblocks.members.push(Member { superblock: wanted, copy: next_copy(candidate) ^ given_up });
        }
        let is_new = |number: usize| !superblocks.members[number].superblock.is_of_device(&candidates[number].head);
        let newcomers: Vec<usize> = (0..candidates.len()).filter(|&number| is_new(number)).collect();
        let changed: Vec<usize> = (0..candidates.len())
            .filter(|number| !newcomers.contains(number))
            .filter(|&number| !superblocks.members[number].superblock.is_on(&candidates[number].head))
            .collect();
        // New devices are written first, both copies: until the others name them, the tier is complete without them. In a new
        // tier no superblock is valid before each device has one: an interrupted start must not leave a tier that lacks a device.
        let unfinished = |number| (number, plan.fresh);
        let order = newcomers.iter().copied().map(unfinished);
        for (number, abandoned) in order.chain(newcomers.iter().chain(&changed).map(|number| (*number, false))) {
            superblocks.generation += 1;
            superblocks.members[number].superblock.state.abandoned = abandoned;
            superblocks.write(number, &media[number]).map_err(|error| cannot_write(&candidates[number].path, error))?;
        }
        Ok(superblocks)
    }

    /// Superblocks for inspection only.
    pub(super) fn found(superblocks: Vec<Superblock>) -> Self {
        let generation = superblocks.iter().map(|superblock| superblock.generation).max().unwrap_or(0);
        let members = superblocks.into_iter().map(|superblock| Member { superblock, copy: 0 }).collect();
        Self { generation, members, failed_syncs: Arc::default() }
    }

    /// The last written superblock of each device.
    pub(super) fn all(&self) -> impl Iterator<Item = &Superblock> {
        self.members.iter().map(|member| &member.superblock)
    }

    /// The tier's state.
    pub(super) fn state(&self) -> TierState {
        self.members[0].superblock.state
    }

    /// Sets from which stamp on the log has all changes, and the last that may be lost. The next [`Superblocks::save`] writes it.
    pub(super) fn set_feed(&mut self, feed_from: u64, lost: u64) {
        let states = self.members.iter_mut().map(|member| &mut member.superblock.state);
        states.for_each(|state| (state.feed_from, state.lost) = (feed_from, lost));
    }

    /// Marks a region of a device as retired, or with [`IN_USE`] as one that is to be. The next [`Superblocks::save`] writes it.
    pub(super) fn retire(&mut self, device: usize, number: u32) {
        let retired = &mut self.members[device].superblock.retired;
        if number & IN_USE == 0 {
            retired.retain(|known| *known != number | IN_USE);
        }
        if retired.iter().any(|known| known & !IN_USE == number & !IN_USE) {
            return;
        }
        if retired.len() == RETIRED_MAX {
            tracing::warn!(device, "more regions are bad than the superblock has room for; replace the device");
        }
        retired.push(number);
    }

    /// Writes another state to all devices; returns the first failure, after trying all.
    /// What it says of the feed is not taken: that is changed by [`Superblocks::set_feed`] alone, on another thread.
    pub(super) fn save(&mut self, state: &TierState, media: &[Arc<dyn Media>]) -> io::Result<()> {
        let TierState { feed_from, lost, .. } = self.state();
        let state = TierState { feed_from, lost, ..*state };
        self.generation += 1;
        let mut outcome = Ok(());
        for (number, media) in media.iter().enumerate() {
            self.members[number].superblock.state = state;
            outcome = outcome.and(self.write(number, media));
        }
        outcome
    }

    fn write(&mut self, number: usize, media: &Arc<dyn Media>) -> io::Result<()> {
        let failures = self.failed_syncs.load(Ordering::Acquire);
        let member = &mut self.members[number];
        member.superblock.generation = self.generation;
        member.superblock.write(media.as_ref(), member.copy)?;
        if self.failed_syncs.load(Ordering::Acquire) != failures {
            return Err(in_doubt());
        }
        member.copy ^= 1;
        Ok(())
    }
}

impl Superblock {
    fn is_of_device(&self, head: &Head) -> bool {
        matches!(head, Head::Ours(found, _) if (found.tier, found.device) == (self.tier, self.device))
    }

    /// Whether `head` equals the superblock except for its generation.
    fn is_on(&self, head: &Head) -> bool {
        matches!(head, Head::Ours(found, _) if Self { generation: self.generation, ..found.clone() } == *self)
    }
}

/// Marks every device of a tier as abandoned, so that an interrupted start never leaves a part of it beside a part of its
/// successor.
fn give_up(candidates: &[Candidate], media: &[Arc<dyn Media>], generation: u64) -> Result<(), TierError> {
    for (candidate, media) in candidates.iter().zip(media).filter(|(candidate, _)| is_alive(candidate)) {
        let Head::Ours(found, _) = &candidate.head else { continue };
        let state = TierState { abandoned: true, ..found.state };
        let given_up = Superblock { generation, state, ..found.clone() };
        given_up.write(media.as_ref(), next_copy(candidate)).map_err(|error| cannot_write(&candidate.path, error))?;
    }
    Ok(())
}

fn is_alive(candidate: &Candidate) -> bool {
    matches!(&candidate.head, Head::Ours(found, _) if !found.state.abandoned)
}

fn next_copy(candidate: &Candidate) -> usize {
    match candidate.head {
        Head::Ours(_, copy) => copy ^ 1,
        _ => 0,
    }
}

fn cannot_write(path: &Path, source: io::Error) -> TierError {
    TierError::Io { path: path.to_owned(), what: "write its superblock", source }
}
