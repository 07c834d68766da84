//! What a process prints, in a file without a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

/// One stream of a process. The file is gone when both have ended with it.
#[derive(Debug)]
pub(super) struct Captured(File);

impl Captured {
    pub fn new() -> io::Result<Self> {
        Ok(Self(tempfile::tempfile()?))
    }

    /// Where the process writes to.
    pub fn stdio(&self) -> io::Result<Stdio> {
        Ok(self.0.try_clone()?.into())
    }

    /// What is there by now. Reads by offset: the handles share one position, which is the writer's.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.0.metadata()?.len().try_into().unwrap_or(usize::MAX)];
        let mut read = 0;
        while read < bytes.len() {
            match self.0.read_at(&mut bytes[read..], read as u64)? {
                0 => break,
                more => read += more,
            }
        }
        bytes.truncate(read);
        Ok(bytes)
    }

    /// The same as text.
    pub fn text(&self) -> String {
        self.bytes().map_or_else(|error| format!("({error})"), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}
