//! Changes of a key that met others take turns: through one process they come one after the other, so that each of them ends.
//!
//! A change waits for its turn only after it was overtaken once, so one that meets no other waits for nothing, and a home that hangs
//! holds up no more than those that have met.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Enough that changes of two keys rarely wait for each other; 40 KiB of memory.
const STRIPES: usize = 1024;
/// Bits of the hash above this choose the stripe: the lowest ones choose much else.
const SHIFT: u32 = 24;

/// A queue for each stripe of keys, first come first served.
pub(crate) struct Turns(Box<[Semaphore]>);

impl Default for Turns {
    fn default() -> Self {
        Self((0..STRIPES).map(|_| Semaphore::new(1)).collect())
    }
}

impl Turns {
    /// The turn of a change of the key with this hash. It lasts until the permit is dropped.
    pub(crate) async fn take(&self, hash: u64) -> SemaphorePermit<'_> {
        let stripe = &self.0[(hash >> SHIFT) as usize % STRIPES];
        stripe.acquire().await.expect("no stripe is ever closed")
    }
}
