//! Items as entries of a store that can only get, set and delete, and that may fail, hang, forget, and come back: what makes
//! any memcached an upper tier.
//!
//! An item is a *head* under its key, which holds all that is known of it, and, where the value is long, *pieces* under names
//! of their own (`layout`). The store below sees plain entries without flags, that expire with the item or a little later;
//! whether an item lives is said by its head, to the second.
//!
//! **Nothing mixed, nothing half.** Each write has a random token, which its pieces have in name and content. Pieces are
//! written first, and the head, which takes the place of the old one, when all of them are acknowledged. So a head never
//! names a piece that was not there; a piece that was evicted since makes the item a miss; a piece of another write is not
//! taken. The pieces of an overwritten value lie there until they are evicted or expire; those of a deleted one are deleted.
//!
//! **Nothing old.** A change holds its key's lock, so the changes of a key reach the store below one after the other, and
//! readers, who take no lock, see one or the other. That alone does not help against a command that was given up and takes
//! effect later: in a server that hangs, in a socket's buffer. So each head names the *epoch* of its key's stripe (`epochs`),
//! and whenever a change fails, times out, or is dropped before its end, the epoch ends: what was written in it, or is yet to
//! be by a command under way, is a miss from then on, and so are its neighbours in the stripe. Another process begins with
//! new epochs, so after a restart everything is a miss, as with memory. Two processes must not share one server.
//!
//! | request | asked below |
//! |---|---|
//! | get | get of the head, then gets of all pieces at once; a peek or a read that does not count peeks |
//! | install, plain set | sets of all pieces at once, then set of the head |
//! | delete | get of the head, then deletes of head and pieces at once |
//! | set or delete by version | get, and set or deletes if it is newer |
//! | everything else | get, and set of what comes of it |
//! | flush | new epochs for all at their moment; flushed below if that is now, to make room |
//!
//! What differs from a store that knows items: when an item was last read is what its last write says (the read counts in the
//! store below, for its eviction order); the gauges are those of the store below, whose items are entries; an observer hears
//! nothing, since below only entries leave.

mod changes;
mod config;
mod counters;
mod draft;
mod epochs;
mod layout;
mod newer;
mod reads;
mod several;
mod versions;
mod walk;
mod writes;

use std::sync::Arc;

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::request::Exptime;
use moneta_store::steps::{finish, start, start_operation};
use moneta_store::versions::{Floor, Floors, Versioning};
use moneta_store::{
    Clock, Cx, Expiry, ItemMeta, Key, KeyHash, Lookup, Op, Outcome, OwnedKey, Put, Reactors, ReadSeveral, Step, Store,
    Version, Visit,
};

use crate::stripes::Stripes;
pub use config::ChunkedConfig;
use counters::ChunkedCounters;
pub(crate) use counters::metrics;
use epochs::Epochs;
use versions::Versions;

/// Items as entries of another store. Clones are handles on the same store.
pub struct Chunked<S> {
    shared: Arc<ChunkedShared<S>>,
}

/// What all handles share.
struct ChunkedShared<S> {
    below: S,
    config: ChunkedConfig,
    clock: Arc<Clock>,
    stripes: Stripes,
    epochs: Epochs,
    versions: Versions,
    counters: ChunkedCounters,
}

/// One operation under way: the store, and who asks. A future that waits keeps one.
struct Call<S> {
    shared: Arc<ChunkedShared<S>>,
    cx: Cx,
}

impl<S> Clone for Call<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), cx: self.cx.clone() }
    }
}

impl<S> std::ops::Deref for Call<S> {
    type Target = ChunkedShared<S>;

    fn deref(&self) -> &ChunkedShared<S> {
        &self.shared
    }
}

impl<S> Clone for Chunked<S> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<S> std::fmt::Debug for Chunked<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunked").field("config", &self.shared.config).finish_non_exhaustive()
    }
}

impl<S: Store + 'static> Chunked<S> {
    /// Items in `below`, whatever lies there already; nothing of it is ever shown. For a lone node.
    ///
    /// # Panics
    /// If a piece is to have no bytes.
    pub fn new(below: S, config: ChunkedConfig, clock: Arc<Clock>) -> Self {
        Self::versioned(below, config, &Versioning::default(), clock)
    }

    /// The same, which makes and keeps versions so. Its CAS values are versions.
    ///
    /// # Panics
    /// As [`Chunked::new`].
    pub fn versioned(below: S, config: ChunkedConfig, versioning: &Versioning, clock: Arc<Clock>) -> Self {
        Self::with_epochs(below, config, versioning, clock, Epochs::new())
    }

    /// One that shows entries of whatever epoch: only to see tests fail that show what epochs are good for.
    #[cfg(feature = "testing")]
    pub fn without_epochs(below: S, config: ChunkedConfig, clock: Arc<Clock>) -> Self {
        Self::with_epochs(below, config, &Versioning::default(), clock, Epochs::ignored())
    }

    fn with_epochs(
        below: S,
        config: ChunkedConfig,
        versioning: &Versioning,
        clock: Arc<Clock>,
        epochs: Epochs,
    ) -> Self {
        assert!(config.piece_bytes > 0, "a piece has bytes");
        let versions = Versions::new(versioning, Arc::clone(&clock));
        let (stripes, counters) = (Stripes::new(), ChunkedCounters::default());
        Self { shared: Arc::new(ChunkedShared { below, config, clock, stripes, epochs, versions, counters }) }
    }

    /// The store that the entries are in.
    pub fn below(&self) -> &S {
        &self.shared.below
    }
}

