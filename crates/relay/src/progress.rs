//! How far a relay has come, over restarts: a file that says which copy is read, and up to when all of it is here.
//!
//! What is kept is a moment and no place in a log, since any copy of the region can be read on from a moment. The file is replaced as
//! a whole, and a lock on a file beside it, whose name ends in `.lock`, keeps a second relay away for as long as the first one lives.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config::RelayConfig;

/// The form of the file.
const FORM: u32 = 1;
/// How often a file that another relay has is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Most bytes of the file: a slot takes less than 300.
const FILE_MAX: u64 = 16 << 20;

/// What is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// The form of the file.
    form: u32,
    /// The copy that is read.
    pub copy: String,
    /// Everything that any node of the other region took until then is here, in milliseconds since the Unix epoch, by the clocks
    /// there; 0: that is not known.
    pub whole: u64,
    /// The same of each slot of the copy.
    pub slots: BTreeMap<String, u64>,
    /// What `whole` was when this copy was begun to be read; 0: that is not known.
    #[serde(default)]
    pub begun: u64,
}

impl Kept {
    /// Up to when all is here of what a slot of a copy has told.
    pub fn of(&self, copy: &str, slot: &str) -> u64 {
        let own = if self.copy == copy { self.slots.get(slot).copied().unwrap_or(0) } else { 0 };
        own.max(self.whole)
    }

    /// From where a slot of a copy is read on.
    pub fn resume(&self, copy: &str, slot: &str) -> Resume {
        let whole = self.of(copy, slot);
        let margin = u64::try_from(RelayConfig::MARGIN.as_millis()).unwrap_or(u64::MAX);
        Resume { since: whole.saturating_sub(margin), whole }
    }

    /// All is here of each copy up to then.
    pub fn until(whole: u64) -> Self {
        Self { form: FORM, whole, ..Self::default() }
    }

    /// Takes over how far the slots of a copy are, all of them. What is here does not become less.
    ///
    /// Returns, if another copy was read before, since when that one was read. What it lacked all that time it told nobody, so that
    /// may be missing here, however far it was.
    pub fn advance(&mut self, copy: &str, slots: impl IntoIterator<Item = (String, u64)>) -> Option<u64> {
        self.form = FORM;
        let mut before = None;
        if self.copy != copy {
            before = (!self.copy.is_empty() && self.begun > 0).then_some(self.begun);
            copy.clone_into(&mut self.copy);
            self.begun = self.whole;
        }
        self.slots = slots.into_iter().collect();
        self.whole = self.whole.max(self.slots.values().copied().min().unwrap_or(0));
        before
    }
}

/// From where a slot is read on, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume {
    /// From this moment on: the margin before the other one.
    pub since: u64,
    /// All is here up to then: a gap that ends by then is none.
    pub whole: u64,
}

/// Why the file does not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// It cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It says something else.
    #[error("{path} is no file of a relay's progress: {why}; remove it to begin anew")]
    Foreign {
        /// The file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// It cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// Another process keeps its progress in it.
    #[error("{path} is in use by another relay")]
    InUse {
        /// The file.
        path: String,
    },
}

/// The file.
#[derive(Debug)]
pub struct Progress {
    path: PathBuf,
    /// What it says.
    written: Kept,
    _lock: File,
}

impl Progress {
    /// Takes the file at `path`, which need not be there. A relay that is about to end has `patience` to leave it.
    ///
    /// # Errors
    /// If another relay has it, its folder takes no lock, or it says something else.
    pub fn open(path: PathBuf, patience: Duration) -> Result<Self, ProgressError> {
        let shown = || path.display().to_string();
        let refused = |source| ProgressError::Write { path: shown(), source };
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(beside(&path, ".lock"));
        let lock = lock.map_err(refused)?;
        let from = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK) if from.elapsed() < patience => sleep(LOOK_EVERY),
                Err(Errno::WOULDBLOCK) => return Err(ProgressError::InUse { path: shown() }),
                Err(error) => return Err(refused(error.into())),
            }
        }
        let written = read(&path)?;
        Ok(Self { path, written, _lock: lock })
    }

    /// What the file says.
    pub fn written(&self) -> &Kept {
        &self.written
    }

    /// Replaces what the file says, such that it says the one or the other if the machine stops meanwhile.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, kept: &Kept) -> Result<(), ProgressError> {
        if self.written == *kept {
            return Ok(());
        }
        let draft = beside(&self.path, ".new");
        write(&draft, kept)
            .and_then(|()| fs::rename(&draft, &self.path))
            .map_err(|source| ProgressError::Write { path: self.path.display().to_string(), source })?;
        self.written.clone_from(kept);
        Ok(())
    }
}

