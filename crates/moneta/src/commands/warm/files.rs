//! A node of the source dumped into a directory, and that written into the nodes of the target, from its begin on: two tasks, which
//! go on where another worker was.
//!
//! ```text
//!  VIA/JOB/PART/base, changes     as `moneta dump --follow` writes them
//!  VIA/JOB/PART.cursor            how far the target has them
//! ```

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_bulk::{BulkError, DumpConfig, PopulateConfig, RateConfig, Which};
use moneta_link::worker::{End, Held, Word};
use moneta_segments::{Archive, Directory};
use serde_json::json;

use super::Order;
use super::direct::{VALUE_MAX, node, source};
use super::watching::Watching;
use crate::commands::moving::place;

/// Held by the worker that dumps.
const LOCK: &str = "lock";
/// Bytes after which a file ends.
const SEGMENT: u64 = 64 << 20;
/// How long a worker that has lost a task may take to notice that.
const NOTICED: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(200);

/// A task with files.
pub struct Part<'a> {
    pub order: &'a Order,
    pub held: &'a Held,
    pub stop: &'a Arc<AtomicBool>,
    /// Of the job.
    pub folder: PathBuf,
}

impl Part<'_> {
    fn part(&self) -> anyhow::Result<u64> {
        self.held.given.task_params["part"].as_u64().context("the task has no number")
    }

    /// Dumps what the node of the task's slot holds, and what changes there until it is told to finish.
    ///
    /// # Errors
    /// If the node does not answer, or changes are missing: then the files are removed, and the next try begins anew.
    pub fn dump(&self) -> anyhow::Result<End> {
        let folder = self.folder.join(self.part()?.to_string());
        let archive = Directory::open(&folder).with_context(|| format!("{} cannot be used", folder.display()))?;
        let _lock = self.lock(&folder)?;
        let config = DumpConfig {
            node: node(self.order, self.held)?,
            which: Which::default(),
            follow: true,
            walk: false,
            rate: RateConfig { bytes: self.order.rate, operations: 0, p99_limit: None },
            value_max: VALUE_MAX,
            segment_bytes: SEGMENT,
            compresses: true,
        };
        let watch = Watching::until_told(self.held, self.stop);
        let archive: Arc<dyn Archive> = Arc::new(archive);
        let dumped = match moneta_bulk::dump(&config, &archive, &watch) {
            Ok(dumped) => dumped,
            Err(error) => {
                if !matches!(error, BulkError::Pump { .. }) && self.held.is_sure() {
                    for chain in ["base", "changes"] {
                        remove(&folder.join(chain))?;
                    }
                }
                return Err(error.into());
            }
        };
        let end = watch.end(dumped.done);
        if end == End::Done {
            self.held.checkpoint(&json!({ "base": dumped.base, "changes": dumped.changes }), || false)?;
        }
        Ok(end)
    }

    /// Waits for another worker that had the task to notice that it has it no more.
    fn lock(&self, folder: &Path) -> anyhow::Result<File> {
        let path = folder.join(LOCK);
        let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        let from = Instant::now();
        while file.try_lock().is_err() {
            if from.elapsed() > NOTICED || self.held.word() != Word::Go {
                bail!("another process dumps into {}", folder.display());
            }
            std::thread::sleep(POLL);
        }
        Ok(file)
    }

    /// Writes what is dumped into the target, as it comes, until all is there.
    ///
    /// # Errors
    /// If a node does not answer, or the files are damaged or begun anew: then the next try begins with the first of them.
    pub fn fill(&self) -> anyhow::Result<End> {
        let part = self.part()?;
        let (folder, cursor) = (self.folder.join(part.to_string()), self.folder.join(format!("{part}.cursor")));
        let archive = Directory::open(&folder).with_context(|| format!("{} cannot be used", folder.display()))?;
        let archive: Arc<dyn Archive> = Arc::new(archive);
        let config = PopulateConfig {
            place: place(&self.order.to, Some(&source(self.held)))?,
            which: Which::default(),
            follow: true,
            strict: false,
            rate: RateConfig { bytes: 0, operations: 0, p99_limit: None },
            value_max: VALUE_MAX,
            cursor_file: Some(cursor.clone()),
            share: None,
            any_sum: false,
        };
        let watch = Watching::new(self.held, self.stop);
        let populated = match moneta_bulk::populate(&config, &archive, &watch) {
            Ok(populated) => populated,
            Err(error) => {
                if !matches!(error, BulkError::Pump { .. }) && self.held.is_sure() {
                    remove(&cursor)?;
                }
                return Err(error.into());
            }
        };
        let end = watch.end(populated.done);
        if end == End::Done {
            let words = json!({ "base": populated.base, "changes": populated.changes, "written": populated.written });
            self.held.checkpoint(&words, || false)?;
        }
        Ok(end)
    }

    /// Removes the files of the job.
    ///
    /// # Errors
    /// If they cannot be removed.
    pub fn tidy(&self) -> anyhow::Result<End> {
        remove(&self.folder)?;
        Ok(End::Done)
    }
}

fn remove(path: &Path) -> anyhow::Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("{} cannot be removed", path.display()))
        }
        _ => Ok(()),
    }
}
