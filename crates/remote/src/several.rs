//! Reads of several keys that begin together on a worker's connections.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use moneta_client::wire::{Answer, Read, Verb};
use moneta_store::request::Retrieve;
use moneta_store::{Item, ItemRef, Key, Lookup, OwnedKey, PendingReads, Reads, StoreError, Value, Visit};

use crate::caller::Caller;
use crate::connection::{ReadTold, wins};
use crate::exchange::Exchange;
use crate::reads::give_back;
use crate::worker_client::WorkerClient;

/// Reads that change nothing, on a thread with connections: the requests go out together.
pub(crate) fn begin(remote: Caller, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
    let is_plain = request.touch.is_none() && request.vivify.is_none() && !request.claim;
    let client = remote.client().filter(|_| is_plain)?;
    let verb = Verb::Read(Read { retrieve: *request, value: true });
    let slot = client.begin_together(verb, keys);
    Some(Box::pin(Several { client, remote: remote.going_on(), slot, next: 0, count: keys.len(), held: None }))
}

/// Reads under way that were begun together.
struct Several {
    client: Rc<WorkerClient>,
    remote: Caller,
    slot: usize,
    /// The one whose end is told next.
    next: usize,
    count: usize,
    /// What the last one has found, while what it won is given back.
    held: Option<(Item, Exchange)>,
}

impl Reads for Several {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let this = &mut *self;
        if let Some((_, giving_back)) = &mut this.held {
            // Whether it could be given back changes nothing of what was read.
            let _ = ready!(Pin::new(giving_back).poll(context));
            return Poll::Ready(this.held.take().map(|(item, _)| Ok(Lookup::Found(item))));
        }
        if this.next == this.count {
            return Poll::Ready(None);
        }
        let mut won = None;
        let told = ready!(this.client.poll_together(this.slot, this.next, context, |key, told| {
            let (seen, value) = match told {
                ReadTold::Item(seen, value) => (seen, value),
                ReadTold::Ended(Ok(Answer::Miss)) => return Ok(Lookup::Miss { expired: false }),
                ReadTold::Ended(Ok(other)) => return Err(this.remote.unexpected(other)),
                ReadTold::Ended(Err(error)) => return Err(error),
            };
            let item = ItemRef { meta: seen.meta(this.remote.now()), value: Value::whole(value) };
            if wins(seen) {
                won = Some((OwnedKey::of(&key), Item::copy(&item)));
            } else {
                out.item(&item);
            }
            Ok(Lookup::Visited)
        }));
        this.next += 1;
        let Some((key, mut item)) = won else { return Poll::Ready(Some(told)) };
        let giving_back = give_back(&this.remote, &key.key(), item.meta.cas);
        item.meta.won &= giving_back.is_none();
        match giving_back {
            None => Poll::Ready(Some(Ok(Lookup::Found(item)))),
            Some(exchange) => {
                this.held = Some((item, exchange));
                self.poll_next(context, out)
            }
        }
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        for won in self.client.abandon_together(self.slot) {
            drop(give_back(&self.remote, &Key { bytes: &won.key, hash: won.hash }, won.cas));
        }
    }
}
