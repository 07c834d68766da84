//! What a change does to a store: the one place where changes become operations, and their ends what became of the changes.

use moneta_store::feed::Change;
use moneta_store::{
    Cx, Deleted, ErrorKind, ItemRef, Key, Op, Outcome, Put, Step, Store, StoreError, Unseen, Value, Written, component,
};

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The store has it now, or had it.
    Taken,
    /// The store has something newer.
    Superseded,
    /// The store does not create the item, since it may have forgotten a delete of the key. Told of items that the key holds now.
    Unsure,
    /// The same, of an item that the key no longer held at the source. It may have been deleted.
    Outdated,
    /// The store has no room for it: it is larger than what it takes, or its memory is full and nothing goes from it.
    Refused,
    /// It changes nothing: a gap, a loss, or a set without its value.
    Nothing,
}

/// When the items of a feed were last known to be current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AsOf {
    /// Now: what is newer follows in the same feed before the store answers reads.
    Now,
    /// When the feed says; else now.
    Told,
}

/// Begins to apply a change to a store, in mode newer: in any order, and any number of times. `now`: by the store's clock, in
/// milliseconds since the Unix epoch. A flush is to be begun when what came before it has ended, and to have ended before what
/// comes after it.
pub fn begin<S: Store>(store: &S, cx: &Cx, change: &Change, as_of: AsOf, now: u64) -> Step<Fate> {
    match change {
        Change::Set(set) => {
            let Some(value) = &set.value else { return Step::done(Fate::Nothing) };
            let item = ItemRef { meta: set.meta, value: Value::whole(value) };
            let (since, is_current) = match (as_of, set.as_of) {
                (AsOf::Told, Some(since)) => (since, false),
                _ => (now, true),
            };
            let op = Op::Put(&item, Put::Newer { as_of: since, base: None });
            call(store, cx, &set.key, op).map(move |outcome| match outcome.written() {
                Written::Stored { .. } | Written::Unchanged { .. } => Fate::Taken,
                Written::NotStored if is_current => Fate::Unsure,
                Written::NotStored => Fate::Outdated,
                Written::TooLarge | Written::OutOfMemory => Fate::Refused,
                _ => Fate::Superseded,
            })
        }
        Change::Delete { key, version } => {
            call(store, cx, key, Op::Bury(*version)).map(|outcome| match outcome.deleted() {
                Deleted::Superseded { .. } => Fate::Superseded,
                _ => Fate::Taken,
            })
        }
        Change::Flush(floor) => component::floor(store, cx, *floor).map(|()| Fate::Taken),
        Change::Gap(_) | Change::Lost { .. } => Step::done(Fate::Nothing),
    }
}

fn call<S: Store>(store: &S, cx: &Cx, key: &[u8], op: Op<'_>) -> Step<Outcome> {
    store.call(cx, &Key::new(key, store.seed()), op, &mut Unseen)
}

/// What became of changes, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The store has them now, or had them.
    pub taken: u64,
    /// The store has something newer.
    pub superseded: u64,
    /// Not created: the store may have forgotten a delete.
    pub unsure: u64,
    /// The store had no room for them.
    pub refused: u64,
}

impl Tally {
    /// Counts one more.
    pub fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Taken => self.taken += 1,
            Fate::Superseded | Fate::Outdated => self.superseded += 1,
            Fate::Unsure => self.unsure += 1,
            Fate::Refused => self.refused += 1,
            Fate::Nothing => {}
        }
    }
}

/// Whether the same may succeed later. What is refused for being ahead of the clock is not, once time has passed.
pub fn may_pass(error: &StoreError) -> bool {
    !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::NoVersions)
}
