//! The open file, or why there is none.
//!
//! ```text
//!  open ──a failure──> failed: all is refused ──readers are done──> closed ──opened again──> open
//! ```
//!
//! The file is opened once at a time: two of redb's databases on one file would overwrite each other.

use std::fs::{self, File};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Builder, Database, ReadableDatabase, ReadableTable};

use crate::embedded::disk::{Backend, Opener};
use crate::embedded::queue::closed;
use crate::embedded::tables::{CHANGES, ENTRIES, FORMAT, HELD, HOLDS, NUMBERS, failure, number};
use crate::entry::{Incarnation, Revision};
use crate::error::LedgerError;

/// What redb keeps of the file in RAM at most.
const CACHE: usize = 64 << 20;

/// What a file that was opened says.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) incarnation: Incarnation,
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pub(crate) turn: u64,
    pub(crate) holds: Vec<(i64, u64)>,
}

#[derive(Debug)]
enum State {
    Open(Arc<Database>),
    /// Why, and what readers may still use.
    Failed(LedgerError, Option<Arc<Database>>),
    Closed,
}

/// The file of a ledger.
pub(crate) struct Store {
    path: PathBuf,
    opener: Opener,
    state: Mutex<State>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.path).field("state", &self.state).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the file, and makes it if it is not there. Checks all of it.
    pub(crate) fn open(path: PathBuf, opener: Opener) -> Result<(Self, Opened), LedgerError> {
        let failed = |error: io::Error| failure(error.into());
        match fs::metadata(&path) {
            Ok(found) if found.len() == 0 => {
                return Err(LedgerError::Damaged { reason: format!("{} is empty", path.display()) });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path, &opener).map_err(failure)?,
            Err(error) => return Err(failed(error)),
        }
        // redb says that it may panic on a file that was altered, and that this check finds those.
        let open = || open(&path, &opener, true);
        let opened = catch_unwind(AssertUnwindSafe(open));
        let damaged = |reason| LedgerError::Damaged { reason: format!("{}: {reason}", path.display()) };
        let (database, opened) = match opened {
            Ok(Ok(opened)) => opened,
            Ok(Err(error)) => {
                return Err(match failure(error) {
                    LedgerError::Damaged { reason } => damaged(reason),
                    other => other,
                });
            }
            Err(_) => return Err(damaged("it cannot be read".to_owned())),
        };
        Ok((Self { path, opener, state: Mutex::new(State::Open(Arc::new(database))) }, opened))
    }

    pub(crate) fn get(&self) -> Result<Arc<Database>, LedgerError> {
        match &*self.state.lock() {
            State::Open(database) => Ok(Arc::clone(database)),
            State::Failed(why, _) => Err(why.clone()),
            State::Closed => Err(closed()),
        }
    }

    /// Refuses all from here on, until it is opened again.
    pub(crate) fn fail(&self, why: LedgerError) {
        let mut state = self.state.lock();
        *state = match std::mem::replace(&mut *state, State::Closed) {
            State::Open(database) => State::Failed(why, Some(database)),
            State::Failed(_, database) => State::Failed(why, database),
            State::Closed => State::Closed,
        };
    }

    /// Opens it again after a failure; nothing if a read still uses what failed, or the failure goes on.
    pub(crate) fn reopen(&self) -> Option<Opened> {
        let failed = {
            let mut state = self.state.lock();
            let State::Failed(LedgerError::Unavailable { .. }, old) = &mut *state else { return None };
            match old.take().map(Arc::try_unwrap) {
                Some(Err(used)) => {
                    *old = Some(used);
                    return None;
                }
                Some(Ok(database)) => Some(database),
                None => None,
            }
        };
        // Closed without the lock: that may take as long as the disk does.
        drop(failed);
        match open(&self.path, &self.opener, false) {
            Ok((database, opened)) => {
                let mut state = self.state.lock();
                if let State::Closed = *state {
                    return None;
                }
                *state = State::Open(Arc::new(database));
                Some(opened)
            }
            Err(error) => {
                self.fail(failure(error));
                None
            }
        }
    }

    pub(crate) fn close(&self) {
        let last = std::mem::replace(&mut *self.state.lock(), State::Closed);
        drop(last);
    }
}

fn open(path: &Path, opener: &Opener, check: bool) -> Result<(Database, Opened), redb::Error> {
    let backend = Backend(opener(path)?);
    let database =
        Builder::new().set_cache_size(CACHE).set_check_integrity_on_open(check).create_with_backend(backend)?;
    let reading = database.begin_read()?;
    let numbers = reading.open_table(NUMBERS)?;
    let format = number(&numbers, "format")?;
    if format != FORMAT {
        return Err(redb::Error::Corrupted(format!("the format is {format}, and this build reads {FORMAT}")));
    }
    let table = reading.open_table(HOLDS)?;
    let holds = table.iter()?.map(|row| row.map(|(hold, seconds)| (hold.value(), seconds.value())));
    let opened = Opened {
        incarnation: Incarnation(number(&numbers, "incarnation")?),
        revision: Revision(number(&numbers, "revision")?),
        compacted: Revision(number(&numbers, "compacted")?),
        turn: number(&numbers, "turn")?,
        holds: holds.collect::<Result<_, _>>()?,
    };
    drop((numbers, table, reading));
    Ok((database, opened))
}

/// Makes the file: under another name until it is whole.
fn make(path: &Path, opener: &Opener) -> Result<(), redb::Error> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let database = Builder::new().set_cache_size(CACHE).create_with_backend(Backend(opener(&unfinished)?))?;
    let writing = database.begin_write()?;
    {
        let mut numbers = writing.open_table(NUMBERS)?;
        let incarnation = random()?;
        for (name, number) in
            [("format", FORMAT), ("incarnation", incarnation), ("revision", 0), ("compacted", 0), ("turn", 0)]
        {
            numbers.insert(name, number)?;
        }
    }
    writing.open_table(ENTRIES)?;
    writing.open_table(CHANGES)?;
    writing.open_table(HOLDS)?;
    writing.open_table(HELD)?;
    writing.commit()?;
    drop(database);
    fs::rename(&unfinished, path)?;
    // The name lasts when the directory is synced.
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()?;
    Ok(())
}

/// 64 bits that nothing else has drawn.
pub(crate) fn random() -> Result<u64, redb::Error> {
    getrandom::u64().map_err(|error| io::Error::other(error.to_string()).into())
}
