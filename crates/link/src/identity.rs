//! Who a process is, over its restarts: a random name in its folder, which no other process may use at the same time.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use thiserror::Error;

const NAME_FILE: &str = "instance";
const LOCK_FILE: &str = "lock";
/// Bytes of randomness in a name.
const RANDOM: usize = 8;

/// How long another process, which is about to end, may take for that.
const ENDING: Duration = Duration::from_secs(5);
/// How often it is looked whether it has.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Why a process has no identity.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// The folder cannot be used.
    #[error("{}: {source}", path.display())]
    Folder {
        /// What of it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process has it.
    #[error("{}: another process uses this folder", .0.display())]
    Taken(PathBuf),
    /// What is there is no name.
    #[error("{}: it holds no name of an instance; remove it to get another one", .0.display())]
    Name(PathBuf),
    /// The system has no randomness.
    #[error("the system has no randomness: {0}")]
    Random(io::Error),
}

/// An identity, held for as long as this lives.
#[derive(Debug)]
pub struct Identity {
    id: String,
    folder: Option<PathBuf>,
    _lock: Option<File>,
}

impl Identity {
    /// The identity that is kept in `folder`, which is made if it is not there.
    ///
    /// # Errors
    /// If the folder cannot be used, or another process uses it and does not end within five seconds: one that is restarted may
    /// still be about to.
    pub fn kept_in(folder: &Path) -> Result<Self, IdentityError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| IdentityError::Folder { path, source }
        };
        fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock_path = folder.join(LOCK_FILE);
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(&lock_path);
        let lock = lock.map_err(failed(&lock_path))?;
        let from = Instant::now();
        loop {
            match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(rustix::io::Errno::WOULDBLOCK) if from.elapsed() < ENDING => sleep(LOOK_EVERY),
                Err(rustix::io::Errno::WOULDBLOCK) => return Err(IdentityError::Taken(folder.to_owned())),
                Err(error) => return Err(failed(&lock_path)(error.into())),
            }
        }
        let path = folder.join(NAME_FILE);
        let id = match fs::read_to_string(&path) {
            Ok(text) if is_id(text.trim()) => text.trim().to_owned(),
            Ok(_) => return Err(IdentityError::Name(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let id = draw()?;
                keep(folder, &path, &id).map_err(failed(&path))?;
                id
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        Ok(Self { id, folder: Some(folder.to_owned()), _lock: Some(lock) })
    }

    /// An identity that ends with the process.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn drawn() -> Result<Self, IdentityError> {
        Ok(Self { id: draw()?, folder: None, _lock: None })
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its folder, if it is kept.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }
}

fn draw() -> Result<String, IdentityError> {
    let mut random = [0; RANDOM];
    getrandom::fill(&mut random).map_err(|error| IdentityError::Random(error.into()))?;
    Ok(random.iter().fold(String::from("i-"), |text, byte| format!("{text}{byte:02x}")))
}

fn is_id(text: &str) -> bool {
    text.strip_prefix("i-").is_some_and(|rest| {
        rest.len() == 2 * RANDOM && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

/// All of it, or nothing, also if the power goes.
fn keep(folder: &Path, path: &Path, id: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_stays_and_is_one_process_s_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state");
        let first = Identity::kept_in(&path).unwrap();
        assert!(is_id(first.id()) && first.folder() == Some(path.as_path()));
        assert!(matches!(Identity::kept_in(&path), Err(IdentityError::Taken(_))));
        let id = first.id().to_owned();
        drop(first);
        assert_eq!(Identity::kept_in(&path).unwrap().id(), id);
        fs::write(path.join(NAME_FILE), "../x").unwrap();
        assert!(matches!(Identity::kept_in(&path), Err(IdentityError::Name(_))));
        assert_ne!(Identity::drawn().unwrap().id(), Identity::drawn().unwrap().id());
    }
}