impl<S> ChunkedShared<S> {
    /// The CAS value of a new item: the one it comes with, or the next.
    fn cas(&self, meta: &ItemMeta) -> u64 {
        if meta.cas == 0 {
            return self.versions.next().0;
        }
        // A tier below may be ahead of this count; a client's own value, which is anything, must not be followed.
        if meta.cas < 1 << 63 {
            self.versions.note(meta.version());
        }
        meta.cas
    }
}

impl<S: Store + 'static> Store for Chunked<S> {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        let (call, owned) = (self.call_in(cx), OwnedKey::of(key));
        match op {
            Op::Read(request) => {
                let request = *request;
                start_operation(async move { call.retrieve(&owned.key(), &request).await })
            }
            Op::Peek => start_operation(async move { call.find(&owned.key(), false).await.map(Lookup::from) }),
            Op::Write(value, request) => call.write(key, value, request),
            Op::Delete(request) => {
                let request = *request;
                start_operation(async move { call.remove(&owned.key(), &request).await })
            }
            Op::Arithmetic(request) => {
                let request = *request;
                start_operation(async move { call.compute(&owned.key(), &request).await })
            }
            Op::Put(item, Put::Newer { as_of, base }) => call.put_newer(key, item, as_of, base),
            Op::Bury(version) => call.bury(key, version),
            Op::Put(item, how) => call.store_whole(key, item, how),
            Op::Drop => {
                self.shared.epochs.end(key.hash);
                Step::Done(Ok(Outcome::Done))
            }
            // To know that it would have to wait.
            Op::Holds => Step::Done(Ok(Outcome::Held(true))),
            // The store below counts reads of heads.
            Op::NoteHit => self.shared.below.call(cx, key, Op::NoteHit, &mut moneta_store::Unseen),
            Op::BuriedAs => {
                let version = self.shared.versions.buried(key.hash).0.unwrap_or_default();
                Step::Done(Ok(Outcome::Cas(version.0)))
            }
            Op::NextCas => Step::Done(Ok(Outcome::Cas(self.shared.versions.next().0))),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        self.shared.below.together().map(|_| self as _)
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.shared.below.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.shared.below.seed()
    }
}

impl<S: Store + 'static> Chunked<S> {
    fn call_in(&self, cx: &Cx) -> Call<S> {
        Call { shared: Arc::clone(&self.shared), cx: cx.clone() }
    }
}

impl<S: Store + 'static> Component for Chunked<S> {
    fn parts(&self) -> Parts<'_> {
        Parts {
            below: vec![&self.shared.below],
            walk: self.shared.below.parts().walk.map(|_| self as &dyn component::Walk),
            flush: Some(self),
            resize: self.shared.below.parts().resize,
            // Only entries leave the store below.
            observe: None,
            feed: None,
        }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, mut below: Vec<Report>) -> Report {
        let below = below.pop().expect("a report of the store below");
        Report { metrics: self.shared.counters.samples(self.shared.epochs.ended()), ..below }
    }

    fn health(&self, mut below: Vec<Health>) -> Health {
        below.pop().expect("the health of the store below")
    }

    fn close(&self) {}
}

impl<S: Store + 'static> Flush for Chunked<S> {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        let call = self.call_in(cx);
        start(async move {
            let _all = call.stripes.lock_all().await;
            let now = call.clock.now();
            let moment = Expiry::resolve(delay, now).0;
            let version = call.versions.next();
            call.versions.flush(Floor::new(version, Expiry(moment), now));
            // One of several copies keeps what is newer than a flush that waits: heads tell.
            if moment <= now || !call.versions.is_copy() {
                call.epochs.end_all(moment, now);
            }
            if moment <= now {
                // Nothing old can be read any more, whether there is room for the new or not.
                let _ = finish(component::flush(&call.below, &call.cx, Exptime::NEVER)).await;
            }
            Ok(())
        })
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let call = self.call_in(cx);
        start(async move {
            let _all = call.stripes.lock_all().await;
            if floor.is_local() {
                call.versions.lose();
                call.epochs.renew(call.clock.now());
                return Ok(());
            }
            // Alone, or above a tier that remembers more, nothing is kept over a flush.
            if call.versions.flush(floor) && !call.versions.is_copy() {
                let now = call.clock.now();
                call.epochs.end_all(if floor.waits(now) { floor.second } else { now }, now);
            }
            Ok(())
        })
    }

    fn floors(&self) -> Floors {
        self.shared.versions.floors()
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        component::newest(&self.shared.below, cx)
    }

    fn lag(&self) -> u32 {
        0
    }
}
