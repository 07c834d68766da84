//! Where files lie: by names with slashes, each written once.

use std::fmt::Debug;
use std::fs::{self, File};
use std::io::{self, BufWriter, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

/// Whether a file came into being.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// By this call.
    Now,
    /// It was there before, with whatever it holds.
    Before,
}

/// Refuses what is no name in an archive.
///
/// # Errors
/// [`ErrorKind::InvalidInput`].
pub fn check_name(name: &str) -> io::Result<()> {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'@' | b'='))
    };
    match name.split('/').all(is_part) {
        true => Ok(()),
        false => Err(io::Error::new(ErrorKind::InvalidInput, format!("{name:?} is no name in an archive"))),
    }
}

/// Files that are written whole, once. Names have parts of letters, digits, `-`, `_`, `.`, `@`, `=`, and slashes between them.
pub trait Archive: Debug + Send + Sync {
    /// Creates a small file, unless there is one of this name: of any number of processes that try, one does. When this returns, it
    /// outlives a loss of power.
    ///
    /// # Errors
    /// The store's.
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created>;

    /// Begins a file that is there once it is finished, in place of one of this name.
    ///
    /// # Errors
    /// The store's.
    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>>;

    /// Reads a file.
    ///
    /// # Errors
    /// The store's; [`ErrorKind::NotFound`] if there is none.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// The names of all files whose name begins with `folder` and a slash, in their order; of all, if it is empty.
    ///
    /// # Errors
    /// The store's. A folder that is not there has no files.
    fn list(&self, folder: &str) -> io::Result<Vec<String>>;

    /// Removes a file; one that is not there is no fault.
    ///
    /// # Errors
    /// The store's.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes what is left in a folder of files that processes began that were killed. Only who alone writes there may ask for it.
    ///
    /// # Errors
    /// The store's.
    fn tidy(&self, folder: &str) -> io::Result<()>;
}

/// A file that is being written. Dropped before it is finished, it is not there.
pub trait Upload: Write + Send {
    /// Ends it: it is there, and outlives a loss of power.
    ///
    /// # Errors
    /// The store's.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Files that are being written have this end, after their name and a random number. Nobody reads them.
const DRAFT: &str = ".new";

/// A directory of this machine, or one that is mounted.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The directory at `path`, which is made if it is not there.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        Ok(Self { path: path.to_owned() })
    }

    fn place(&self, name: &str) -> io::Result<PathBuf> {
        check_name(name)?;
        Ok(self.path.join(name))
    }

    fn draft(&self, name: &str) -> io::Result<Draft> {
        let place = self.place(name)?;
        let folder = place.parent().unwrap_or(&self.path).to_owned();
        fs::create_dir_all(&folder)?;
        let draft = place.with_file_name(format!("{}-{:016x}{DRAFT}", file_name(&place), getrandom::u64()?));
        let file = File::options().write(true).create_new(true).open(&draft)?;
        Ok(Draft { file: BufWriter::with_capacity(1 << 18, file), draft, place, folder })
    }
}

fn file_name(place: &Path) -> String {
    place.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl Archive for Directory {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        let mut draft = self.draft(name)?;
        draft.write_all(content)?;
        draft.sync()?;
        let created = match fs::hard_link(&draft.draft, &draft.place) {
            Ok(()) => Created::Now,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(Created::Before),
            // Some mounts have no links.
            Err(_) => match renameat_with(CWD, &draft.draft, CWD, &draft.place, RenameFlags::NOREPLACE) {
                Ok(()) => Created::Now,
                Err(Errno::EXIST) => return Ok(Created::Before),
                Err(error) => return Err(error.into()),
            },
        };
        File::open(&draft.folder)?.sync_all()?;
        Ok(created)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(self.draft(name)?))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(self.place(name)?)?))
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        let mut folders = vec![folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let place = if folder.is_empty() { self.path.clone() } else { self.place(&folder)? };
            let entries = match fs::read_dir(place) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                entries => entries?,
            };
            for entry in entries {
                let entry = entry?;
                let Ok(name) = entry.file_name().into_string() else { continue };
                let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
                // What is no name here was put there by others.
                if check_name(&name).is_err() {
                    continue;
                }
                match entry.file_type()?.is_dir() {
                    true => folders.push(name),
                    false if name.ends_with(DRAFT) => {}
                    false => names.push(name),
                }
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.place(name)?) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        let entries = match fs::read_dir(self.place(folder)?) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_name().to_string_lossy().ends_with(DRAFT) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }
}

/// A file that is being written in a directory.
struct Draft {
    file: BufWriter<File>,
    draft: PathBuf,
    place: PathBuf,
    folder: PathBuf,
}

impl Draft {
    fn sync(&mut self) -> io::Result<()> {
        self.file.flush()?;
        self.file.get_ref().sync_all()
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Upload for Draft {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        self.sync()?;
        fs::rename(&self.draft, &self.place)?;
        File::open(&self.folder)?.sync_all()
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // It has taken its place, or is not wanted.
        let _ = fs::remove_file(&self.draft);
    }
}
