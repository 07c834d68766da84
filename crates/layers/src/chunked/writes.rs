//! Storing and deleting items, with the key's lock held and its epoch in doubt until the end.

use std::future::Future;

use futures_util::future::{join, join_all};
use moneta_store::request::{Delete, Write};
use moneta_store::steps::{delete, finish, start_operation};
use moneta_store::{
    Deleted, ItemRef, Key, Op, Outcome, OwnedKey, Put, Step, Store, StoreError, Unseen, Version, Written, change,
};

use super::draft::Draft;
use super::epochs::Epochs;
use super::reads::{Found, PIECES_AT_ONCE};
use super::{Call, layout};
use crate::stripes::Held;

/// Ends the epoch of a key unless it is dispelled: its change failed, or was dropped before its end.
struct Doubt<'a> {
    epochs: &'a Epochs,
    hash: u64,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.epochs.end(self.hash);
    }
}

/// A change under way.
pub(super) struct Changing<'a> {
    /// Before the lock, so that it is dropped before: who has the lock next must find the next epoch.
    doubt: Doubt<'a>,
    _held: Held<'a>,
    /// The epoch to write in.
    epoch: u64,
}

impl Changing<'_> {
    /// All that was asked of the store below is known to be done.
    pub(super) fn settle(self) {
        std::mem::forget(self.doubt);
    }
}

impl<S: Store + 'static> Call<S> {
    pub(super) fn write(self, key: &Key<'_>, value: &[u8], request: &Write) -> Step {
        let item_max = self.config.item_max;
        if change::needs_old(request) || value.len() > item_max {
            let (key, value, request) = (OwnedKey::of(key), value.to_vec(), *request);
            return start_operation(async move { self.change_value(&key.key(), &value, &request).await });
        }
        match change::write(None, value, request, self.clock.now(), item_max) {
            Ok(version) => self.store_whole(key, &version.item(), Put::Any),
            Err(written) => Step::ended(written),
        }
    }

    pub(super) fn store_whole(self, key: &Key<'_>, item: &ItemRef<'_>, how: Put) -> Step {
        let owned = OwnedKey::of(key);
        if item.value.len() > self.config.item_max {
            return start_operation(async move { self.refuse(&owned.key(), Written::TooLarge).await });
        }
        let draft = Draft::new(key, item.meta, &item.value, &self.config);
        start_operation(async move {
            let key = owned.key();
            let mut changing = self.change(&key).await;
            if how == Put::Present && !self.is_live(&key, &mut changing).await? {
                changing.settle();
                return Ok(Written::NotStored);
            }
            self.put(&key, draft, changing).await
        })
    }
}

