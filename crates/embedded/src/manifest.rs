//! What an engine knows of itself beside its items: one small file in its folder, replaced whole and synced at each change.
//!
//! ```text
//! FOLDER/moneta.lock      locked while a process has the folder open
//! FOLDER/moneta.ledger    JSON, below
//! FOLDER/...              the library's own
//! ```
//!
//! It lies outside the library because what it says has to be on the device before the library's newest items are: which
//! CAS values may have been given out, and what a flush has done away with.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use moneta_store::versions::{Floor, Floors};
use moneta_store::{KeyHash, SECRET_BYTES, Version};
use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::error::EmbeddedError;
use crate::settings::Identity;

const LEDGER: &str = "moneta.ledger";
const DRAFT: &str = "moneta.ledger.new";
const LOCK: &str = "moneta.lock";

/// What the file holds.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entries {
    /// Which engine's folder it is.
    engine: String,
    /// Version of everything in the folder.
    format: u32,
    /// Parts by hash of key.
    shards: usize,
    /// Seed of the hash, where there is no secret.
    seed: u64,
    /// Secret of the hash. In format 1 there is none.
    #[serde(default)]
    secret: Option<[u8; SECRET_BYTES]>,
    /// No number at or above it has been given out.
    pub(crate) sequence_floor: u64,
    /// Items with this sequence number or a lower one are gone.
    pub(crate) flushed_below: u64,
    /// Unix second of a flush still to come; 0 without one.
    pub(crate) flush_at: u32,
    /// Items of lower versions are gone.
    #[serde(default)]
    floor_bound: u64,
    /// Version of the newest flush.
    #[serde(default)]
    floor_newest: u64,
    /// The last process closed the folder in good order.
    pub(crate) clean: bool,
    /// Which start of the machine that process ran in; empty where the system does not tell. It stays an earlier one's until
    /// the library has dealt with what is missing since.
    boot: String,
}

impl Entries {
    /// How keys are hashed, which decides over their parts.
    pub(crate) fn key_hash(&self) -> KeyHash {
        self.secret.map_or(KeyHash::seeded(self.seed), KeyHash::keyed)
    }

    /// What is known of flushes as versions. The newest is the one that waits, if one does.
    pub(crate) fn floors(&self) -> Floors {
        let newest = Version(self.floor_newest);
        let waits = self.flush_at != 0 && newest > Version::ZERO;
        Floors {
            bound: Version(self.floor_bound),
            newest,
            pending: waits.then_some(Floor { version: newest, second: self.flush_at }),
            before: Version(self.floor_bound),
            second: if waits { self.flush_at } else { 0 },
        }
    }

    /// Takes note of flushes.
    pub(crate) fn note_floors(&mut self, floors: &Floors) {
        (self.floor_bound, self.floor_newest) = (floors.bound.0, floors.newest.0);
    }
}

/// Without what is secret.
impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { engine, format, shards, sequence_floor, .. } = self;
        write!(f, "Entries({engine}, format {format}, {shards} shards, from {sequence_floor})")
    }
}

/// A folder that is this process's own, and what its file says.
#[derive(Debug)]
pub struct Manifest {
    folder: PathBuf,
    entries: Mutex<Entries>,
    interrupted: bool,
    _lock: File,
}

