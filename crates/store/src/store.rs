//! The one interface of everything that answers cache commands.

use moneta_protocol::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

use crate::key::Key;
use crate::key_hash::KeyHash;
use crate::outcome::{Deleted, Lookup, Number, Pending, Step, Written};
use crate::stats::{Figure, StoreStats};
use moneta_protocol::item::{ItemMeta, ItemRef};

/// Receives the item of a hit while it lies still in the engine. Encoders are visitors: the value is copied once, into the
/// connection's output buffer.
pub trait Visit {
    /// Called once for a hit that needs no wait.
    fn item(&mut self, item: &ItemRef<'_>);
}

impl<F: FnMut(&ItemRef<'_>)> Visit for F {
    #[inline]
    fn item(&mut self, item: &ItemRef<'_>) {
        self(item);
    }
}

/// Anything that answers cache commands: an engine, a tiered pair, a remote server, a whole cluster.
///
/// Workers share one store; a request that can be answered from RAM is answered before the call returns, one that has to
/// wait comes back as a future of its own ([`Step::Wait`]). Every operation on one key is atomic.
pub trait Store {
    /// How [`Key`]s for this store are hashed.
    fn seed(&self) -> KeyHash;

    /// Tells the store which keys will be read next, so that it may fetch cache lines early. Changes nothing.
    fn prefetch(&self, keys: &[Key<'_>]) {
        let _ = keys;
    }

    /// Reads an item, with the side effects `request` asks for.
    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup>;

    /// Writes an item.
    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written>;

    /// Deletes an item, or marks it as `request` says.
    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted>;

    /// Adds to or subtracts from an item that holds a decimal number.
    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number>;

    /// Looks at an item without any side effect, not even on eviction order; for `me` and tools.
    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup>;

    /// Drops everything stored so far, now or at the moment `delay` names (as an expiration time; 0 and negative: now).
    /// What is stored between the call and that moment goes too. A later call replaces an earlier one that still waits.
    fn flush(&self, delay: Exptime) -> Step<()>;

    /// Walks a bounded batch of items and moves `cursor`. Items stored before the walk began and neither changed nor evicted
    /// meanwhile are each shown once, whatever reads go on that touch nothing and win nothing.
    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking;

    /// Gauges and counters, summed over shards.
    fn stats(&self) -> StoreStats;

    /// What no other kind of store has in its statistics: numbers under names of their own, for metrics and `stats`. A layer
    /// passes on those of what it wraps.
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    /// Changes the limit on memory, in bytes; the store evicts down to it over the next writes. False if it cannot take
    /// that limit.
    fn resize(&self, limit: u64) -> bool;

    /// Reports departures to `observer` from now on; `None` stops. Costs nothing while nobody observes.
    fn observe(&self, observer: Option<std::sync::Arc<dyn Observer>>);

    /// What does this store's I/O on the calling thread, for a thread that turns an event loop. Called once by each worker,
    /// before its first request; threads without a driver are served too, by other means. `None`: no need of one.
    fn driver(&self) -> Option<Box<dyn Driver>> {
        None
    }

    /// Whether the store is fit to serve, for readiness checks and operators.
    fn health(&self) -> Health {
        Health::default()
    }

    /// Brings everything accepted so far to rest: what a store keeps on a device is written out. The last call before the
    /// store is dropped; nothing may be asked of it afterwards.
    fn close(&self) {}
}

/// A store that can be handed whole items: what a tier has to do for the layer above it.
///
/// A tier that lies above another one may fail any request, and any of its futures may be dropped before its end. Whatever
/// became of it: from the moment an [`install`](Tier::install) or a [`delete`](Store::delete) has failed or was dropped, reads
/// never again show what the key had before, nor what was to be stored, not even if the command takes effect only later, in a
/// process or a buffer that hangs; until a later install shows its own. Nor does it repeat a command by itself whose
/// first sending may still take effect. A tier in this process has all that for nothing: what it does, it does before it
/// answers.
pub trait Tier: Store {
    /// Stores `item` as it is, marks and all, whatever the key held before; or, with [`Install::Replace`], only over an item
    /// that is there. `meta.cas` becomes the item's CAS value; where it is 0 the store picks one. `meta.expiry_before` and
    /// `meta.won` are not kept. A failure leaves nothing under the key.
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written>;

