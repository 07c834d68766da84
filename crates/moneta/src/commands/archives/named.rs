//! An archive whose errors say which one it is.

use std::io::{self, Read, Write};
use std::sync::Arc;

use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Created};

/// The same archive, whose errors say which one it is: commands have several, and servers.
pub(super) fn named(archive: Arc<dyn Archive>, name: &str) -> Arc<dyn Archive> {
    Arc::new(Named { archive, name: name.into() })
}

#[derive(Debug)]
struct Named {
    archive: Arc<dyn Archive>,
    name: Arc<str>,
}

fn within(name: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{error}, in {name}"))
}

impl Named {
    fn say<T>(&self, done: io::Result<T>) -> io::Result<T> {
        done.map_err(|error| within(&self.name, &error))
    }
}

impl Archive for Named {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        self.say(self.archive.create(name, content))
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        let upload = self.say(self.archive.begin(name))?;
        Ok(Box::new(NamedUpload { upload, name: Arc::clone(&self.name) }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.say(self.archive.open(name))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.say(self.archive.list(folder))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.say(self.archive.remove(name))
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.say(self.archive.tidy(folder))
    }
}

struct NamedUpload {
    upload: Box<dyn Upload>,
    name: Arc<str>,
}

impl Write for NamedUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.upload.write(bytes).map_err(|error| within(&self.name, &error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush().map_err(|error| within(&self.name, &error))
    }
}

impl Upload for NamedUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.upload.finish().map_err(|error| within(&self.name, &error))
    }
}
