//! The state of a tier, as superblocks keep it.

/// The state of the tier as a whole. Stored in every superblock; the newest is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierState {
    /// Regions with a lower sequence number are flushed.
    pub flushed_below: u64,
    /// Second at which a delayed flush takes effect; 0: none.
    pub flush_at: u32,
    /// Sequence numbers begin above this one. Also taken over by a tier that starts empty.
    pub sequence_floor: u64,
    /// The next run gives regions sequence numbers above this one: no run gives out a greater one than its superblocks have
    /// here. 0 in what earlier builds wrote.
    pub region_floor: u64,
    /// Identity of the valid index snapshot; 0: none.
    pub clean_stop: u64,
    /// The contents of the devices are void: the tier starts empty.
    pub abandoned: bool,
    /// The version of the last flush that was commanded; 0: none.
    pub floor_version: u64,
    /// The second at which it takes effect, or took.
    pub floor_from: u32,
    /// Items with a lower version count no longer: the greatest bound of all flushes that took effect.
    pub floor_bound: u64,
    /// The log has all changes with a greater stamp, as a version's time and counter; 0: it is not kept as a feed.
    pub feed_from: u64,
    /// The stamp at which a run began whose predecessor ended without a stop, and lost what it took last; 0: none did.
    pub lost: u64,
}
