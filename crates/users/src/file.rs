//! Reading the file of users whole.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::UsersError;
use crate::roster::{Roster, TEXT_MAX};

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    place: (u64, u64),
    size: u64,
    /// Seconds and nanoseconds of the last write, and of the last change of anything, as its mode.
    times: [i64; 4],
}

impl Stamp {
    pub(crate) fn of(found: &Metadata) -> Self {
        let times = [found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec()];
        Self { place: (found.dev(), found.ino()), size: found.len(), times }
    }
}

/// Reads the file at `path`.
pub(crate) fn read(path: &Path) -> Result<(Stamp, Roster), UsersError> {
    let unreadable = |source: io::Error| UsersError::Read { path: path.to_owned(), source };
    let refuse = |reason: String| UsersError::File { path: path.to_owned(), reason };
    let mut file = File::open(path).map_err(unreadable)?;
    let found = file.metadata().map_err(unreadable)?;
    let (stamp, mode) = (Stamp::of(&found), found.mode() & 0o777);
    if !found.is_file() {
        return Err(refuse("it is not a file".into()));
    }
    if mode & 0o022 != 0 {
        return Err(refuse(format!("its mode is {mode:o}, so others than its owner may write it; `chmod 600` it")));
    }
    if found.len() > TEXT_MAX as u64 {
        return Err(refuse(format!("it has more than {} MiB", TEXT_MAX >> 20)));
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    Read::by_ref(&mut file).take(TEXT_MAX as u64 + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if Stamp::of(&file.metadata().map_err(unreadable)?) != stamp {
        return Err(refuse("it changed while it was read".into()));
    }
    let text = String::from_utf8(bytes).map_err(|_| refuse("it is not UTF-8".into()))?;
    let roster = Roster::parse(&text).map_err(|wrong| UsersError::Content { path: path.to_owned(), wrong })?;
    if mode & 0o004 != 0 {
        tracing::warn!(file = %path.display(), mode = format!("{mode:o}"), "everybody can read the file of users; chmod 600 it");
    }
    Ok((stamp, roster))
}
