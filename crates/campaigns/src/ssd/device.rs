//! What a whole disk has written, as the kernel counts it below the page cache: including write-back on behalf of no process.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use moneta_bench::{BenchError, Result};

/// Bytes of a sector in the kernel's counters, whatever the disk's own are.
const SECTOR: u64 = 512;
/// Which of the counters of block/stat are the sectors written.
const SECTORS_WRITTEN: usize = 6;

/// A disk's counters.
#[derive(Debug)]
pub struct Device {
    counters: PathBuf,
}

impl Device {
    /// The disk, or the part of it, that a folder lies on; `None` where it lies on none that has counters.
    ///
    /// # Errors
    /// [`BenchError::System`] when the folder cannot be looked at.
    pub fn below(folder: &Path) -> Result<Option<Self>> {
        let device = std::fs::metadata(folder)
            .map_err(|error| BenchError::system(format!("look at {}", folder.display()), error))?
            .dev();
        let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
        let counters = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
        Ok(counters.exists().then_some(Self { counters }))
    }

    /// Bytes it has written so far, once everything that waits in memory was.
    ///
    /// # Errors
    /// [`BenchError::System`] when its counters cannot be read.
    pub fn written(&self) -> Result<u64> {
        nix::unistd::sync();
        let text = std::fs::read_to_string(&self.counters)
            .map_err(|error| BenchError::system(format!("read {}", self.counters.display()), error))?;
        let sectors = text.split_whitespace().nth(SECTORS_WRITTEN).and_then(|field| field.parse::<u64>().ok());
        let sectors = sectors.ok_or_else(|| {
            BenchError::system(format!("read {}", self.counters.display()), std::io::ErrorKind::InvalidData)
        })?;
        Ok(sectors * SECTOR)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn what_is_written_to_a_folder_is_written_by_its_device() {
        let folder = tempfile::tempdir_in(".").unwrap();
        // A folder in memory has no device.
        let Some(device) = Device::below(folder.path()).unwrap() else { return };
        let before = device.written().unwrap();
        let mut file = std::fs::File::create(folder.path().join("file")).unwrap();
        let noise: Vec<u8> = (0..1u32 << 20).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        file.write_all(&noise).unwrap();
        file.sync_all().unwrap();
        assert!(device.written().unwrap() >= before + (1 << 20));
    }
}
