//! Reading an item: its head, then its pieces all at once.

use futures_util::future::join_all;
use moneta_store::change::wins_recache;
use moneta_store::request::Retrieve;
use moneta_store::steps::{finish, read_owned};
use moneta_store::{Item, Key, Lookup, Op, Outcome, Step, Store, StoreError};

use super::Call;
use super::layout::{self, HEAD_BYTES, Head};

/// Pieces asked for at once: bounds what one read or write has under way, and is more than a mebibyte of default pieces.
pub(super) const PIECES_AT_ONCE: u32 = 64;

/// What is there of an item.
pub(super) enum Found {
    /// All of it.
    Live(Item),
    /// One whose time is up.
    Dead,
    /// Nothing, or nothing that may be shown.
    Nothing,
}

impl From<Found> for Lookup {
    fn from(found: Found) -> Self {
        match found {
            Found::Live(item) => Self::Found(item),
            Found::Dead => Self::Miss { expired: true },
            Found::Nothing => Self::Miss { expired: false },
        }
    }
}

impl<S: Store + 'static> Call<S> {
    /// Any read a client can ask for.
    pub(super) async fn retrieve(&self, key: &Key<'_>, request: &Retrieve) -> Result<Lookup, StoreError> {
        if request.touch.is_some() {
            return self.read_and_change(key, request).await;
        }
        let entry = finish(self.ask(key, request.bump)).await.map(Outcome::lookup);
        self.end_retrieve(key, request, entry).await
    }

    /// The rest of a read that touches nothing, given the entry of the head.
    pub(super) async fn end_retrieve(
        &self,
        key: &Key<'_>,
        request: &Retrieve,
        entry: Result<Lookup, StoreError>,
    ) -> Result<Lookup, StoreError> {
        match self.find_at(key, request.bump, entry).await? {
            Found::Live(item) if wins_recache(&item.meta, request, self.clock.now()) => {
                self.read_and_change(key, request).await
            }
            Found::Dead | Found::Nothing if request.vivify.is_some() => self.read_and_change(key, request).await,
            found => Ok(found.into()),
        }
    }

    /// An item. `bump`: the read counts for the eviction order below.
    pub(super) async fn find(&self, key: &Key<'_>, bump: bool) -> Result<Found, StoreError> {
        let entry = finish(self.ask(key, bump)).await.map(Outcome::lookup);
        self.find_at(key, bump, entry).await
    }

    /// An item, given the entry of its head.
    async fn find_at(&self, key: &Key<'_>, bump: bool, entry: Result<Lookup, StoreError>) -> Result<Found, StoreError> {
        let Some((head, entry)) = self.head_of(key, entry)? else { return Ok(Found::Nothing) };
        if head.meta.expiry.is_dead(self.clock.now()) {
            self.versions.expired(key.hash, head.meta.version());
            return Ok(Found::Dead);
        }
        let value =
            if head.piece_bytes == 0 { Some(without_head(entry)) } else { self.gather(key, &head, bump).await? };
        Ok(value.map_or(Found::Nothing, |value| Found::Live(Item { meta: head.meta, value: value.into() })))
    }

    /// The head under a key, and its entry, if it is of an epoch that may be read.
    pub(super) async fn find_head(&self, key: &Key<'_>, bump: bool) -> Result<Option<(Head, Vec<u8>)>, StoreError> {
        self.head_of(key, finish(self.ask(key, bump)).await.map(Outcome::lookup))
    }

    /// The head in an entry, and the entry, if it is of an epoch that may be read.
    fn head_of(&self, key: &Key<'_>, entry: Result<Lookup, StoreError>) -> Result<Option<(Head, Vec<u8>)>, StoreError> {
        let Lookup::Found(entry) = entry? else { return Ok(None) };
        let Some(head) = Head::read(key.bytes, &entry.value) else {
            self.counters.entries_foreign.bump();
            return Ok(None);
        };
        // After the answer: whatever ended the epoch before that is behind us.
        if !self.epochs.is_current(key.hash, head.epoch, self.clock.now()) {
            self.counters.entries_outdated.bump();
            return Ok(None);
        }
        if self.versions.is_flushed(head.meta.version()) {
            return Ok(None);
        }
        Ok(Some((head, entry.value.into_vec())))
    }

    /// The value of a head that has pieces; `None` if one is gone.
    async fn gather(&self, key: &Key<'_>, head: &Head, bump: bool) -> Result<Option<Vec<u8>>, StoreError> {
        if head.length > self.config.item_max as u64 {
            return Ok(None);
        }
        let mut value = Vec::with_capacity(head.length as usize);
        let mut next = 0;
        while next < head.pieces() {
            let numbers = next..head.pieces().min(next + PIECES_AT_ONCE);
            next = numbers.end;
            let asked = numbers.clone().map(|number| self.ask_piece(key, head.token, number, bump));
            let pieces = join_all(asked.map(finish)).await;
            for (number, piece) in numbers.zip(pieces) {
                let Lookup::Found(entry) = piece.map(Outcome::lookup)? else { return Ok(self.broken()) };
                let Some(data) = layout::piece_data(key.bytes, head.token, number, &entry.value) else {
                    return Ok(self.broken());
                };
                self.counters.pieces_read.bump();
                value.extend_from_slice(data);
            }
        }
        Ok(if value.len() as u64 == head.length { Some(value) } else { self.broken() })
    }

    fn broken(&self) -> Option<Vec<u8>> {
        self.counters.values_broken.bump();
        None
    }

    /// Begins to read a piece.
    fn ask_piece(&self, key: &Key<'_>, token: u64, number: u32, bump: bool) -> Step {
        let name = layout::piece_name(key.bytes, token, number);
        self.ask(&Key::new(name.as_bytes(), self.below.seed()), bump)
    }

    /// Begins to read an entry.
    fn ask(&self, key: &Key<'_>, bump: bool) -> Step {
        let read = Retrieve::default();
        read_owned(&self.below, &self.cx, key, if bump { Op::Read(&read) } else { Op::Peek })
    }
}

/// The value after a head.
fn without_head(mut entry: Vec<u8>) -> Vec<u8> {
    entry.drain(..HEAD_BYTES);
    entry
}
