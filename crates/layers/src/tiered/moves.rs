//! Keys that move to the lower tier during a walk.
//!
//! A walk reads the lower tier up to an end that is fixed when it begins, then shows of the upper tier what the lower one does
//! not hold. A key that only the upper tier had, and that is written below meanwhile, would be in neither part. So a writer
//! that moves a key down puts its name on the list of each walk under way, and the walk shows what is on its list.
//!
//! A key that moves up is in neither tier for a moment, and would be missed if the walk looked through the upper tier just then:
//! once it has begun with that, it is told of those too.
//!
//! A writer looks for walks while it holds the key's stripe. A walk registers, lets every change end that holds a stripe then
//! ([`crate::stripes::Stripes::pass_all`]), and only then reads the lower tier: what a writer moved without seeing the walk is
//! there before that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use moneta_store::{ErrorKind, Key, Op, OwnedKey, Store, StoreError, Unseen};
use parking_lot::Mutex;

use super::Call;

/// Keys on a list at most, 4 to 20 MiB: each batch of a walk shows what is there, so that only a walk that stands still while
/// that many keys move comes to it. It fails, rather than leave keys out without saying so.
const KEYS_MAX: usize = 1 << 16;

/// The walks under way.
#[derive(Default)]
pub(super) struct Moves {
    /// How many: all that a writer looks at when there is none.
    walks: AtomicUsize,
    lists: Mutex<Vec<Arc<List>>>,
}

/// What moved during one walk.
#[derive(Default)]
struct List(Mutex<Moved>);

#[derive(Default)]
struct Moved {
    keys: Vec<OwnedKey>,
    /// The walk has come to the upper tier.
    is_above: bool,
    is_overrun: bool,
}

/// A walk's place among those under way; dropping it ends that.
pub(super) struct Watch {
    moves: Arc<Moves>,
    list: Arc<List>,
}

impl Moves {
    /// Whether a walk is in progress. Call with the key's stripe held.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        self.walks.load(Ordering::Relaxed) > 0
    }

    /// A key moves down.
    fn note(&self, key: &Key<'_>) {
        self.tell(key, |_| true);
    }

    /// A key has moved up.
    pub(super) fn note_up(&self, key: &Key<'_>) {
        self.tell(key, |moved| moved.is_above);
    }

    fn tell(&self, key: &Key<'_>, wants: impl Fn(&Moved) -> bool) {
        for list in self.lists.lock().iter() {
            let mut moved = list.0.lock();
            if moved.keys.len() >= KEYS_MAX {
                *moved = Moved { keys: Vec::new(), is_overrun: true, ..*moved };
            } else if !moved.is_overrun && wants(&moved) {
                moved.keys.push(OwnedKey::of(key));
            }
        }
    }
}

impl Watch {
    pub(super) fn new(moves: &Arc<Moves>) -> Self {
        let list = Arc::<List>::default();
        moves.lists.lock().push(Arc::clone(&list));
        moves.walks.fetch_add(1, Ordering::Relaxed);
        Self { moves: Arc::clone(moves), list }
    }

    /// Takes up to `most` keys off the list.
    ///
    /// # Errors
    /// If there were too many for it.
    pub(super) fn take(&self, most: usize) -> Result<Vec<OwnedKey>, StoreError> {
        let mut moved = self.list.0.lock();
        if moved.is_overrun {
            let context = "too many items moved to the lower tier while the walk stood still";
            return Err(StoreError::new(ErrorKind::OutOfMemory, context));
        }
        let rest = moved.keys.len().saturating_sub(most);
        Ok(moved.keys.split_off(rest))
    }

    /// The walk begins with the upper tier: to be called before.
    pub(super) fn go_above(&self) {
        self.list.0.lock().is_above = true;
    }

    /// Puts a key on the list again.
    pub(super) fn put_back(&self, key: OwnedKey) {
        self.list.0.lock().keys.push(key);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.moves.walks.fetch_sub(1, Ordering::Relaxed);
        self.moves.lists.lock().retain(|list| !Arc::ptr_eq(list, &self.list));
    }
}

impl<U: Store + 'static, L: Store + 'static> Call<'_, U, L> {
    /// To be called while a walk is under way, before a version goes to the lower tier. The caller holds the key's lock.
    pub(super) async fn note_move(self, key: &Key<'_>) {
        let below = self.shared.lower.call(self.cx, key, Op::Holds, &mut Unseen).holds();
        if !below && self.is_above(key).await {
            self.shared.moves.note(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use moneta_store::KeyHash;

    fn key(bytes: &[u8]) -> Key<'_> {
        Key::new(bytes, KeyHash::seeded(0))
    }

    fn names(keys: &[OwnedKey]) -> Vec<&[u8]> {
        keys.iter().map(|key| key.key().bytes).collect()
    }

    #[test]
    fn each_walk_has_a_list_and_takes_it_with_it() {
        let moves = Arc::new(Moves::default());
        let first = Watch::new(&moves);
        moves.note(&key(b"a"));
        let second = Watch::new(&moves);
        moves.note(&key(b"b"));
        assert_eq!(names(&first.take(1).unwrap()), [b"b"]);
        assert_eq!(names(&first.take(9).unwrap()), [b"a"]);
        assert_eq!(names(&second.take(9).unwrap()), [b"b"]);
        assert!(first.take(9).unwrap().is_empty());
        drop(first);
        assert!(moves.is_watched());
        drop(second);
        assert!(!moves.is_watched() && moves.lists.lock().is_empty());
    }

    #[test]
    fn a_list_that_is_full_fails_its_walk_and_takes_no_more_memory() {
        let moves = Arc::new(Moves::default());
        let watch = Watch::new(&moves);
        (0..KEYS_MAX).for_each(|_| moves.note(&key(b"a")));
        assert_eq!(watch.list.0.lock().keys.len(), KEYS_MAX);
        (0..9).for_each(|_| moves.note(&key(b"a")));
        assert_eq!(watch.take(1).unwrap_err().kind(), ErrorKind::OutOfMemory);
        assert_eq!(watch.list.0.lock().keys.capacity(), 0);
    }
}
