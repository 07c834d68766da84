//! Requests whose outcome depends on what is there: read, changed, stored, under the key's lock.

use moneta_store::change::{self, Old, Removal, Version};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Deleted, ErrorKind, Item, Key, Lookup, Number, Store, StoreError, Written};

use super::Call;
use super::draft::Draft;
use super::reads::Found;
use super::writes::Changing;

/// The live item, as a change takes it.
fn old(found: &Found) -> Option<Old<'_>> {
    match found {
        Found::Live(item) => Some(Old { meta: item.meta, value: &item.value }),
        Found::Dead | Found::Nothing => None,
    }
}

impl<S: Store + 'static> Call<S> {
    pub(super) async fn change_value(
        &self,
        key: &Key<'_>,
        value: &[u8],
        request: &Write,
    ) -> Result<Written, StoreError> {
        if value.len() > self.config.item_max {
            return self.refuse(key, Written::TooLarge).await;
        }
        let mut changing = self.change(key).await;
        let found = self.find_to_change(key, false, &mut changing).await?;
        match change::write(old(&found).as_ref(), value, request, self.clock.now(), self.config.item_max) {
            Ok(version) => self.put_version(key, &version, changing).await,
            Err(written) => {
                changing.settle();
                Ok(written)
            }
        }
    }

    pub(super) async fn change_by_delete(&self, key: &Key<'_>, request: &Delete) -> Result<Deleted, StoreError> {
        let mut changing = self.change(key).await;
        let found = self.find_to_change(key, false, &mut changing).await?;
        match change::delete(old(&found).as_ref(), request, self.clock.now()) {
            Ok(Removal::Remove) => {
                self.versions.deleted(key.hash);
                self.drop_all(key, changing).await
            }
            Ok(Removal::Rewrite(version)) => {
                match self.put_version(key, &self.versions.versioned(version, old(&found).as_ref()), changing).await? {
                    // Where there is no room to mark the item, it goes.
                    Written::Stored { .. } | Written::OutOfMemory => Ok(Deleted::Deleted),
                    other => Err(unexpected(other)),
                }
            }
            Err(deleted) => {
                // No delete, also if nothing is there: other copies are told of none.
                changing.settle();
                Ok(deleted)
            }
        }
    }

    pub(super) async fn compute(&self, key: &Key<'_>, request: &Arithmetic) -> Result<Number, StoreError> {
        let mut changing = self.change(key).await;
        let found = self.find_to_change(key, false, &mut changing).await?;
        match change::arithmetic(old(&found).as_ref(), request, self.clock.now()) {
            Ok(computed) => match self.put_version(key, &computed.version, changing).await? {
                Written::Stored { cas } => Ok(computed.answer(cas)),
                Written::OutOfMemory => Ok(Number::OutOfMemory),
                other => Err(unexpected(other)),
            },
            Err(number) => {
                changing.settle();
                Ok(number)
            }
        }
    }

    /// A read that changes the item, or may.
    pub(super) async fn read_and_change(&self, key: &Key<'_>, request: &Retrieve) -> Result<Lookup, StoreError> {
        let mut changing = self.change(key).await;
        let found = self.find_to_change(key, request.bump, &mut changing).await?;
        let Some(reading) = change::read(old(&found).as_ref(), request, self.clock.now()) else {
            changing.settle();
            return Ok(found.into());
        };
        let cas = match reading.rewrite {
            Some(version) => {
                match self.put_version(key, &self.versions.versioned(version, old(&found).as_ref()), changing).await? {
                    Written::Stored { cas } => cas,
                    other => return Err(unexpected(other)),
                }
            }
            None => {
                changing.settle();
                reading.meta.cas
            }
        };
        Ok(Lookup::Found(Item { meta: reading.shown(cas), value: reading.value.to_vec().into() }))
    }

    async fn put_version(
        &self,
        key: &Key<'_>,
        version: &Version<'_>,
        changing: Changing<'_>,
    ) -> Result<Written, StoreError> {
        let item = version.item();
        self.put(key, Draft::new(key, item.meta, &item.value, &self.config), changing).await
    }
}

/// An answer of the store below to an entry no longer than one that it took before.
fn unexpected(written: Written) -> StoreError {
    let kind = if written == Written::OutOfMemory { ErrorKind::OutOfMemory } else { ErrorKind::Unsupported };
    StoreError::new(kind, format!("the store below does not take the entry: {written:?}"))
}
