//! Where commands keep segments: a directory, or an object store if this build has them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Claims, Created, Directory, Pulse, Taken, probe};

/// Held by the process that writes into a directory.
const LOCK: &str = "lock";
/// The folder of a store in which the process that writes there says so.
const WRITER: &str = "writer";

/// How often it is looked whether another writer has left.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The archive of this name, to be read.
///
/// # Errors
/// If there is no such directory, or the store cannot be used.
pub(super) fn to_read(name: &str) -> anyhow::Result<Arc<dyn Archive>> {
    match store(name)? {
        Some(store) => Ok(store),
        None if Path::new(name).is_dir() => Ok(Arc::new(Directory::open(Path::new(name))?)),
        None => bail!("{name} is no directory"),
    }
}

/// The archive of this name, to be written: made if it is a directory that is not there, probed if it is a store.
///
/// # Errors
/// If it cannot be used, or does not keep to conditions.
pub(super) fn to_write(name: &str) -> anyhow::Result<Arc<dyn Archive>> {
    let archive = match store(name)? {
        Some(store) => store,
        None => {
            let directory = Directory::open(Path::new(name));
            Arc::new(directory.with_context(|| format!("{name} cannot be used"))?)
        }
    };
    probe(&*archive).with_context(|| format!("{name} cannot be used"))?;
    Ok(archive)
}

#[cfg(feature = "stores")]
fn store(name: &str) -> anyhow::Result<Option<Arc<dyn Archive>>> {
    if !moneta_stores::is_url(name) {
        return directory_or_mistake(name);
    }
    let store = moneta_stores::Store::open(name).with_context(|| format!("{name} cannot be used"))?;
    Ok(Some(Arc::new(store)))
}

#[cfg(not(feature = "stores"))]
fn store(name: &str) -> anyhow::Result<Option<Arc<dyn Archive>>> {
    directory_or_mistake(name).context("this build has no object stores: build it with --features moneta/stores")
}

/// A URL that is none of a store is a mistake, and no directory of such a name.
fn directory_or_mistake(name: &str) -> anyhow::Result<Option<Arc<dyn Archive>>> {
    match name.contains("://") {
        true => bail!("{name} is neither a directory nor an object store (s3://, gs://, az://)"),
        false => Ok(None),
    }
}

/// Held by the process that alone writes into an archive.
pub(super) enum Alone {
    /// A lock, which goes with the process.
    Lock { _file: File },
    /// A claim, whose heart beats as long as this lives.
    Claim { _claims: Box<Claims> },
}

/// Has this process alone write there. Of a store whose last writer was killed it is known after half a minute that it was.
///
/// # Errors
/// If another does.
pub(super) fn alone(archive: &Arc<dyn Archive>, name: &str) -> anyhow::Result<Alone> {
    if !name.contains("://") {
        let lock = Path::new(name).join(LOCK);
        let file = File::create(&lock).with_context(|| format!("{} cannot be written", lock.display()))?;
        return match file.try_lock() {
            Ok(()) => Ok(Alone::Lock { _file: file }),
            Err(_) => bail!("another process dumps into {name}"),
        };
    }
    let pulse = Pulse::default();
    let mut claims = Claims::join(Arc::clone(archive), WRITER, &std::process::id().to_string(), pulse)?;
    let until = Instant::now() + pulse.patience + pulse.every;
    let mut told = false;
    loop {
        match claims.take(&[LOCK.to_owned()])? {
            Taken::Claim(_) => return Ok(Alone::Claim { _claims: Box::new(claims) }),
            _ if Instant::now() >= until => bail!("another process dumps into {name}"),
            _ => {
                if !std::mem::replace(&mut told, true) {
                    eprintln!(
                        "moneta: another process dumps into {name}, or did until it was killed: looking whether it lives"
                    );
                }
                sleep(LOOK_EVERY);
            }
        }
    }
}

/// The same archive, of which a command is run before each look at what there is.
pub(super) fn refreshed(archive: Arc<dyn Archive>, line: String) -> Arc<dyn Archive> {
    Arc::new(Refreshed { archive, line })
}

/// An archive that lies on a mount which shows only with a command what others have written.
#[derive(Debug)]
struct Refreshed {
    archive: Arc<dyn Archive>,
    line: String,
}

impl Archive for Refreshed {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        self.archive.create(name, content)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        self.archive.begin(name)
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.archive.open(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        let status = Command::new("sh").args(["-c", &self.line]).stdin(Stdio::null()).stdout(Stdio::null()).status()?;
        match status.success() {
            true => self.archive.list(folder),
            false => Err(io::Error::other(format!("`{}` ended with {status}", self.line))),
        }
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.archive.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.archive.tidy(folder)
    }
}
