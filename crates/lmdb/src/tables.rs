//! The three trees of the file, and what has to be changed in each for an item to come or go.
//!
//! ```text
//! items    key                          → record
//! order    sequence (8, big-endian)     → key       oldest first: what goes when room is needed
//! expiry   expiry (4) + sequence (8)    → key       soonest first: what the sweeper removes; only items that expire
//! ```
//!
//! An item is in `order` and `expiry` under what its record says, so a record tells where its other entries are. A change of an
//! item touches a leaf in each tree it is in; LMDB copies every page it touches, and the pages above. What that costs is
//! told in `docs/engines.md`.

use heed::types::Bytes;
use heed::{Database, Env, RoTxn, RwTxn};
use moneta_embedded::Header;

type Tree = Database<Bytes, Bytes>;

/// Bytes of a number in `order`.
const ORDER_BYTES: usize = size_of::<u64>();
/// Bytes of a key in `expiry`.
const EXPIRY_BYTES: usize = size_of::<u32>() + ORDER_BYTES;

/// The trees.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    pub(crate) items: Tree,
    order: Tree,
    expiry: Tree,
}

/// An item that has left.
pub(crate) struct Left {
    pub(crate) key: Box<[u8]>,
    pub(crate) header: Header,
    pub(crate) value_bytes: usize,
}

impl Tables {
    /// How many there are.
    pub(crate) const COUNT: u32 = 3;

    /// Opens the trees, or makes them; tells the bytes of a page, too.
    pub(crate) fn open(env: &Env) -> heed::Result<(Self, u64)> {
        let mut txn = env.write_txn()?;
        let tables = Self {
            items: env.create_database(&mut txn, Some("items"))?,
            order: env.create_database(&mut txn, Some("order"))?,
            expiry: env.create_database(&mut txn, Some("expiry"))?,
        };
        let page_bytes = tables.items.stat(&txn)?.page_size;
        txn.commit()?;
        Ok((tables, u64::from(page_bytes)))
    }

    /// Each tree with its name.
    pub(crate) fn named(&self) -> [(&'static str, Tree); 3] {
        [("items", self.items), ("order", self.order), ("expiry", self.expiry)]
    }

    /// Pages that the trees take.
    pub(crate) fn pages(&self, txn: &RoTxn<'_, heed::AnyTls>) -> heed::Result<u64> {
        let mut pages = 0;
        for (_, tree) in self.named() {
            let stat = tree.stat(txn)?;
            pages += (stat.branch_pages + stat.leaf_pages + stat.overflow_pages) as u64;
        }
        Ok(pages)
    }

    /// Stores a record, in the place of whatever its key had.
    pub(crate) fn put(&self, txn: &mut RwTxn<'_>, key: &[u8], header: &Header, record: &[u8]) -> heed::Result<()> {
        if let Some(old) = self.header(txn, key)? {
            self.forget_entries(txn, &old)?;
        }
        self.items.put(txn, key, record)?;
        self.order.put(txn, &header.sequence.to_be_bytes(), key)?;
        if let Some(entry) = expiry_entry(header) {
            self.expiry.put(txn, &entry, key)?;
        }
        Ok(())
    }

    /// Removes what a key has.
    pub(crate) fn remove(&self, txn: &mut RwTxn<'_>, key: &[u8]) -> heed::Result<Option<Left>> {
        let Some(record) = self.items.get(txn, key)? else { return Ok(None) };
        let left =
            Header::read(record).map(|(header, value)| Left { key: key.into(), header, value_bytes: value.len() });
        if let Some(left) = &left {
            self.forget_entries(txn, &left.header)?;
        }
        self.items.delete(txn, key)?;
        Ok(left)
    }

    /// Removes the item written longest ago, if `goes` says so of its sequence number.
    pub(crate) fn remove_oldest(
        &self,
        txn: &mut RwTxn<'_>,
        goes: impl FnOnce(u64) -> bool,
    ) -> heed::Result<Option<Left>> {
        let Some((entry, key)) = self.order.first(txn)? else { return Ok(None) };
        let sequence = <[u8; ORDER_BYTES]>::try_from(entry).map_or(0, u64::from_be_bytes);
        if !goes(sequence) {
            return Ok(None);
        }
        let (entry, key) = (entry.to_vec(), key.to_vec());
        let left = self.remove(txn, &key)?;
        // Gone with the record, unless the record was unreadable.
        self.order.delete(txn, &entry)?;
        Ok(left)
    }

    /// Removes the item that expires soonest, if that is not after `now`.
    pub(crate) fn remove_expired(&self, txn: &mut RwTxn<'_>, now: u32) -> heed::Result<Option<Left>> {
        let Some((entry, key)) = self.expiry.first(txn)? else { return Ok(None) };
        let moment = entry.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        if moment > now {
            return Ok(None);
        }
        let (entry, key) = (entry.to_vec(), key.to_vec());
        let left = self.remove(txn, &key)?;
        self.expiry.delete(txn, &entry)?;
        Ok(left)
    }

    fn header(&self, txn: &RwTxn<'_>, key: &[u8]) -> heed::Result<Option<Header>> {
        Ok(self.items.get(txn, key)?.and_then(Header::read).map(|(header, _)| header))
    }

    fn forget_entries(&self, txn: &mut RwTxn<'_>, header: &Header) -> heed::Result<()> {
        self.order.delete(txn, &header.sequence.to_be_bytes())?;
        if let Some(entry) = expiry_entry(header) {
            self.expiry.delete(txn, &entry)?;
        }
        Ok(())
    }
}

/// An item's key in `expiry`, if it expires.
fn expiry_entry(header: &Header) -> Option<[u8; EXPIRY_BYTES]> {
    let expiry = header.meta.expiry.0;
    (expiry != 0).then(|| {
        let mut entry = [0; EXPIRY_BYTES];
        entry[..size_of::<u32>()].copy_from_slice(&expiry.to_be_bytes());
        entry[size_of::<u32>()..].copy_from_slice(&header.sequence.to_be_bytes());
        entry
    })
}
