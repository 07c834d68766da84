//! Reads that change nothing but counts: a hit in an upper tier that answers at once is answered there, without a lock or an
//! allocation.

use std::future::ready;

use moneta_protocol::item::{Item, ItemMeta, ItemRef};
use moneta_protocol::request::Retrieve;

use super::promotion::Noted;
use super::{Shared, Tiered};
use crate::change::wins_recache;
use crate::error::{ErrorKind, StoreError};
use crate::key::{Key, OwnedKey};
use crate::outcome::{Lookup, Pending, Step};
use crate::steps::{copy, end, found, pending, start};
use crate::store::{Tier, Visit};

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    #[inline]
    pub(super) fn read(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        if request.touch.is_some() {
            return self.change_by_read(key, request, None);
        }
        let shared = &self.shared;
        let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
        let mut claimed = None;
        let above = if request.claim {
            let now = shared.clock.now();
            shared
                .upper
                .get(key, &plain, &mut |item: &ItemRef<'_>| show_or_claim(item, request, now, visitor, &mut claimed))
        } else {
            shared.upper.get(key, &plain, visitor)
        };
        let above = match above {
            Step::Done(Ok(above)) => above,
            Step::Done(Err(error)) => return self.read_waiting(key, request, Box::pin(ready(Err(error)))),
            Step::Wait(above) => return self.read_waiting(key, request, above),
        };
        match above {
            Lookup::Visited if claimed.is_none() => {
                self.count_hit_above(key, request);
                Step::done(Lookup::Visited)
            }
            Lookup::Visited => self.change_by_read(key, request, claimed),
            Lookup::Found(item) if wins_recache(&item.meta, request, shared.clock.now()) => {
                self.change_by_read(key, request, Some(item.meta))
            }
            Lookup::Found(item) => {
                self.count_hit_above(key, request);
                Step::done(Lookup::Found(item))
            }
            Lookup::Miss { .. } if request.vivify.is_some() => self.change_by_read(key, request, None),
            Lookup::Miss { expired } => self.read_below(key, request, visitor, expired),
        }
    }

    /// A read over an upper tier that waits, or that fails: then it counts as one that has nothing.
    fn read_waiting(&self, key: &Key<'_>, request: &Retrieve, above: Pending<Lookup>) -> Step<Lookup> {
        let (this, key, request) = (self.clone(), OwnedKey::of(key), *request);
        start(async move {
            let (shared, key) = (&this.shared, key.key());
            let expired = match shared.counted(above.await) {
                Ok(Lookup::Found(item)) => return this.end_above(&key, &request, item).await,
                Ok(above) => above == Lookup::Miss { expired: true },
                Err(_) => false,
            };
            if request.vivify.is_some() {
                return this.read_and_change(&key, &request, None).await;
            }
            let noted = shared.note(&key, true);
            let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
            let below = found(|mut seen| shared.lower.get(&key, &plain, &mut seen));
            this.end_below(&key, &request, pending(below), &noted, expired).await
        })
    }

    #[inline]
    fn count_hit_above(&self, key: &Key<'_>, request: &Retrieve) {
        if self.shared.lanes.upper_hit() && request.bump {
            self.shared.lower.note_hit(key);
        }
    }

    /// Reads from the lower tier what the upper one does not have. `expired`: but once had.
    fn read_below(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit, expired: bool) -> Step<Lookup> {
        let shared = &self.shared;
        let noted = shared.note(key, false);
        let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
        let now = shared.clock.now();
        let (mut claimed, mut copied, mut overtaken) = (None, None, None);
        let step = shared.lower.get(key, &plain, &mut |item: &ItemRef<'_>| {
            if shared.is_overtaken(key, &noted) {
                overtaken = Some(copy(item));
                return;
            }
            show_or_claim(item, request, now, visitor, &mut claimed);
            if claimed.is_none() && self.promotes(&item.meta) {
                copied = Some(copy(item));
            }
        });
        match step {
            Step::Done(Ok(Lookup::Visited)) => match (overtaken, claimed) {
                (Some(item), _) => self.read_later(key, request, Step::done(Lookup::Found(item)), noted, expired),
                (None, Some(seen)) => self.change_by_read(key, request, Some(seen)),
                (None, None) => {
                    shared.lanes.lower_hit();
                    if let Some(item) = copied {
                        self.promote_now(key, &item.as_ref(), request, &noted);
                    }
                    Step::done(Lookup::Visited)
                }
            },
            Step::Done(Ok(Lookup::Miss { expired: below })) if !shared.may_have_passed(key, &noted) => {
                shared.lanes.miss();
                Step::done(Lookup::Miss { expired: expired || below })
            }
            step => self.read_later(key, request, step, noted, expired),
        }
    }

    /// The rest of a read that has to wait, or that a change has overtaken.
    fn read_later(
        &self,
        key: &Key<'_>,
        request: &Retrieve,
        below: Step<Lookup>,
        noted: Noted,
        expired: bool,
    ) -> Step<Lookup> {
        let waits = matches!(below, Step::Wait(_));
        let (this, key, request, below) = (self.clone(), OwnedKey::of(key), *request, pending(below));
        let rest = async move { this.end_below(&key.key(), &request, below, &noted, expired).await };
        // Who gets a future polls it: once more before that would be in vain.
        if waits { Step::Wait(Box::pin(rest)) } else { start(rest) }
    }

    /// Ends a read with what the lower tier has. There is such a future for each read that waits for a device, so what seldom
    /// happens in it has a box of its own.
    async fn end_below(
        &self,
        key: &Key<'_>,
        request: &Retrieve,
        below: Pending<Lookup>,
        noted: &Noted,
        expired: bool,
    ) -> Result<Lookup, StoreError> {
        let shared = &self.shared;
        let below = below.await;
        if shared.is_overtaken(key, noted)
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
                    match noted.above_waits {
                        true => Box::pin(self.promote(key, &item.as_ref(), request, noted)).await,
                        false => self.promote_now(key, &item.as_ref(), request, noted),
                    }
                }
                below
            }
            Ok(_)
                if shared.admission.is_some()
                    && (shared.is_overtaken(key, noted) || Box::pin(shared.is_above(key)).await) =>
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
    /// one has it too. If the key is above by now, that is what counts; if not, nobody sees anything older there.
    async fn read_above_again(&self, key: &Key<'_>, request: &Retrieve) -> Option<Item> {
        let shared = &self.shared;
        let plain = Retrieve { bump: request.bump, ..Retrieve::default() };
        match shared.counted(end(found(|mut seen| shared.upper.get(key, &plain, &mut seen))).await) {
            Ok(Lookup::Found(item)) => Some(item),
            Ok(_) => None,
            Err(_) => {
                // Nobody knows what is above, and it must not be seen after what is below.
                shared.upper.forget(key);
                None
            }
        }
    }

    /// Ends a read with an item of the upper tier.
    async fn end_above(&self, key: &Key<'_>, request: &Retrieve, item: Item) -> Result<Lookup, StoreError> {
        if wins_recache(&item.meta, request, self.shared.clock.now()) {
            return self.read_and_change(key, request, Some(item.meta)).await;
        }
        self.count_hit_above(key, request);
        Ok(Lookup::Found(item))
    }

    /// Looks at an item without any side effect, in either tier. One that is changed just now may be seen a moment early.
    pub(super) fn look(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        let above = match self.shared.upper.peek(key, visitor) {
            Step::Done(above) => match self.shared.counted(above) {
                Ok(Lookup::Miss { .. }) | Err(_) => return self.shared.lower.peek(key, visitor).then(miss_while_off),
                hit => return Step::Done(hit),
            },
            Step::Wait(above) => above,
        };
        let (this, key) = (self.clone(), OwnedKey::of(key));
        start(async move {
            let (shared, key) = (&this.shared, key.key());
            match shared.counted(above.await) {
                Ok(Lookup::Miss { .. }) | Err(_) => {
                    miss_while_off(end(found(|mut seen| shared.lower.peek(&key, &mut seen))).await)
                }
                hit => hit,
            }
        })
    }
}

