//! Where commands keep segments: a directory, or an object store if this build has them.

mod named;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_backup::layout::ARCHIVE;
use moneta_bulk::dump::{BASE, CHANGES};
use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Claims, Created, Directory, Nowhere, Pulse, Taken, probe};

use self::named::named;

/// In place of a directory: what is written is counted, and not kept.
const NOWHERE: &str = "nowhere:";
/// Held by the process that writes into a directory.
const LOCK: &str = "lock";
/// The folder of a store in which the process that writes there says so.
const WRITER: &str = "writer";

/// How often it is looked whether another writer has left.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often a lock is tried.
const LOCK_EVERY: Duration = Duration::from_millis(200);

/// The archive of this name, to be read.
///
/// # Errors
/// If there is no such directory, or the store cannot be used.
pub(super) fn to_read(name: &str) -> anyhow::Result<Arc<dyn Archive>> {
    let archive = match store(name)? {
        Some(store) => store,
        None if Path::new(name).is_dir() => Arc::new(Directory::open(Path::new(name))?),
        None => bail!("{name} is no directory"),
    };
    Ok(named(archive, name))
}

/// Refuses an archive of backups as the place of a dump: each would take the files of the other for its own.
///
/// # Errors
/// If it is one, or does not answer.
pub(super) fn refuse_backups(archive: &dyn Archive, name: &str) -> anyhow::Result<()> {
    match archive.open(ARCHIVE) {
        Ok(_) => bail!("{name} is an archive of backups: a dump goes into another folder"),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Refuses the place of a dump as an archive of backups.
///
/// # Errors
/// If it is one, or does not answer.
pub(super) fn refuse_dump(archive: &dyn Archive, name: &str) -> anyhow::Result<()> {
    for chain in [BASE, CHANGES] {
        if !archive.list(chain)?.is_empty() {
            bail!("{name} has a dump: backups go into another folder");
        }
    }
    Ok(())
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
    Ok(named(archive, name))
}

/// The same for a dump, which may go nowhere.
///
/// # Errors
/// As [`to_write`].
pub(super) fn to_dump(name: &str) -> anyhow::Result<Arc<dyn Archive>> {
    if name == NOWHERE { Ok(Arc::new(Nowhere::default())) } else { to_write(name) }
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

fn is_url(name: &str) -> bool {
    name.contains("://")
}

/// The name of an archive that several machines have in common, without slashes at its end.
///
/// # Errors
/// If it is neither a directory from / on nor a URL of an object store.
pub(super) fn in_common(name: &str) -> anyhow::Result<String> {
    let short = name.trim_end_matches('/');
    match is_url(short) {
        true => drop(store(short)?),
        false if short.starts_with('/') => {}
        false => bail!("{name} is neither a directory from / on nor an object store: machines have it in common"),
    }
    Ok(short.to_owned())
}

/// Removes all that lies in an archive.
///
/// # Errors
/// If it cannot be.
pub(super) fn remove(name: &str) -> anyhow::Result<()> {
    let failed = || format!("{name} cannot be removed");
    if let Some(store) = store(name)? {
        let names = store.list("").with_context(failed)?;
        return names.iter().try_for_each(|file| store.remove(file)).with_context(failed);
    }
    match fs::remove_dir_all(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).with_context(failed),
        _ => Ok(()),
    }
}

/// A URL that is none of a store is a mistake, and no directory of such a name.
fn directory_or_mistake(name: &str) -> anyhow::Result<Option<Arc<dyn Archive>>> {
    match is_url(name) {
        true => bail!("{name} is neither a directory nor an object store (s3://, gs://, az://)"),
        false => Ok(None),
    }
}

/// Held by the process that alone writes into an archive.
pub(super) enum Alone {
    /// Nothing, where nothing is kept.
    Nowhere,
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
    alone_within(Duration::ZERO, archive, name, &|| false)
}

/// The same, where another process may be about to end: its lock of a directory is waited for, unless `should_stop`.
///
/// # Errors
/// If another still writes there.
pub(super) fn alone_within(
    patience: Duration,
    archive: &Arc<dyn Archive>,
    name: &str,
    should_stop: &dyn Fn() -> bool,
) -> anyhow::Result<Alone> {
    let begun = Instant::now();
    if name == NOWHERE {
        return Ok(Alone::Nowhere);
    }
    if !is_url(name) {
        let lock = Path::new(name).join(LOCK);
        let file = File::create(&lock).with_context(|| format!("{} cannot be written", lock.display()))?;
        while file.try_lock().is_err() {
            if begun.elapsed() >= patience || should_stop() {
                bail!("another process dumps into {name}");
            }
            sleep(LOCK_EVERY);
        }
        return Ok(Alone::Lock { _file: file });
    }
    let pulse = Pulse::default();
    let mut claims = Claims::join(Arc::clone(archive), WRITER, &std::process::id().to_string(), pulse)?;
    let until = Instant::now() + pulse.patience + pulse.every;
    let mut told = false;
    loop {
        match claims.take(&[LOCK.to_owned()])? {
            Taken::Claim(_) => return Ok(Alone::Claim { _claims: Box::new(claims) }),
            _ if Instant::now() >= until || should_stop() => bail!("another process dumps into {name}"),
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
