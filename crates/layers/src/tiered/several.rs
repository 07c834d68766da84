//! Reads of several keys: what the upper tier lacks is read together from the lower one, if that does such reads.
//!
//! For an upper tier that answers at once, over a lower one that is a server: keys that are above are shown from there, in their
//! turn.

use std::future::ready;
use std::pin::Pin;
use std::task::{Context, Poll, ready as poll_ready};

use moneta_store::request::Retrieve;
use moneta_store::steps::poll_owned;
use moneta_store::{
    Cx, Key, Lookup, Op, Outcome, OwnedKeys, Pending, PendingReads, ReadSeveral, Reads, Step, Store, StoreError,
    Unseen, Visit,
};

use super::promotion::ReadSnapshot;
use super::reads::plain;
use super::{Call, Kept, Tiered};

/// Reads under way.
struct Several<U, L> {
    kept: Kept<U, L>,
    request: Retrieve,
    keys: OwnedKeys,
    /// One for each key.
    begun: Vec<Begun>,
    /// The key whose read ends next.
    next: usize,
    /// Reads in the lower tier: of each [`Begun::Below`], in their order.
    below: PendingReads,
    /// The rest of the read that ends next.
    ending: Option<Pending<Lookup>>,
}

/// How far the read of a key is.
enum Begun {
    /// The upper tier is asked in its turn.
    Above,
    /// The upper tier lacks the key, and the lower one was asked.
    Below {
        snapshot: ReadSnapshot,
        /// The upper tier once had it.
        expired: bool,
    },
}

impl<U: Store + 'static, L: Store + 'static> ReadSeveral for Tiered<U, L> {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        let below = self.0.lower.together()?;
        if Op::Read(request).changes() {
            return None;
        }
        let call = Call { shared: &self.0, cx };
        let is_above = |key: &Key<'_>| self.0.upper.call(cx, key, Op::Holds, &mut Unseen).holds();
        let lacks: Vec<bool> = keys.iter().map(|key| !is_above(key)).collect();
        if lacks.iter().filter(|lacks| **lacks).count() < 2 {
            return None;
        }
        let plain = plain(request);
        let begin = |(key, lacks): (&Key<'_>, &bool)| match *lacks {
            true => call.begin_below(key, &plain),
            false => Begun::Above,
        };
        let begun: Vec<Begun> = keys.iter().zip(&lacks).map(begin).collect();
        let is_below = |(_, begun): &(&Key<'_>, &Begun)| matches!(begun, Begun::Below { .. });
        let asked: Vec<Key<'_>> = keys.iter().zip(&begun).filter(is_below).map(|(key, _)| *key).collect();
        Some(Box::pin(Several {
            below: below.read_several(cx, &asked, &plain)?,
            kept: call.kept(),
            request: *request,
            keys: OwnedKeys::of(keys),
            begun,
            next: 0,
            ending: None,
        }))
    }
}

impl<U: Store + 'static, L: Store + 'static> Call<'_, U, L> {
    /// Asks the upper tier for a key that it lacked a moment ago: a miss there counts, and notes how new the key is.
    fn begin_below(self, key: &Key<'_>, plain: &Retrieve) -> Begun {
        match self.shared.upper.call(self.cx, key, Op::Read(plain), &mut Unseen) {
            Step::Done(Ok(Outcome::Read(Lookup::Miss { expired }))) => {
                Begun::Below { snapshot: self.shared.snapshot(key, false), expired }
            }
            _ => Begun::Above,
        }
    }
}

impl<U: Store + 'static, L: Store + 'static> Several<U, L> {
    /// Ends the read of a key with what the lower tier has.
    fn end(&self, below: Result<Lookup, StoreError>, snapshot: ReadSnapshot, expired: bool) -> Pending<Lookup> {
        let (kept, key, request) = (self.kept.clone(), self.keys.owned(self.next), self.request);
        Box::pin(async move {
            let below = Box::pin(ready(below.map(Outcome::Read)));
            kept.call().end_below(&key.key(), &request, below, &snapshot, expired).await
        })
    }

    fn ended(&mut self, read: Result<Lookup, StoreError>) -> Poll<Option<Result<Lookup, StoreError>>> {
        self.next += 1;
        Poll::Ready(Some(read))
    }
}

impl<U: Store + 'static, L: Store + 'static> Reads for Several<U, L> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let this = self.get_mut();
        loop {
            if let Some(ending) = &mut this.ending {
                let read = poll_ready!(ending.as_mut().poll(context));
                this.ending = None;
                return this.ended(read);
            }
            let Some(begun) = this.begun.get_mut(this.next) else { return Poll::Ready(None) };
            if let Begun::Above = begun {
                let step = this.kept.call().read(&this.keys.key(this.next), &this.request, out);
                match step {
                    Step::Done(read) => return this.ended(read.map(Outcome::lookup)),
                    Step::Wait(pending) => {
                        this.ending = Some(Box::pin(async move { pending.await.map(Outcome::lookup) }));
                    }
                }
                continue;
            }
            let below =
                poll_ready!(poll_owned(&mut this.below, context)).unwrap_or(Ok(Lookup::Miss { expired: false }));
            let Begun::Below { snapshot, expired } = std::mem::replace(begun, Begun::Above) else { continue };
            this.ending = Some(this.end(below, snapshot, expired));
        }
    }
}
