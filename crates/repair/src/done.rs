//! How far a repair is, over restarts: a file with what it looks at and which buckets it is done with.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::digest::Span;

/// What is done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// The sides by name.
    pub sides: [String; 2],
    /// What is looked at.
    pub span: Span,
    /// Buckets below are done.
    pub below: u32,
}

impl Done {
    /// What the file says; `None`: there is none, or it is of something else.
    pub fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Whether something is done.
    pub(crate) fn is_begun(&self) -> bool {
        self.below > 0
    }

    /// Whether it is a part of what is wanted now: of the same sides and keys, and since no later moment. `--since 26h` is another
    /// moment each time.
    pub(crate) fn is_part_of(&self, wanted: &Self) -> bool {
        let Span { since, until, .. } = self.span;
        self.sides == wanted.sides
            && (since == 0) == (wanted.span.since == 0)
            && since <= wanted.span.since
            && self.span == Span { since, until, ..wanted.span.clone() }
    }

    /// Replaces what it says.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut draft = path.as_os_str().to_owned();
        draft.push(".new");
        let mut file = File::create(&draft)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        drop(file);
        fs::rename(draft, path)
    }
}
