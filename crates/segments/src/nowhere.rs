//! An archive that keeps nothing but its records: what a dump costs without a place for it.

use std::collections::BTreeMap;
use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::archive::{Archive, Created, Upload, check_name};

/// Takes files, and forgets what is in them; the small ones that are created are kept in RAM as long as it lives.
#[derive(Debug, Default)]
pub struct Nowhere {
    records: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl Nowhere {
    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Archive for Nowhere {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        check_name(name)?;
        let mut records = self.records();
        if records.contains_key(name) {
            return Ok(Created::Before);
        }
        records.insert(name.to_owned(), content.to_owned());
        Ok(Created::Now)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        check_name(name)?;
        Ok(Box::new(Forgotten))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        let found = self.records().get(name).cloned();
        let missing = || io::Error::new(ErrorKind::NotFound, format!("{name} was not kept"));
        Ok(Box::new(Cursor::new(found.ok_or_else(missing)?)))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let below = format!("{folder}/");
        let is_wanted = |name: &&String| folder.is_empty() || name.starts_with(&below);
        Ok(self.records().keys().filter(is_wanted).cloned().collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.records().remove(name);
        Ok(())
    }

    fn tidy(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

struct Forgotten;

impl Write for Forgotten {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Upload for Forgotten {
    fn finish(self: Box<Self>) -> io::Result<()> {
        Ok(())
    }
}
