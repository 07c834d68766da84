//! The file in which a reader of a feed keeps how far it has come: a cursor, and behind it the moment up to which all was told.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

/// How far a reader has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) cursor: String,
    /// Everything until then was told, in milliseconds since the Unix epoch; 0: that is not known.
    pub(super) watermark: u64,
}

/// The file.
#[derive(Debug)]
pub(super) struct CursorFile {
    path: PathBuf,
    /// What it holds by this process.
    kept: Option<Kept>,
}

impl CursorFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, kept: None }
    }

    /// What it says; `None` if there is no such file, or nothing in it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(super) fn read(&self) -> anyhow::Result<Option<Kept>> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.with_context(|| format!("{} cannot be read", self.path.display()))?,
        };
        let mut words = text.split_whitespace();
        let cursor = words.next().map(str::to_owned);
        // Earlier builds wrote a cursor alone.
        let watermark = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        Ok(cursor.map(|cursor| Kept { cursor, watermark }))
    }

    /// Replaces what it says, such that it says the one or the other if the machine stops meanwhile.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(super) fn keep(&mut self, kept: Kept) -> anyhow::Result<()> {
        if self.kept.as_ref().is_some_and(|before| before.cursor == kept.cursor) {
            return Ok(());
        }
        let draft = draft(&self.path);
        write(&draft, &kept)
            .and_then(|()| fs::rename(&draft, &self.path))
            .with_context(|| format!("{} cannot be written", self.path.display()))?;
        self.kept = Some(kept);
        Ok(())
    }
}

/// Where it is written before it takes the file's place. The whole name counts: `to-10.0.0.2` and `to-10.0.0.3` have different ones.
fn draft(path: &Path) -> PathBuf {
    let mut name: OsString = path.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn write(draft: &Path, Kept { cursor, watermark }: &Kept) -> io::Result<()> {
    let mut file = File::create(draft)?;
    writeln!(file, "{cursor} {watermark}")?;
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
        let mut file = CursorFile::new(folder.path().join("cursor.2"));
        assert_eq!(file.read().expect("it is none"), None);
        let kept = Kept { cursor: "2cfd-8-1".into(), watermark: 1_795_389_412_803 };
        file.keep(kept.clone()).expect("there is room");
        assert_eq!(file.read().expect("it is there"), Some(kept));
        fs::write(folder.path().join("cursor.2"), "2cfd-8\n").expect("there is room");
        let earlier = Kept { cursor: "2cfd-8".into(), watermark: 0 };
        assert_eq!(file.read().expect("it is there"), Some(earlier));
        assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 1, "the draft took the file's place");
    }
}