    /// A CAS value for a version of `key` that the tier is not given: higher than that of any version of the key it was given
    /// or told so before, and never picked again. 0: the tier keeps no such count.
    fn next_cas(&self, key: &Key<'_>) -> u64 {
        let _ = key;
        0
    }

    /// The Unix second of a delayed flush that was asked for before this process and is still to come.
    fn pending_flush(&self) -> Option<u32> {
        None
    }

    /// Seconds by which a delayed flush may take place later here than by this process's clock: 0, unless the tier goes by a
    /// clock of its own.
    fn flush_lag(&self) -> u32 {
        0
    }

    /// Whether it has an item under `key`, as far as it knows without waiting; where it would have to wait, yes.
    fn holds(&self, key: &Key<'_>) -> bool {
        matches!(
            self.peek(key, &mut |_: &ItemRef<'_>| ()),
            Step::Wait(_) | Step::Done(Ok(Lookup::Visited | Lookup::Found(_)))
        )
    }

    /// Makes sure, at once and without fail, that nothing that lies under the key now can be read any more; more than that may
    /// go. For a tier above another one, when a change is given up half way and nobody is left who could wait. A tier whose
    /// deletes may wait or fail needs a way of its own.
    fn forget(&self, key: &Key<'_>) {
        let _ = self.delete(key, &Delete::default());
    }

    /// Tells the tier that the tier above it answers reads of this key, so that it does not take the item for one that
    /// nobody wants. Called for few of those reads. Changes nothing that a client can see.
    fn note_hit(&self, key: &Key<'_>) {
        let _ = key;
    }
}

/// Over what [`Tier::install`] stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Install {
    /// Over anything or nothing.
    Set,
    /// Only over a live item; else the answer is [`Written::NotStored`].
    Replace,
}

/// A store's I/O on one thread: what its futures wait for there is begun and ended by [`Driver::turn`].
pub trait Driver {
    /// A descriptor that becomes readable, anew each time, when [`Driver::turn`] has something to end: for pollers that go by
    /// changes (edge-triggered). Lives as long as the driver.
    fn descriptor(&self) -> std::os::fd::RawFd;

    /// Begins what was asked for since the last turn, ends what is done and wakes who waits for it. Never blocks.
    fn turn(&mut self);
}

/// Whether a store is fit to serve.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// It cannot answer what it is asked: not the time to send it traffic that can go elsewhere. A store that is slower or holds
    /// less than it should is ready, with a note.
    pub unready: bool,
    /// One sentence on everything out of the ordinary.
    pub notes: Vec<String>,
}

/// How far a walk came.
#[must_use]
pub enum Walking {
    /// There may be more: call again.
    More,
    /// That was the last batch.
    End,
    /// Nothing was shown: call again when this is done.
    Wait(Pending<()>),
}

/// Where a walk stands. Begin with the default.
#[derive(Debug, Default)]
pub struct Cursor {
    /// Shard, or tier and shard.
    pub shard: usize,
    /// Position in the shard, in the store's own terms.
    pub position: u64,
    /// The store's own memory for this walk of the shard; 0 before its first batch.
    pub level: u64,
    /// What the store keeps to hold a walk of the shard together; dropping the cursor ends it.
    pub token: Option<Box<dyn std::any::Any + Send>>,
}

/// An item that a walk shows.
#[derive(Clone, Copy, Debug)]
pub struct Walked<'a> {
    /// The key.
    pub key: &'a [u8],
    /// All but key and value.
    pub meta: ItemMeta,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Bytes of memory the item takes, key and header included.
    pub size: usize,
}

/// Why an item left without a client asking for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Room was needed.
    Evicted,
    /// Its time was up and its room was taken back.
    Expired,
}

/// An item that left.
#[derive(Clone, Copy, Debug)]
pub struct Departed<'a> {
    /// The key.
    pub key: &'a [u8],
    /// All but key and value.
    pub meta: ItemMeta,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Why.
    pub why: Departure,
}

/// Is told of items that leave by themselves. Called under a shard's lock: it must be quick and must not call the store.
pub trait Observer: Send + Sync {
    /// An item left.
    fn departed(&self, item: &Departed<'_>);
}
