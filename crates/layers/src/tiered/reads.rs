//! Reads that change nothing but counts: a hit in an upper tier that answers at once is answered there, without a lock or an
//! allocation.

use std::future::ready;

use moneta_store::change::wins_recache;
use moneta_store::request::Retrieve;
use moneta_store::steps::{into_pending, look_up, read_owned, start_operation};
use moneta_store::{
    ErrorKind, Item, ItemMeta, ItemRef, Key, Lookup, Op, Outcome, OwnedKey, Pending, Step, Store, StoreError, Unseen,
    Visit,
};

use super::Call;
use super::promotion::ReadSnapshot;

/// A read as either tier is asked: what the request would change is decided above both.
#[inline]
pub(super) fn plain(request: &Retrieve) -> Retrieve {
    Retrieve { bump: request.bump, ..Retrieve::default() }
}

/// Shows an item to its reader, unless this read wins its recache, which has to be stored first.
struct ShowOrClaim<'a> {
    request: &'a Retrieve,
    now: u32,
    out: &'a mut dyn Visit,
    /// The item whose recache was won.
    claimed: Option<ItemMeta>,
}

impl Visit for ShowOrClaim<'_> {
    #[inline]
    fn item(&mut self, item: &ItemRef<'_>) {
        if wins_recache(&item.meta, self.request, self.now) {
            self.claimed = Some(item.meta);
        } else {
            self.out.item(item);
        }
    }
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    #[inline]
    pub(super) fn read(self, key: &Key<'_>, request: &Retrieve, out: &mut dyn Visit) -> Step {
        if request.touch.is_some() {
            return self.change_by_read(key, request, None);
        }
        let shared = self.shared;
        let plain = plain(request);
        let mut claimed = None;
        let above = if request.claim {
            let mut visitor = ShowOrClaim { request, now: shared.clock.now(), out, claimed: None };
            let above = shared.upper.call(self.cx, key, Op::Read(&plain), &mut visitor);
            claimed = visitor.claimed;
            above
        } else {
            shared.upper.call(self.cx, key, Op::Read(&plain), out)
        };
        let above = match above {
            Step::Done(Ok(above)) => above.lookup(),
            Step::Done(Err(error)) => return self.read_waiting(key, request, Box::pin(ready(Err(error)))),
            Step::Wait(above) => return self.read_waiting(key, request, above),
        };
        match above {
            Lookup::Visited if claimed.is_none() => {
                self.count_hit_above(key, request);
                Step::ended(Lookup::Visited)
            }
            Lookup::Visited => self.change_by_read(key, request, claimed),
            Lookup::Found(item) if wins_recache(&item.meta, request, shared.clock.now()) => {
                self.change_by_read(key, request, Some(item.meta))
            }
            Lookup::Found(item) => {
                self.count_hit_above(key, request);
                Step::ended(Lookup::Found(item))
            }
            Lookup::Miss { .. } if request.vivify.is_some() => self.change_by_read(key, request, None),
            Lookup::Miss { expired } => self.read_below(key, request, out, expired),
        }
    }

    /// A read over an upper tier that waits, or that fails: then it counts as one that has nothing.
    fn read_waiting(self, key: &Key<'_>, request: &Retrieve, above: Pending) -> Step {
        let (kept, key, request) = (self.kept(), OwnedKey::of(key), *request);
        start_operation(async move {
            let (call, key) = (kept.call(), key.key());
            let shared = call.shared;
            let expired = match shared.counted(above.await).map(Outcome::lookup) {
                Ok(Lookup::Found(item)) => return call.end_above(&key, &request, item).await,
                Ok(above) => above == Lookup::Miss { expired: true },
                Err(_) => false,
            };
            if request.vivify.is_some() {
                return call.read_and_change(&key, &request, None).await;
            }
            let snapshot = shared.snapshot(&key, true);
            let below = read_owned(&shared.lower, call.cx, &key, Op::Read(&plain(&request)));
            call.end_below(&key, &request, into_pending(below), &snapshot, expired).await
        })
    }

    #[inline]
    fn count_hit_above(self, key: &Key<'_>, request: &Retrieve) {
        if self.shared.lanes.upper_hit() && request.bump {
            let _ = self.shared.lower.call(self.cx, key, Op::NoteHit, &mut Unseen);
        }
    }

    /// Reads from the lower tier what the upper one does not have. `expired`: but once had.
    fn read_below(self, key: &Key<'_>, request: &Retrieve, out: &mut dyn Visit, expired: bool) -> Step {
        let shared = self.shared;
        let snapshot = shared.snapshot(key, false);
        let plain = plain(request);
        let mut visitor = ShowOrClaim { request, now: shared.clock.now(), out, claimed: None };
        let (mut copied, mut overtaken) = (None, None);
        let step = shared.lower.call(self.cx, key, Op::Read(&plain), &mut |item: &ItemRef<'_>| {
            if shared.is_overtaken(key, &snapshot) {
                overtaken = Some(Item::copy(item));
                return;
            }
            visitor.item(item);
            if visitor.claimed.is_none() && self.promotes(&item.meta) {
                copied = Some(Item::copy(item));
            }
        });
        let claimed = visitor.claimed;
        match step {
            Step::Done(Ok(Outcome::Read(Lookup::Visited))) => match (overtaken, claimed) {
                (Some(item), _) => self.read_later(key, request, Step::ended(Lookup::Found(item)), snapshot, expired),
                (None, Some(seen)) => self.change_by_read(key, request, Some(seen)),
                (None, None) => {
                    shared.lanes.lower_hit();
                    if let Some(item) = copied {
                        self.promote_now(key, &item.as_ref(), request, &snapshot);
                    }
                    Step::ended(Lookup::Visited)
                }
            },
            Step::Done(Ok(Outcome::Read(Lookup::Miss { expired: below }))) if !self.may_have_passed(key, &snapshot) => {
                shared.lanes.miss();
                Step::ended(Lookup::Miss { expired: expired || below })
            }
            step => self.read_later(key, request, step, snapshot, expired),
        }
    }

    /// The rest of a read that has to wait, or that a change has overtaken.
    fn read_later(self, key: &Key<'_>, request: &Retrieve, below: Step, snapshot: ReadSnapshot, expired: bool) -> Step {
        let waits = matches!(below, Step::Wait(_));
        let (kept, key, request, below) = (self.kept(), OwnedKey::of(key), *request, into_pending(below));
        let rest = async move {
            let read = kept.call().end_below(&key.key(), &request, below, &snapshot, expired).await;
            read.map(Outcome::Read)
        };
        // The owner of a future polls it: another poll before that would find nothing new.
        if waits { Step::Wait(Box::pin(rest)) } else { start_operation(rest) }
    }

    /// Ends a read with what the lower tier has. There is such a future for each read that waits for a device, so what seldom
    /// happens in it has a separate box.
    pub(super) async fn end_below(
        self,
        key: &Key<'_>,
        request: &Retrieve,
        below: Pending,
        snapshot: &ReadSnapshot,
        expired: bool,
    ) -> Result<Lookup, StoreError> {
        let shared = self.shared;
        let below = below.await.map(Outcome::lookup);
        if shared.is_overtaken(key, snapshot)
            && let Some(item) = Box::pin(self.read_above_again(key, request)).await
        {
            return Box::pin(self.end_above(key, request, item)).await;
        }
        match below {
            Ok(Lookup::Found(ref item)) if wins_recache(&item.meta, request, shared.clock.now()) => {
                Box::pin(self.read_and_change(key, request, Some(item.meta))).await
            }
            Ok(Lookup::Found(ref item)) => {
                shared.lanes.lower_hit();
                if self.promotes(&item.meta) {
                    match snapshot.above_waits {
                        true => Box::pin(self.promote(key, &item.as_ref(), request, snapshot)).await,
                        false => self.promote_now(key, &item.as_ref(), request, snapshot),
                    }
                }
                below
            }
            Ok(_)
                if shared.admission.is_some()
                    && (shared.is_overtaken(key, snapshot) || Box::pin(self.is_above(key)).await) =>
            {
                Box::pin(self.read_and_change(key, request, None)).await
            }
            Ok(Lookup::Miss { expired: below }) => {
                shared.lanes.miss();
                Ok(Lookup::Miss { expired: expired || below })
            }
            below => {
                shared.lanes.miss();
                miss_while_off(below)
            }
        }
    }

    /// A change may have begun since the upper tier was asked: the lower one then has what is not to be seen before the upper
    /// one has it too. If the key is above by now, that is what counts; if not, no reader sees anything older there.
    async fn read_above_again(self, key: &Key<'_>, request: &Retrieve) -> Option<Item> {
        let above = look_up(&self.shared.upper, self.cx, key, Op::Read(&plain(request))).await;
        match self.shared.counted(above) {
            Ok(Lookup::Found(item)) => Some(item),
            Ok(_) => None,
            Err(_) => {
                // What is above is unknown, and must not be seen after what is below.
                self.drop_above_at_once(key);
                None
            }
        }
    }

    /// Ends a read with an item of the upper tier.
    async fn end_above(self, key: &Key<'_>, request: &Retrieve, item: Item) -> Result<Lookup, StoreError> {
        if wins_recache(&item.meta, request, self.shared.clock.now()) {
            return self.read_and_change(key, request, Some(item.meta)).await;
        }
        self.count_hit_above(key, request);
        Ok(Lookup::Found(item))
    }

    /// Looks at an item without any side effect, in either tier. One that is changed just now may be seen a moment early.
    pub(super) fn look(self, key: &Key<'_>, out: &mut dyn Visit) -> Step {
        let above = match self.shared.upper.call(self.cx, key, Op::Peek, out) {
            Step::Done(above) => match self.shared.counted(above).map(Outcome::lookup) {
                Ok(Lookup::Miss { .. }) | Err(_) => {
                    let below = self.shared.lower.call(self.cx, key, Op::Peek, out);
                    return below.then(|below| miss_while_off(below.map(Outcome::lookup)).map(Outcome::Read));
                }
                hit => return Step::Done(hit.map(Outcome::Read)),
            },
            Step::Wait(above) => above,
        };
        let (kept, key) = (self.kept(), OwnedKey::of(key));
        start_operation(async move {
            let (call, key) = (kept.call(), key.key());
            match call.shared.counted(above.await).map(Outcome::lookup) {
                Ok(Lookup::Miss { .. }) | Err(_) => {
                    miss_while_off(look_up(&call.shared.lower, call.cx, &key, Op::Peek).await)
                }
                hit => hit,
            }
        })
    }

    /// Whether what neither tier had may have passed by the reader: a change is under way or was; or, where the budget keeps
    /// writes out of the lower tier, the key has moved up from there.
    fn may_have_passed(self, key: &Key<'_>, snapshot: &ReadSnapshot) -> bool {
        self.shared.is_overtaken(key, snapshot) || (self.shared.admission.is_some() && self.may_be_above(key))
    }

    /// Whether the upper tier has the key, or would have to be waited for to know.
    fn may_be_above(self, key: &Key<'_>) -> bool {
        let above = self.shared.upper.call(self.cx, key, Op::Peek, &mut Unseen);
        !matches!(above, Step::Done(Ok(Outcome::Read(Lookup::Miss { .. })) | Err(_)))
    }
}

/// A lower tier that is off has nothing.
fn miss_while_off(outcome: Result<Lookup, StoreError>) -> Result<Lookup, StoreError> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Lookup::Miss { expired: false }),
        outcome => outcome,
    }
}
