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
            Ok(text) => Ok(Some(Topology::from_toml(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(SourceError::File { path: self.0.clone(), source }),
        }
    }

    /// Keeps `topology` instead of what was kept: all of it, or nothing, also if the power goes.
    pub(super) fn store(&self, topology: &Topology) -> Result<(), SourceError> {
        self.write(&topology.to_toml()).map_err(|source| SourceError::File { path: self.0.clone(), source })
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
