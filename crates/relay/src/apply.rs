//! What a change of another region does to the cluster here, and what becomes of it.

use moneta_feed::Change;
use moneta_store::{
    Cx, Deleted, ItemRef, Key, Op, Outcome, Put, Step, Store, StoreError, Unseen, Value, Written, component,
};

use crate::config::Mode;

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The cluster has it now, or had it.
    Taken,
    /// The cluster has something newer, or has deleted the key later.
    Superseded,
    /// An item that the key no longer held when it was read, which the nodes may have deleted before what they remember: what
    /// came after it is told, too.
    Outdated,
    /// The nodes began so lately that they cannot tell whether they have deleted it: it is to be read again.
    Unsure,
    /// A rollback of the other region wrote it, or took what was there: that crosses as flushes do, and they do not.
    RolledBack,
    /// It is not here, and will not be.
    Refused(Refusal),
    /// It changes nothing: a gap, a loss, or a flush that does not cross.
    Nothing,
}

/// Why a change is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Its value is larger than what the relay or the nodes here take.
    TooLarge,
    /// The nodes have no room for it.
    NoRoom,
    /// The nodes refuse it again and again for another reason.
    Failed,
    /// A message of a topic that is none, or of a later format.
    Unreadable,
}

impl Refusal {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 4] = [Self::TooLarge, Self::NoRoom, Self::Failed, Self::Unreadable];

    /// Its word in metrics and on pages.
    pub fn word(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NoRoom => "no_room",
            Self::Failed => "failed",
            Self::Unreadable => "unreadable",
        }
    }
}

/// How changes are applied.
#[derive(Clone, Copy, Debug)]
pub struct Applying {
    /// Stored, or what is older deleted.
    pub mode: Mode,
    /// Flushes, too, and rollbacks.
    pub flush: bool,
    /// What was read since then, in milliseconds since the Unix epoch, and is not created, is to be read again.
    pub began: u64,
}

/// Begins to apply a change, in any order and any number of times. A flush is to be begun when what came before it has ended, and
/// to have ended before what comes after it.
pub fn begin<S: Store>(store: &S, cx: &Cx, change: &Change, applying: Applying) -> Step<Fate> {
    match change {
        Change::Set(set) if !applying.flush && set.meta.version().is_of_rollback() => Step::done(Fate::RolledBack),
        Change::Delete { version, .. } if !applying.flush && version.is_of_rollback() => Step::done(Fate::RolledBack),
        Change::Set(set) if applying.mode == Mode::Invalidate => {
            let below = set.meta.version().just_below();
            call(store, cx, &set.key, Op::Bury(below)).map(|outcome| buried(outcome.deleted()))
        }
        Change::Set(set) => {
            let Some(value) = &set.value else { return Step::done(Fate::Nothing) };
            let item = ItemRef { meta: set.meta, value: Value::whole(value) };
            // Without a moment nothing is known of it: it may replace, and creates nothing.
            let as_of = set.as_of.unwrap_or(0);
            let is_recent = as_of >= applying.began;
            call(store, cx, &set.key, Op::Put(&item, Put::Newer { as_of, base: None })).map(
                move |outcome| match outcome.written() {
                    Written::Stored { .. } | Written::Unchanged { .. } => Fate::Taken,
                    Written::NotStored if is_recent => Fate::Unsure,
                    Written::NotStored => Fate::Outdated,
                    Written::TooLarge => Fate::Refused(Refusal::TooLarge),
                    Written::OutOfMemory => Fate::Refused(Refusal::NoRoom),
                    _ => Fate::Superseded,
                },
            )
        }
        Change::Delete { key, version } => {
            call(store, cx, key, Op::Bury(*version)).map(|outcome| buried(outcome.deleted()))
        }
        Change::Flush(floor) if applying.flush => component::floor(store, cx, *floor).map(|()| Fate::Taken),
        Change::Flush(_) | Change::Gap(_) | Change::Lost { .. } => Step::done(Fate::Nothing),
    }
}

fn buried(deleted: Deleted) -> Fate {
    match deleted {
        Deleted::Superseded { .. } => Fate::Superseded,
        _ => Fate::Taken,
    }
}

fn call<S: Store>(store: &S, cx: &Cx, key: &[u8], op: Op<'_>) -> Step<Outcome> {
    store.call(cx, &Key::new(key, store.seed()), op, &mut Unseen)
}

/// What is to be done about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The same succeeds once time has passed, or nodes are back: again, without end.
    Wait,
    /// It may be a matter of this one change: again, a few times.
    Retry,
    /// What is written to is no cluster with versions.
    Stop,
}

/// What to do about an error of the cluster.
pub fn remedy(error: &StoreError) -> Remedy {
    use moneta_store::ErrorKind::*;
    match error.kind() {
        NoVersions | Unsupported => Remedy::Stop,
        Unavailable | Unreachable | Lost | Busy | Timeout | ClockAhead | CatchingUp => Remedy::Wait,
        _ => Remedy::Retry,
    }
}
