//! What the handles of a reader and the rings of its workers share.

use std::sync::{Arc, Weak};

use moneta_store::Slot;
use parking_lot::Mutex;

use super::bell::Bell;
use super::counters::ReadCounters;
use super::media::Media;
use super::patience::Patience;
use super::pool::Pool;

pub(super) struct RingShared {
    pub(super) media: Vec<Arc<dyn Media>>,
    pub(super) counters: Arc<ReadCounters>,
    pub(super) patience: Arc<Patience>,
    /// The bells of all rings.
    pub(super) bells: Mutex<Vec<Weak<Bell>>>,
    pub(super) pool: Pool,
    /// Whether workers read through rings.
    pub(super) rings: bool,
    /// The slot of the workers' rings.
    pub(super) slot: Slot,
}
