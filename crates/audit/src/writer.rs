//! What writes lines to the file, and goes on where it cannot.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The open file.
#[derive(Debug)]
pub(crate) struct Writer<W = File> {
    path: PathBuf,
    out: Option<W>,
    /// A line was written in part: the next one begins anew.
    is_torn: bool,
}

pub(crate) fn open(path: &Path) -> io::Result<File> {
    // Whose names and addresses are in it is for its owner.
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

impl Writer {
    /// A writer to the file at `path`, which is made if it is not there.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        Ok(Self::of(path.to_owned(), open(path)?))
    }

    /// Opens the file again: what rotates logs has moved it.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        let file = open(&self.path)?;
        (self.out, self.is_torn) = (Some(file), false);
        Ok(())
    }
}

impl<W: Write> Writer<W> {
    fn of(path: PathBuf, out: W) -> Self {
        Self { path, out: Some(out), is_torn: false }
    }

    /// Writes a line whole, or fails; after a failure the next line stands by itself all the same.
    pub(crate) fn write(&mut self, line: &str) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Err(io::ErrorKind::NotFound.into()) };
        let mut rest = line.as_bytes();
        if self.is_torn {
            out.write_all(b"\n")?;
            self.is_torn = false;
        }
        while !rest.is_empty() {
            match out.write(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    rest = &rest[written..];
                    self.is_torn = !rest.is_empty();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk with so much room.
    struct Disk {
        room: usize,
        bytes: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.room == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let taken = bytes.len().min(self.room);
            self.room -= taken;
            self.bytes.extend_from_slice(&bytes[..taken]);
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_that_was_cut_off_does_not_spoil_the_next() {
        let mut writer = Writer::of(PathBuf::new(), Disk { room: 7, bytes: Vec::new() });
        writer.write("one\n").unwrap();
        assert!(writer.write("second\n").is_err());
        assert!(writer.write("third\n").is_err());
        writer.out.as_mut().unwrap().room = 100;
        writer.write("fourth\n").unwrap();
        assert_eq!(writer.out.unwrap().bytes, b"one\nsec\nfourth\n");
    }
}
