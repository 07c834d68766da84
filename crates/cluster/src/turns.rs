//! Changes of a key that met others take turns: through one process they come one after the other, so that each of them ends.
//!
//! A change waits for its turn only after it was overtaken once, so one that meets no other waits for nothing, and a home that
//! hangs holds up no more than those that have met. One that is overtaken again and again in its turn, by changes that have met
//! no other yet, has these wait, too.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{Semaphore, SemaphorePermit};

/// Enough that changes of two keys rarely wait for each other; 56 KiB of memory.
const STRIPES: usize = 1024;
/// Bits of the hash above this choose the stripe: the lowest ones choose much else.
const SHIFT: u32 = 24;

/// A queue for each stripe of keys, first come first served.
pub(crate) struct Turns(Box<[Stripe]>);

struct Stripe {
    queue: Semaphore,
    /// The change whose turn it is was overtaken often.
    is_closed: AtomicBool,
}

/// The turn of a change. It lasts until it is dropped.
pub(crate) struct Turn<'t> {
    stripe: &'t Stripe,
    _permit: SemaphorePermit<'t>,
}

impl Default for Turns {
    fn default() -> Self {
        let stripe = || Stripe { queue: Semaphore::new(1), is_closed: AtomicBool::new(false) };
        Self(std::iter::repeat_with(stripe).take(STRIPES).collect())
    }
}

impl Turns {
    fn stripe(&self, hash: u64) -> &Stripe {
        &self.0[(hash >> SHIFT) as usize % STRIPES]
    }

    /// The turn of a change of the key with this hash.
    pub(crate) async fn take(&self, hash: u64) -> Turn<'_> {
        let stripe = self.stripe(hash);
        Turn { stripe, _permit: stripe.queue.acquire().await.expect("no stripe is ever closed") }
    }

    /// Whether changes of the key with this hash are to wait for their turn at once.
    pub(crate) fn is_closed(&self, hash: u64) -> bool {
        self.stripe(hash).is_closed.load(Ordering::Relaxed)
    }
}

impl Turn<'_> {
    /// Has all others wait until this turn ends.
    pub(crate) fn close(&self) {
        self.stripe.is_closed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.stripe.is_closed.store(false, Ordering::Relaxed);
    }
}
