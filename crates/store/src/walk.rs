//! What a walk of a store's items is made of.

use std::any::Any;

use moneta_item::ItemMeta;

use crate::outcome::Pending;

/// How far a walk came.
#[must_use]
pub enum Walking {
    /// There may be more: call again.
    More,
    /// That was the last batch.
    End,
    /// Nothing was shown: call again when this is done.
    Wait(Pending<()>),
}

/// Where a walk stands. Begin with the default, or [`Cursor::since`]; dropping it ends the walk.
#[derive(Debug, Default)]
pub struct Cursor {
    place: Option<Box<dyn Any + Send>>,
    since: u64,
}

impl Cursor {
    /// The begin of a walk that may leave out items whose versions were made before a moment, in milliseconds since the Unix epoch.
    /// Stores that need not read them do; others show all.
    pub fn since(millis: u64) -> Self {
        Self { place: None, since: millis }
    }

    /// Items whose versions were made before this moment may be left out; 0: all are to be shown.
    pub fn oldest(&self) -> u64 {
        self.since
    }

    /// Takes out what the store kept here at the end of the last batch; `None` at the begin of a walk, and for what another
    /// kind of store left.
    pub fn take<T: Any>(&mut self) -> Option<Box<T>> {
        self.place.take()?.downcast().ok()
    }

    /// Keeps what the store needs for the next batch.
    pub fn keep<T: Any + Send>(&mut self, place: Box<T>) {
        self.place = Some(place);
    }

    /// Whether the walk has begun and not ended.
    pub fn is_under_way(&self) -> bool {
        self.place.is_some()
    }
}

/// An item that a walk shows.
#[derive(Clone, Copy, Debug)]
pub struct Walked<'a> {
    /// The key.
    pub key: &'a [u8],
    /// All but key and value.
    pub meta: ItemMeta,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// Bytes of memory the item takes, key and header included.
    pub size: usize,
}