impl<S: Store + 'static> Call<S> {
    /// Begins a change.
    pub(super) async fn change(&self, key: &Key<'_>) -> Changing<'_> {
        let doubt = Doubt { epochs: &self.epochs, hash: key.hash };
        let held = self.stripes.lock(key.hash, &self.counters.key_waits).await;
        Changing { doubt, _held: held, epoch: self.epochs.current(key.hash, self.clock.now()) }
    }

    /// What is there for a change to go by. Where the epoch ends while it is read, what was found counts no more: it is read
    /// anew, and the change is made in the next epoch. Else what is stored where nothing was found could never be read.
    pub(super) async fn find_to_change(
        &self,
        key: &Key<'_>,
        bump: bool,
        changing: &mut Changing<'_>,
    ) -> Result<Found, StoreError> {
        loop {
            let found = self.find(key, bump).await?;
            if !self.is_renewed(key, changing) {
                return Ok(found);
            }
        }
    }

    /// Whether something is there to be replaced.
    async fn is_live(&self, key: &Key<'_>, changing: &mut Changing<'_>) -> Result<bool, StoreError> {
        loop {
            let head = self.find_head(key, false).await?;
            if !self.is_renewed(key, changing) {
                return Ok(head.is_some_and(|(head, _)| !head.meta.expiry.is_dead(self.clock.now())));
            }
        }
    }

    /// Takes the change into the current epoch; whether it was in an earlier one.
    fn is_renewed(&self, key: &Key<'_>, changing: &mut Changing<'_>) -> bool {
        let epoch = self.epochs.current(key.hash, self.clock.now());
        std::mem::replace(&mut changing.epoch, epoch) != epoch
    }

    /// Stores an item over whatever is there, and ends the change.
    pub(super) async fn put(
        &self,
        key: &Key<'_>,
        mut draft: Draft,
        changing: Changing<'_>,
    ) -> Result<Written, StoreError> {
        let cas = self.cas(draft.meta());
        if self.versions.counts() {
            draft.without_version();
        }
        let written = if draft.meta().expiry.is_dead(self.clock.now()) {
            // Dead from the start: what it replaces is gone.
            delete(&self.below, &self.cx, key).await?;
            if !draft.meta().unversioned {
                self.versions.expired(key.hash, Version(cas));
            }
            Written::Stored { cas }
        } else {
            let write = draft.write(self.versions.outlives());
            match self.put_pieces(std::mem::take(&mut draft.pieces), &write).await? {
                Written::Stored { .. } => {
                    let entry = draft.seal(key, cas, changing.epoch);
                    self.write_entry(key, &entry, &write).await?
                }
                refused => refused,
            }
        };
        let written = match written {
            Written::Stored { .. } => Written::Stored { cas },
            refused => {
                delete(&self.below, &self.cx, key).await?;
                refused
            }
        };
        changing.settle();
        Ok(written)
    }

    /// Stores pieces; the first that is not stored is the answer.
    async fn put_pieces(&self, pieces: Vec<(String, Vec<u8>)>, write: &Write) -> Result<Written, StoreError> {
        for pieces in pieces.chunks(PIECES_AT_ONCE as usize) {
            let write = |(name, entry): &(String, Vec<u8>)| {
                self.write_entry(&Key::new(name.as_bytes(), self.below.seed()), entry, write)
            };
            for written in join_all(pieces.iter().map(write)).await {
                match written? {
                    Written::Stored { .. } => self.counters.pieces_written.bump(),
                    refused => return Ok(refused),
                }
            }
        }
        Ok(Written::Stored { cas: 0 })
    }

    /// Begins to write an entry below, at once; the future is its end.
    fn write_entry(
        &self,
        key: &Key<'_>,
        entry: &[u8],
        write: &Write,
    ) -> impl Future<Output = Result<Written, StoreError>> + use<S> {
        let step = self.below.call(&self.cx, key, Op::Write(entry, write), &mut Unseen);
        async move { finish(step).await.map(Outcome::written) }
    }

    /// Begins to delete an entry below, at once; the future is its end.
    fn delete_entry(&self, key: &Key<'_>) -> impl Future<Output = Result<Deleted, StoreError>> + use<S> {
        let step = self.below.call(&self.cx, key, Op::Delete(&Delete::default()), &mut Unseen);
        async move { finish(step).await.map(Outcome::deleted) }
    }

    /// Leaves nothing under the key, and answers a write that is not done.
    pub(super) async fn refuse(&self, key: &Key<'_>, written: Written) -> Result<Written, StoreError> {
        let changing = self.change(key).await;
        delete(&self.below, &self.cx, key).await?;
        changing.settle();
        Ok(written)
    }

    /// Any delete a client can ask for.
    pub(super) async fn remove(&self, key: &Key<'_>, request: &Delete) -> Result<Deleted, StoreError> {
        if request.compare.is_some() || request.invalidate || request.drop_value {
            return self.change_by_delete(key, request).await;
        }
        let changing = self.change(key).await;
        self.versions.deleted(key.hash);
        self.drop_all(key, changing).await
    }

    /// Deletes head and pieces, and ends the change.
    pub(super) async fn drop_all(&self, key: &Key<'_>, changing: Changing<'_>) -> Result<Deleted, StoreError> {
        let head = self.find_head(key, false).await?.map(|(head, _)| head);
        let seed = self.below.seed();
        let pieces = head
            .filter(|head| head.length <= self.config.item_max as u64)
            .into_iter()
            .flat_map(|head| (0..head.pieces()).map(move |number| layout::piece_name(key.bytes, head.token, number)));
        let pieces: Vec<_> = pieces.map(|name| self.delete_entry(&Key::new(name.as_bytes(), seed))).collect();
        let (deleted, pieces) = join(self.delete_entry(key), join_all(pieces)).await;
        deleted?;
        changing.settle();
        // An item with a missing piece was already gone. Its other pieces do not matter: no head names them.
        let is_whole = pieces.iter().all(|piece| matches!(piece, Ok(Deleted::Deleted)));
        let was_there = is_whole && head.is_some_and(|head| !head.meta.expiry.is_dead(self.clock.now()));
        Ok(if was_there { Deleted::Deleted } else { Deleted::NotFound })
    }
}