fn read(path: &Path) -> Result<Kept, ProgressError> {
    let shown = || path.display().to_string();
    match fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Kept::default()),
        Err(source) => return Err(ProgressError::Read { path: shown(), source }),
        Ok(about) if about.len() > FILE_MAX => {
            return Err(ProgressError::Foreign { path: shown(), why: "it is too large".to_owned() });
        }
        Ok(_) => {}
    }
    let text = fs::read(path).map_err(|source| ProgressError::Read { path: shown(), source })?;
    let kept: Kept = serde_json::from_slice(&text)
        .map_err(|error| ProgressError::Foreign { path: shown(), why: error.to_string() })?;
    match kept.form {
        FORM => Ok(kept),
        form => Err(ProgressError::Foreign { path: shown(), why: format!("its form is {form}, not {FORM}") }),
    }
}

fn write(draft: &Path, kept: &Kept) -> io::Result<()> {
    let mut file = File::create(draft)?;
    serde_json::to_writer_pretty(&mut file, kept)?;
    file.write_all(b"\n")?;
    // Else the file may be there without its content after a loss of power.
    file.sync_all()
}

/// The whole name counts: `a.1` and `a.2` have different ones.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read_by_the_next_one_and_by_one_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.json");
        let mut first = Progress::open(path.clone(), Duration::ZERO).unwrap();
        assert_eq!(first.written(), &Kept::default());
        let mut kept = Kept::default();
        kept.advance("a", [("a0".to_owned(), 20), ("a1".to_owned(), 30)]);
        first.keep(&kept).unwrap();
        assert!(matches!(Progress::open(path.clone(), Duration::ZERO), Err(ProgressError::InUse { .. })));
        drop(first);
        assert_eq!(Progress::open(path.clone(), Duration::ZERO).unwrap().written(), &kept);
        for wrong in ["", "{}", "{\"form\":2,\"copy\":\"a\",\"whole\":1,\"slots\":{}}"] {
            fs::write(&path, wrong).unwrap();
            let refused = Progress::open(path.clone(), Duration::ZERO);
            assert!(matches!(refused, Err(ProgressError::Foreign { .. })), "{wrong}");
        }
    }

    #[test]
    fn another_copy_is_read_from_what_is_here_of_all_slots() {
        let mut kept = Kept::default();
        kept.advance("a", [("0".to_owned(), 50), ("1".to_owned(), 30)]);
        assert_eq!((kept.of("a", "0"), kept.of("a", "1"), kept.of("a", "2"), kept.of("b", "0")), (50, 30, 30, 30));
        // A copy that is behind takes nothing away from what is here.
        kept.advance("b", [("0".to_owned(), 10), ("1".to_owned(), 60)]);
        assert_eq!((kept.whole, kept.of("b", "0"), kept.of("b", "1"), kept.of("a", "0")), (30, 30, 60, 30));
    }

    #[test]
    fn what_a_copy_may_have_lacked_reaches_back_to_where_it_was_begun() {
        let mut kept = Kept::until(20);
        let mut at = |copy, whole| kept.advance(copy, [("0".to_owned(), whole)]);
        assert_eq!([at("a", 30), at("a", 40), at("b", 40), at("b", 50)], [None, None, Some(20), None]);
        assert_eq!([at("a", 50), at("a", 60), at("b", 60)], [Some(40), None, Some(50)]);
    }
}
