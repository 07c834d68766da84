//! Keys on disk, between a server's walk and their comparison.
//!
//! A walk must not wait for the comparison: memcached keeps locks of items while its client does not read, and a request for
//! such an item would wait for the walk. So the list is written down as fast as it comes, in a nameless temporary file, a byte
//! of length before each key, and read from there.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};

/// Keys being written down.
#[derive(Debug)]
pub(crate) struct Spool {
    file: BufWriter<File>,
    keys: u64,
}

impl Spool {
    /// An empty one, in the folder for temporary files (`TMPDIR`).
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { file: BufWriter::with_capacity(256 << 10, tempfile::tempfile()?), keys: 0 })
    }

    /// Adds a key of at most 255 bytes.
    pub(crate) fn add(&mut self, key: &[u8]) -> io::Result<()> {
        let length = u8::try_from(key.len()).map_err(|_| io::Error::other("the key is too long"))?;
        self.file.write_all(&[length])?;
        self.file.write_all(key)?;
        self.keys += 1;
        Ok(())
    }

    /// How many there are.
    pub(crate) fn keys(&self) -> u64 {
        self.keys
    }

    /// All that were added, in their order.
    pub(crate) fn read(self) -> io::Result<SpooledKeys> {
        let mut file = self.file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok(SpooledKeys { file: BufReader::with_capacity(256 << 10, file), left: self.keys })
    }
}

/// Keys being read again.
#[derive(Debug)]
pub(crate) struct SpooledKeys {
    file: BufReader<File>,
    left: u64,
}

impl SpooledKeys {
    /// The next one.
    pub(crate) fn next(&mut self) -> io::Result<Option<Box<[u8]>>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let mut length = [0];
        self.file.read_exact(&mut length)?;
        let mut key = vec![0; usize::from(length[0])].into_boxed_slice();
        self.file.read_exact(&mut key)?;
        Ok(Some(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_back_in_order() {
        let mut spool = Spool::new().expect("a file");
        let keys: Vec<Vec<u8>> = vec![b"a".to_vec(), vec![0; 250], b"\n \xff".to_vec(), Vec::new()];
        keys.iter().try_for_each(|key| spool.add(key)).expect("written");
        assert_eq!(spool.keys(), 4);
        assert!(spool.add(&[1; 256]).is_err());
        let mut spooled = spool.read().expect("read");
        for key in keys {
            assert_eq!(spooled.next().expect("read").as_deref(), Some(&*key));
        }
        assert_eq!(spooled.next().expect("read"), None);
    }
}
