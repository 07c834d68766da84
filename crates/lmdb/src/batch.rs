//! Writes that take effect together: a transaction.

use std::sync::atomic::Ordering;

use heed::RwTxn;
use moneta_embedded::{Batch, Failure, Header};
use moneta_store::Key;

use crate::environment::{LmdbDatabase, failure};
use crate::tables::Left;

/// A transaction, which holds LMDB's one writer's place.
pub struct LmdbBatch<'a> {
    database: &'a LmdbDatabase,
    txn: RwTxn<'a>,
    /// What had to go to make room; told when it has.
    evicted: Vec<Left>,
}

impl<'a> LmdbBatch<'a> {
    pub(crate) fn begin(database: &'a LmdbDatabase) -> Result<Self, Failure> {
        let txn = database.env.write_txn().map_err(|error| failure("write", &error))?;
        Ok(Self { database, txn, evicted: Vec::new() })
    }

    /// Evicts the items written longest ago while the trees have more pages than they may, for `key` to be stored.
    fn evict_for(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        let tables = &self.database.tables;
        let most = self.database.pages_max();
        let failed = |error| failure("evict", &error);
        while tables.pages(&self.txn).map_err(failed)? > most {
            let Some(left) = tables.remove_oldest(&mut self.txn, |_| true).map_err(failed)? else { break };
            self.database.remember(&left);
            // An older version of this key would have gone anyway.
            if *left.key != *key.bytes {
                self.evicted.push(left);
            }
        }
        Ok(())
    }
}

impl Batch for LmdbBatch<'_> {
    fn read(&mut self, key: &Key<'_>, into: &mut Vec<u8>) -> Result<bool, Failure> {
        let found = self.database.tables.items.get(&self.txn, key.bytes).map_err(|error| failure("read", &error))?;
        into.clear();
        into.extend_from_slice(found.unwrap_or_default());
        Ok(found.is_some())
    }

    /// Evicts before there is no room, as LMDB needs some to remove anything.
    fn put(&mut self, key: &Key<'_>, header: &Header, record: &[u8]) -> Result<(), Failure> {
        self.evict_for(key)?;
        self.database.tables.put(&mut self.txn, key.bytes, header, record).map_err(|error| failure("write", &error))
    }

    fn delete(&mut self, key: &Key<'_>) -> Result<(), Failure> {
        let removed = self.database.tables.remove(&mut self.txn, key.bytes);
        removed.map(|_| ()).map_err(|error| failure("delete", &error))
    }

    fn commit(self) -> Result<(), Failure> {
        self.txn.commit().map_err(|error| failure("commit", &error))?;
        self.database.counters.commits.fetch_add(1, Ordering::Relaxed);
        self.evicted.iter().for_each(|left| self.database.departed(left));
        Ok(())
    }
}