/// A lower tier that is off has nothing.
fn miss_while_off(outcome: Result<Lookup, StoreError>) -> Result<Lookup, StoreError> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::Unavailable => Ok(Lookup::Miss { expired: false }),
        outcome => outcome,
    }
}

/// Shows an item to its reader, unless this read wins its recache, which has to be stored first.
#[inline]
fn show_or_claim(
    item: &ItemRef<'_>,
    request: &Retrieve,
    now: u32,
    visitor: &mut impl Visit,
    claimed: &mut Option<ItemMeta>,
) {
    if wins_recache(&item.meta, request, now) {
        *claimed = Some(item.meta);
    } else {
        visitor.item(item);
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Shared<U, L> {
    /// Whether what neither tier had may have passed by the reader: a change is under way or was; or, where the budget keeps
    /// writes out of the lower tier, the key has moved up from there.
    fn may_have_passed(&self, key: &Key<'_>, noted: &Noted) -> bool {
        self.is_overtaken(key, noted) || (self.admission.is_some() && self.may_be_above(key))
    }

    /// Whether the upper tier has the key, or would have to be waited for to know.
    fn may_be_above(&self, key: &Key<'_>) -> bool {
        !matches!(self.upper.peek(key, &mut |_: &ItemRef<'_>| ()), Step::Done(Ok(Lookup::Miss { .. }) | Err(_)))
    }
}