impl Manifest {
    /// Takes a folder, which is made if it is not there.
    pub(crate) fn open(folder: &Path, identity: Identity) -> Result<Self, EmbeddedError> {
        let failed = |what| move |source| EmbeddedError::Io { path: folder.into(), what, source };
        fs::create_dir_all(folder).map_err(failed("make the folder"))?;
        let file = folder.join(LEDGER);
        if !file.try_exists().map_err(failed("look for its ledger"))? {
            refuse_foreign(folder).map_err(failed("list the folder"))??;
        }
        // Before it is read: the folder's owner may be writing it.
        let lock = lock(folder)?;
        let (entries, interrupted) = match fs::read(&file) {
            Ok(bytes) => check(folder, &bytes, identity)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                (fresh(identity).map_err(failed("draw a secret for"))?, false)
            }
            Err(error) => return Err(failed("read its ledger")(error)),
        };
        let manifest = Self { folder: folder.into(), entries: Mutex::new(entries), interrupted, _lock: lock };
        manifest
            .change(|entries| {
                entries.clean = false;
                if !interrupted {
                    entries.boot = boot();
                }
            })
            .map_err(failed("write its ledger"))?;
        Ok(manifest)
    }

    /// Whether the machine, and not only the process, went down while the folder was open: what had not been synced may be
    /// missing, in part and in any order.
    pub fn was_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Notes that the library has opened the folder, and so knows of an interruption.
    pub(crate) fn opened(&self) -> io::Result<()> {
        if self.interrupted { self.change(|entries| entries.boot = boot()) } else { Ok(()) }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn entries(&self) -> Entries {
        self.entries.lock().clone()
    }

    /// Changes entries, on the device first. If that fails nothing has changed.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Entries)) -> io::Result<()> {
        let mut entries = self.entries.lock();
        let mut changed = entries.clone();
        change(&mut changed);
        let bytes = serde_json::to_vec(&changed)?;
        let draft = self.folder.join(DRAFT);
        let mut file = File::create(&draft)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&draft, self.folder.join(LEDGER))?;
        File::open(&self.folder)?.sync_all()?;
        *entries = changed;
        Ok(())
    }
}

fn fresh(identity: Identity) -> io::Result<Entries> {
    let mut secret = [0; SECRET_BYTES];
    getrandom::fill(&mut secret)?;
    Ok(Entries {
        engine: identity.engine.into(),
        format: identity.format,
        shards: identity.shards,
        seed: 0,
        secret: Some(secret),
        sequence_floor: 0,
        flushed_below: 0,
        flush_at: 0,
        floor_bound: 0,
        floor_newest: 0,
        clean: true,
        boot: String::new(),
    })
}

/// The entries found, if they are this engine's, and whether the machine went down meanwhile.
fn check(folder: &Path, bytes: &[u8], identity: Identity) -> Result<(Entries, bool), EmbeddedError> {
    let Identity { engine, format, shards } = identity;
    let refuse = |reason| Err(EmbeddedError::Folder { path: folder.into(), reason });
    let Ok(found) = serde_json::from_slice::<Entries>(bytes) else {
        return refuse(format!("its {LEDGER} cannot be read: restore it, or empty the folder to start without items"));
    };
    if found.engine != engine {
        return refuse(format!(
            "it holds items of the engine {}, not of {engine}: choose another folder",
            found.engine
        ));
    }
    if found.format > format {
        let newer = found.format;
        return refuse(format!("it was written in format {newer}, and this build knows {format}: use a newer build"));
    }
    if found.shards != shards {
        let made = found.shards;
        return refuse(format!(
            "it was made with {made} shards, and {shards} are asked for: say {made}, or choose an empty folder"
        ));
    }
    let interrupted = !found.clean && !found.boot.is_empty() && found.boot != boot();
    Ok((found, interrupted))
}

/// Refuses a folder that has something in it but no manifest.
fn refuse_foreign(folder: &Path) -> io::Result<Result<(), EmbeddedError>> {
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        if ![DRAFT, LOCK, "lost+found"].iter().any(|known| name == *known) {
            let reason = format!("it holds {name:?}, which is none of this engine's: choose an empty folder");
            return Ok(Err(EmbeddedError::Folder { path: folder.into(), reason }));
        }
    }
    Ok(Ok(()))
}

/// Takes the folder's lock, which ends with the process.
fn lock(folder: &Path) -> Result<File, EmbeddedError> {
    let path = folder.join(LOCK);
    let failed = |source| EmbeddedError::Io { path: path.clone(), what: "open the lock", source };
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(failed)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| EmbeddedError::Folder {
        path: folder.into(),
        reason: "another process has it open: stop that one, or choose another folder".into(),
    })?;
    Ok(file)
}

