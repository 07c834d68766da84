//! Reads of several keys: their heads are read together, if the store below does such reads. Values in pieces follow one by one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_store::request::Retrieve;
use moneta_store::steps::poll_owned;
use moneta_store::{
    Cx, Key, Lookup, Op, OwnedKeys, Pending, PendingReads, ReadSeveral, Reads, Store, StoreError, Visit,
};

use super::{Call, Chunked};

/// Reads under way.
struct Several<S> {
    call: Call<S>,
    request: Retrieve,
    keys: OwnedKeys,
    /// The key whose read ends next.
    next: usize,
    /// Reads of the heads, in the order of the keys.
    heads: PendingReads,
    /// The rest of the read that ends next.
    ending: Option<Pending<Lookup>>,
}

impl<S: Store + 'static> ReadSeveral for Chunked<S> {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        let below = self.shared.below.together()?;
        // Without a bump heads are peeked at, which no store does together.
        if Op::Read(request).changes() || !request.bump {
            return None;
        }
        let heads = below.read_several(cx, keys, &Retrieve::default())?;
        let (call, request, keys) = (self.call_in(cx), *request, OwnedKeys::of(keys));
        Some(Box::pin(Several { call, request, keys, next: 0, heads, ending: None }))
    }
}

impl<S: Store + 'static> Reads for Several<S> {
    fn poll_next(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        _: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let this = self.get_mut();
        loop {
            if let Some(ending) = &mut this.ending {
                let read = ready!(ending.as_mut().poll(context));
                (this.ending, this.next) = (None, this.next + 1);
                return Poll::Ready(Some(read));
            }
            let Some(head) = ready!(poll_owned(&mut this.heads, context)) else { return Poll::Ready(None) };
            let (call, key, request) = (this.call.clone(), this.keys.owned(this.next), this.request);
            this.ending = Some(Box::pin(async move { call.end_retrieve(&key.key(), &request, head).await }));
        }
    }
}
