//! The last topology that was taken, on disk, for a start at which its source cannot be read.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::source::SourceError;
use crate::topology::Topology;

/// The file that keeps it.
#[derive(Debug)]
pub(super) struct Kept(PathBuf);

impl Kept {
    pub(super) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// What was kept; `None`: nothing yet.
    pub(super) fn load(&self) -> Result<Option<Topology>, SourceError> {
        match fs::read_to_string(&self.0) {
            Ok(text) => match checked(&text) {
                true => Ok(Some(Topology::from_toml(&text)?)),
                false => Err(SourceError::Checksum(self.0.clone())),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SourceError::File { path: self.0.clone(), source }),
        }
    }

    /// Keeps `topology` instead of what was kept: all of it, or nothing, also if the power goes.
    pub(super) fn store(&self, topology: &Topology) -> Result<(), SourceError> {
        let text = topology.to_toml();
        let sum = sum(&text);
        self.write(&format!("{text}{MARK}{sum}\n")).map_err(|source| SourceError::File { path: self.0.clone(), source })
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut new = self.0.clone().into_os_string();
        new.push(".new");
        let new = PathBuf::from(new);
        let mut file = File::create(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.0)?;
        let folder = self.0.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder)?.sync_all()
    }
}

/// Begins the last line, a comment: the checksum of what stands before it. Files of older builds have none.
const MARK: &str = "# xxh3 ";

fn sum(text: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(text.as_bytes()))
}

/// Whether the text is what was written.
fn checked(text: &str) -> bool {
    match text.rsplit_once(MARK) {
        Some((before, said)) if before.is_empty() || before.ends_with('\n') => said.trim_end() == sum(before),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_since_it_was_written_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let kept = Kept::at(folder.path().join("kept.toml"));
        let text = "[[replica]]\nzone = \"a\"\nnodes = [\"a0=127.0.0.1:1\"]\n";
        let topology = Topology::from_toml(text).unwrap();
        kept.store(&topology).unwrap();
        assert_eq!(kept.load().unwrap(), Some(topology));
        let written = fs::read_to_string(&kept.0).unwrap();
        fs::write(&kept.0, written.replace("a0=", "a1=")).unwrap();
        assert!(matches!(kept.load(), Err(SourceError::Checksum(_))));
        fs::write(&kept.0, text).unwrap();
        assert!(kept.load().unwrap().is_some(), "an older build wrote no checksum");
    }
}
