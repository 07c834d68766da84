//! The tables in the file, and what is read of them.
//!
//! | table | key | value |
//! |---|---|---|
//! | numbers | name | format, incarnation, revision, compacted, turn (one a transaction) |
//! | entries | key | created, modified, hold (0: none), value |
//! | changes | revision, key | created, hold, value (none: deleted) |
//! | holds | hold | seconds |
//! | held | hold, key | |

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use crate::entry::{Change, Entry, Hold, Incarnation, Revision, Snapshot};
use crate::error::LedgerError;

/// What this build writes.
pub(crate) const FORMAT: u64 = 1;

pub(crate) const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
pub(crate) const ENTRIES: TableDefinition<'_, &str, (u64, u64, i64, &[u8])> = TableDefinition::new("entries");
pub(crate) const CHANGES: TableDefinition<'_, (u64, &str), ChangeRow<'_>> = TableDefinition::new("changes");
pub(crate) const HOLDS: TableDefinition<'_, i64, u64> = TableDefinition::new("holds");
pub(crate) const HELD: TableDefinition<'_, (i64, &str), ()> = TableDefinition::new("held");

/// Created, hold, value.
pub(crate) type ChangeRow<'a> = (u64, i64, Option<&'a [u8]>);

/// How much of the history one read takes: bytes of keys and values.
const BLOCK_BYTES: usize = 4 << 20;
/// How many changes.
const BLOCK_CHANGES: usize = 10_000;

/// The words for what redb met.
pub(crate) fn failure(error: redb::Error) -> LedgerError {
    match error {
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_) => LedgerError::Damaged { reason: error.to_string() },
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            LedgerError::Damaged { reason: format!("the file is no ledger: {error}") }
        }
        redb::Error::Io(error) if error.kind() == std::io::ErrorKind::StorageFull => {
            LedgerError::Unavailable { reason: "the disk is full".to_owned() }
        }
        error => LedgerError::Unavailable { reason: format!("the disk fails: {error}") },
    }
}

/// A number that has to be there.
pub(crate) fn number(table: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, redb::Error> {
    match table.get(name)? {
        Some(number) => Ok(number.value()),
        None => Err(redb::Error::Corrupted(format!("there is no number {name}"))),
    }
}

pub(crate) fn hold_of(number: i64) -> Option<Hold> {
    (number != 0).then_some(Hold(number))
}

/// All entries of a prefix at the newest revision.
pub(crate) fn snapshot(database: &Database, prefix: &str) -> Result<Snapshot, redb::Error> {
    let reading = database.begin_read()?;
    let numbers = reading.open_table(NUMBERS)?;
    let entries = reading.open_table(ENTRIES)?;
    let mut snapshot = Snapshot {
        incarnation: Incarnation(number(&numbers, "incarnation")?),
        revision: Revision(number(&numbers, "revision")?),
        entries: Vec::new(),
    };
    for row in entries.range(prefix..)? {
        let (key, row) = row?;
        if !key.value().starts_with(prefix) {
            break;
        }
        let (created, modified, hold, value) = row.value();
        snapshot.entries.push(Entry {
            key: key.value().to_owned(),
            value: Bytes::copy_from_slice(value),
            created: Revision(created),
            modified: Revision(modified),
            hold: hold_of(hold),
        });
    }
    Ok(snapshot)
}

/// A part of the history.
#[derive(Debug)]
pub(crate) enum History {
    /// It begins only here.
    Compacted(Revision),
    /// What was changed below the prefix, commit by commit, up to this revision.
    Told(Vec<(Revision, Vec<Change>)>, Revision),
}

/// What was changed below a prefix after `after`, as far as one read takes it.
pub(crate) fn history(database: &Database, prefix: &str, after: Revision) -> Result<History, redb::Error> {
    let reading = database.begin_read()?;
    let numbers = reading.open_table(NUMBERS)?;
    let compacted = number(&numbers, "compacted")?;
    if after.0 < compacted {
        return Ok(History::Compacted(Revision(compacted)));
    }
    let changes = reading.open_table(CHANGES)?;
    let (mut told, mut bytes, mut last) = (Vec::<(Revision, Vec<Change>)>::new(), 0, after.0);
    for (rows, row) in changes.range((after.0 + 1, "")..)?.enumerate() {
        let (at, row) = row?;
        let (revision, key) = at.value();
        if revision != last && (bytes > BLOCK_BYTES || rows >= BLOCK_CHANGES) {
            return Ok(History::Told(told, Revision(last)));
        }
        last = revision;
        if !key.starts_with(prefix) {
            continue;
        }
        let (created, hold, value) = row.value();
        bytes += key.len() + value.map_or(0, <[u8]>::len);
        let change = match value {
            None => Change::Deleted { key: key.to_owned(), revision: Revision(revision) },
            Some(value) => Change::Put(Entry {
                key: key.to_owned(),
                value: Bytes::copy_from_slice(value),
                created: Revision(created),
                modified: Revision(revision),
                hold: hold_of(hold),
            }),
        };
        match told.last_mut() {
            Some((at, changes)) if at.0 == revision => changes.push(change),
            _ => told.push((Revision(revision), vec![change])),
        }
    }
    Ok(History::Told(told, Revision(number(&numbers, "revision")?)))
}
