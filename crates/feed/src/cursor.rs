//! The file in which a reader of a feed keeps how far it has come: a cursor, and after it the moment up to which all was told.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// How often a file that another reader has is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// How far a reader has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// Where to read on.
    pub cursor: String,
    /// Everything until then was told, in milliseconds since the Unix epoch; 0: that is not known.
    pub watermark: u64,
}

/// Why a cursor's file does not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CursorError {
    /// It cannot be read.
    #[error("{path} cannot be read: {source}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error("{path} cannot be written: {source}")]
    Write {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// It says how far another reader is, which writes elsewhere.
    #[error(
        "{path} says how far what was written to {of} is, and this would write to {wanted}: another target takes another file"
    )]
    Other {
        /// The file.
        path: String,
        /// What it is of.
        of: String,
        /// What this reader is of.
        wanted: String,
    },
    /// Another process keeps its cursor in it.
    #[error("{path} is in use by another reader")]
    InUse {
        /// The file.
        path: String,
    },
}

/// The file. One reader at a time has it: a lock on the file beside it, whose name ends in `.lock`, lasts until this is dropped
/// or the process ends.
#[derive(Debug)]
pub struct CursorFile {
    path: PathBuf,
    /// What it holds by this process.
    kept: Option<Kept>,
    /// What its reader does with what it reads; `None`: that does not matter.
    of: Option<String>,
    /// What its reader notes beside that, one word.
    note: Option<String>,
    _lock: File,
}

impl CursorFile {
    /// Takes the file at `path`, which need not be there. A reader that is about to end has `patience` to leave it.
    ///
    /// # Errors
    /// If another reader has it, or its folder takes no lock.
    pub fn open(path: PathBuf, patience: Duration) -> Result<Self, CursorError> {
        let shown = || path.display().to_string();
        let refused = |source| CursorError::Write { path: shown(), source };
        let beside = beside(&path, ".lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&beside).map_err(refused)?;
        let from = Instant::now();
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { path, kept: None, of: None, note: None, _lock: lock }),
                Err(Errno::WOULDBLOCK) if from.elapsed() < patience => sleep(LOOK_EVERY),
                Err(Errno::WOULDBLOCK) => return Err(CursorError::InUse { path: shown() }),
                Err(error) => return Err(refused(error.into())),
            }
        }
    }

    /// Of a reader that writes there, one word: a file of another is refused.
    #[must_use]
    pub fn of(self, of: String) -> Self {
        Self { of: Some(of), ..self }
    }

    /// Of a reader that notes this, one word, whenever it says how far it is. It has [`CursorFile::of`], too.
    #[must_use]
    pub fn noting(self, note: String) -> Self {
        Self { note: Some(note), ..self }
    }

    /// What its reader noted then; `None`: nothing.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn noted(&self) -> Result<Option<String>, CursorError> {
        Ok(self.text()?.split_whitespace().nth(3).map(str::to_owned))
    }

    fn text(&self) -> Result<String, CursorError> {
        match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(source) => Err(CursorError::Read { path: self.path.display().to_string(), source }),
            Ok(text) => Ok(text),
        }
    }

    /// What it says; `None` if there is no such file, or nothing in it.
    ///
    /// # Errors
    /// If it cannot be read, or is of another reader.
    pub fn read(&self) -> Result<Option<Kept>, CursorError> {
        let text = self.text()?;
        let mut words = text.split_whitespace();
        let cursor = words.next().map(str::to_owned);
        // Earlier builds wrote a cursor alone.
        let watermark = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        if let (Some(of), Some(wanted)) = (words.next(), &self.of)
            && of != wanted
        {
            let (path, of) = (self.path.display().to_string(), of.to_owned());
            return Err(CursorError::Other { path, of, wanted: wanted.clone() });
        }
        Ok(cursor.map(|cursor| Kept { cursor, watermark }))
    }

    /// Replaces what it says, such that it says the one or the other if the machine stops meanwhile.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(&mut self, kept: Kept) -> Result<(), CursorError> {
        if self.kept.as_ref().is_some_and(|before| before.cursor == kept.cursor) {
            return Ok(());
        }
        let draft = draft(&self.path);
        write(&draft, &kept, [&self.of, &self.note])
            .and_then(|()| fs::rename(&draft, &self.path))
            .map_err(|source| CursorError::Write { path: self.path.display().to_string(), source })?;
        self.kept = Some(kept);
        Ok(())
    }
}

/// Where it is written before it takes the file's place. The whole name counts: `to-10.0.0.2` and `to-10.0.0.3` have different
/// ones.
fn draft(path: &Path) -> PathBuf {
    beside(path, ".new")
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

fn write(draft: &Path, Kept { cursor, watermark }: &Kept, more: [&Option<String>; 2]) -> io::Result<()> {
    let mut file = File::create(draft)?;
    let more = more.into_iter().flatten().map(|word| format!(" {word}")).collect::<String>();
    writeln!(file, "{cursor} {watermark}{more}")?;
    // Else the file may be there without its content after a loss of power.
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_a_draft_of_its_whole_name() {
        let drafts = ["to-10.0.0.2", "to-10.0.0.3", "to-10.0.0", "a/to-10.0.0"].map(|name| draft(Path::new(name)));
        assert!(drafts.iter().enumerate().all(|(number, one)| !drafts[..number].contains(one)), "{drafts:?}");
    }

    #[test]
    fn what_is_kept_is_read_also_of_an_earlier_build() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut file = CursorFile::open(folder.path().join("cursor.2"), Duration::ZERO).expect("it is free");
        assert_eq!(file.read().expect("it is none"), None);
        let kept = Kept { cursor: "2cfd-8-1".into(), watermark: 1_795_389_412_803 };
        file.keep(kept.clone()).expect("there is room");
        assert_eq!(file.read().expect("it is there"), Some(kept));
        fs::write(folder.path().join("cursor.2"), "2cfd-8\n").expect("there is room");
        let earlier = Kept { cursor: "2cfd-8".into(), watermark: 0 };
        assert_eq!(file.read().expect("it is there"), Some(earlier));
        let there =
            fs::read_dir(folder.path()).expect("it is there").map(|entry| entry.expect("it is there").file_name());
        let mut there: Vec<_> = there.collect();
        there.sort();
        assert_eq!(there, ["cursor.2", "cursor.2.lock"], "the draft took the file's place");
    }

    #[test]
    fn one_reader_has_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("cursor");
        let first = CursorFile::open(path.clone(), Duration::ZERO).expect("it is free");
        assert!(matches!(CursorFile::open(path.clone(), Duration::ZERO), Err(CursorError::InUse { .. })));
        drop(first);
        CursorFile::open(path, Duration::ZERO).expect("it is free again");
    }
}