/// Which start of the machine this is.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity { engine: "shelf", format: 2, shards: 4 };

    fn refusal(folder: &Path, identity: Identity) -> String {
        Manifest::open(folder, identity).expect_err("it is refused").to_string()
    }

    #[test]
    fn comes_back_with_what_it_was_told() {
        let folder = tempfile::tempdir().expect("a folder");
        let hash = {
            let manifest = Manifest::open(folder.path(), IDENTITY).expect("an empty folder");
            manifest.change(|entries| entries.flush_at = 9).expect("a write");
            manifest.entries().key_hash()
        };
        let entries = Manifest::open(folder.path(), IDENTITY).expect("the same folder").entries();
        assert_eq!((entries.key_hash(), entries.flush_at), (hash, 9));
    }

    #[test]
    fn a_folder_of_a_time_without_secrets_goes_on_under_its_seed() {
        let folder = tempfile::tempdir().expect("a folder");
        let old = r#"{"engine":"shelf","format":1,"shards":4,"seed":77,"sequence_floor":0,"flushed_below":0,"flush_at":0,
            "clean":true,"boot":""}"#;
        fs::write(folder.path().join(LEDGER), old).expect("a write");
        for _ in 0..2 {
            let entries = Manifest::open(folder.path(), IDENTITY).expect("an old folder").entries();
            assert_eq!((entries.key_hash(), entries.format), (KeyHash::seeded(77), 1));
        }
    }

    #[test]
    fn each_folder_has_a_secret_and_does_not_print_it() {
        let secret = || {
            let folder = tempfile::tempdir().expect("a folder");
            let entries = Manifest::open(folder.path(), IDENTITY).expect("an empty folder").entries();
            let printed = format!("{entries:?}");
            assert_eq!(printed, "Entries(shelf, format 2, 4 shards, from 0)");
            entries.secret.expect("a new folder has one")
        };
        assert_ne!(secret(), secret());
    }

    #[test]
    fn refuses_what_is_not_its_own() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("letter.txt"), "dear").expect("a write");
        assert!(refusal(folder.path(), IDENTITY).contains("letter.txt"));
        fs::remove_file(folder.path().join("letter.txt")).expect("it is there");
        drop(Manifest::open(folder.path(), IDENTITY).expect("an empty folder"));
        assert!(refusal(folder.path(), Identity { engine: "other", ..IDENTITY }).contains("engine shelf"));
        assert!(refusal(folder.path(), Identity { format: 1, ..IDENTITY }).contains("newer build"));
        assert!(refusal(folder.path(), Identity { shards: 8, ..IDENTITY }).contains("say 4"));
        fs::write(folder.path().join(LEDGER), "{").expect("a write");
        assert!(refusal(folder.path(), IDENTITY).contains("cannot be read"));
    }

    #[test]
    fn is_one_process_s_own() {
        let folder = tempfile::tempdir().expect("a folder");
        let _held = Manifest::open(folder.path(), IDENTITY).expect("an empty folder");
        assert!(refusal(folder.path(), IDENTITY).contains("another process"));
    }

    #[test]
    fn tells_a_machine_that_went_down_from_a_process_that_did() {
        let folder = tempfile::tempdir().expect("a folder");
        drop(Manifest::open(folder.path(), IDENTITY).expect("an empty folder"));
        let again = Manifest::open(folder.path(), IDENTITY).expect("the same folder");
        assert!(!again.was_interrupted(), "the machine is the same");
        again.change(|entries| entries.boot = "an earlier one".into()).expect("a write");
        drop(again);
        drop(Manifest::open(folder.path(), IDENTITY).expect("a start that does not get further"));
        let after = Manifest::open(folder.path(), IDENTITY).expect("the same folder");
        assert!(after.was_interrupted());
        after.opened().expect("a write");
        drop(after);
        let after = Manifest::open(folder.path(), IDENTITY).expect("the same folder");
        assert!(!after.was_interrupted(), "the library knows");
        after.change(|entries| entries.clean = true).expect("a write");
        after.change(|entries| entries.boot = "an earlier one".into()).expect("a write");
        drop(after);
        assert!(!Manifest::open(folder.path(), IDENTITY).expect("the same folder").was_interrupted(), "it was closed");
    }
}
