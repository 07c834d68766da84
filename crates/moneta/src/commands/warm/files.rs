//! A node of the source dumped into an archive, and that written into the nodes of the target, from its first segment on: two tasks,
//! which go on where another worker was.
//!
//! ```text
//!  VIA/JOB/PART/base, changes     as `moneta dump --follow` writes them
//!  VIA/JOB/PART/claims/fill-RING  what the target has of them, as `moneta populate --share` says it
//!  VIA/JOB/PART/anew/asked        who fills has found damaged files: who dumps removes all of the part, this last, and begins anew
//! ```

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_bulk::{BulkError, DumpConfig, PopulateConfig, Share, Which};
use moneta_link::worker::{End, Held, Word};
use moneta_segments::{Archive, Chain, Pulse, SegmentError};
use parking_lot::Mutex;
use serde_json::json;

use super::Order;
use super::direct::{Placing, VALUE_MAX, node, source};
use super::watching::{FAILURES, Stop, Watching};
use crate::commands::archives;
use crate::commands::moving::place;

/// Bytes after which a file ends.
const SEGMENT: u64 = 64 << 20;
/// How often a dump of a node on which nothing changes says so: a fill ends by that.
const ADVANCE_EVERY: Duration = Duration::from_secs(10);
/// How long a worker that has lost a task may take to notice that.
const NOTICED: Duration = Duration::from_secs(10);
/// What the name begins with under which those who fill share their work: one at a time, and the next who has the task. What follows
/// is the ring: under another one all segments are written anew.
const FILL: &str = "fill";
/// The folder in which who fills asks for another dump.
const ANEW: &str = "anew";
/// How often it is looked whether it did.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Dumps that one who fills asks for before its task fails: a volume that damages what it is given is of no use.
const ANEW_MAX: u32 = 3;

/// A task with files.
pub struct Part<'a> {
    pub order: &'a Order,
    pub held: &'a Held,
    pub stop: Stop<'a>,
    /// Of the job: a directory, or a URL.
    pub place: String,
}

impl Part<'_> {
    /// The archive of the task's part, and its name.
    fn archive(&self) -> anyhow::Result<(Arc<dyn Archive>, String)> {
        let part = self.held.given.task_params["part"].as_u64().context("the task has no number")?;
        let name = format!("{}/{part}", self.place);
        Ok((archives::to_write(&name)?, name))
    }

    /// Dumps what the node of the task's slot holds, and what changes there until it is told to finish; anew where files are damaged.
    ///
    /// # Errors
    /// If the node does not answer, or changes are missing: then the files are removed, and the next try begins anew.
    pub fn dump(&self) -> anyhow::Result<End> {
        let (archive, name) = self.archive()?;
        // Another worker that had the task is waited for, which may not have noticed yet.
        let _alone = archives::alone_within(NOTICED, &archive, &name, &|| self.held.word() != Word::Go)?;
        // As the worker before has counted them.
        let mut anew = self.held.given.checkpoint["anew"].as_u64().unwrap_or(0);
        loop {
            if self.is_asked(&*archive)? {
                anyhow::ensure!(self.held.is_sure(), "files are damaged, and another worker may have the task");
                anew += 1;
                eprintln!("moneta worker: {name}: files are damaged: dumped anew");
                self.held.checkpoint(&json!({ "anew": anew }), || self.is_over())?;
                for folder in ["base", "changes", "claims", ANEW] {
                    Chain::remove_from(&*archive, folder)?;
                }
            }
            if let Some(end) = self.dump_once(&archive, anew)? {
                return Ok(end);
            }
        }
    }

    /// `None`: it is to begin anew.
    fn dump_once(&self, archive: &Arc<dyn Archive>, anew: u64) -> anyhow::Result<Option<End>> {
        let looked = Mutex::new((Instant::now(), false));
        let asked = || {
            let mut looked = looked.lock();
            if !looked.1 && looked.0.elapsed() >= LOOK_EVERY {
                // An archive that does not answer fails the dump, too.
                *looked = (Instant::now(), self.is_asked(&**archive).unwrap_or(false));
            }
            looked.1
        };
        let stop = || (self.stop)() || asked();
        let config = DumpConfig {
            node: node(self.order, self.held)?,
            // A node on SSD that comes back elsewhere has what it had: its dump goes on.
            name: self.held.given.task_params["slot"].as_str().map(str::to_owned),
            which: Which::default(),
            follow: true,
            failures: FAILURES,
            walk: false,
            rate: self.order.rate(),
            value_max: VALUE_MAX,
            segment_bytes: SEGMENT,
            compresses: true,
            advance_every: ADVANCE_EVERY,
            tells_quiet: true,
        };
        let watch = Watching::until_told(self.held, &stop).anew(anew);
        let dumped = match moneta_bulk::dump(&config, archive, &watch) {
            Ok(dumped) => dumped,
            Err(error) => {
                if self.is_of_no_use(&error) {
                    for chain in ["base", "changes"] {
                        Chain::remove_from(&**archive, chain)?;
                    }
                }
                return Err(error.into());
            }
        };
        let end = watch.end(dumped.done);
        if end == End::Done {
            let words = json!({ "base": dumped.base, "changes": dumped.changes, "anew": anew });
            self.held.checkpoint(&words, || false)?;
        } else if asked() && !self.is_over() {
            return Ok(None);
        }
        Ok(Some(end))
    }

    fn is_over(&self) -> bool {
        self.held.word() != Word::Go || (self.stop)()
    }

    /// Whether who fills asks for another dump.
    fn is_asked(&self, archive: &dyn Archive) -> anyhow::Result<bool> {
        let asked = archive.list(ANEW).with_context(|| format!("{} cannot be looked at", self.place))?;
        Ok(!asked.is_empty())
    }

    /// Waits until files that are damaged are gone; false: the task is over.
    fn wait_until_anew(&self, archive: &dyn Archive) -> anyhow::Result<bool> {
        while self.is_asked(archive)? {
            if self.is_over() {
                return Ok(false);
            }
            self.held.progress(json!({ "text": "files are damaged: waiting for another dump" }));
            sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    /// Whether what there is cannot be gone on with, and is this worker's to remove.
    fn is_of_no_use(&self, error: &BulkError) -> bool {
        let may_pass = matches!(
            error,
            BulkError::Pump { .. }
                | BulkError::Server { .. }
                | BulkError::System(_)
                | BulkError::NotDurable
                | BulkError::Segments(SegmentError::Archive { .. } | SegmentError::Taken { .. })
        );
        !may_pass && self.held.is_sure()
    }

    /// Writes what is dumped into the target, as it comes, until all is there.
    ///
    /// # Errors
    /// If a node does not answer, or the files are damaged or begun anew: then the next try begins with the first of them.
    pub fn fill(&self) -> anyhow::Result<End> {
        let (archive, _) = self.archive()?;
        for _ in 0..ANEW_MAX {
            if !self.wait_until_anew(&*archive)? {
                return Ok(End::Released);
            }
            match self.fill_once(&archive) {
                Err(error) if error.downcast_ref::<BulkError>().is_some_and(BulkError::is_damage) => {
                    eprintln!("moneta worker: {}: {}: {error:#}", self.held.given.job, self.held.given.task);
                    archive.create(&format!("{ANEW}/asked"), error.to_string().as_bytes())?;
                }
                ended => return ended,
            }
        }
        bail!("files were damaged {ANEW_MAX} times")
    }

    fn fill_once(&self, archive: &Arc<dyn Archive>) -> anyhow::Result<End> {
        let before = Placing::now(self.order, self.held)?;
        let name = format!("{FILL}-{}", before.word());
        let config = PopulateConfig {
            place: place(&self.order.to, Some(&source(self.held)))?,
            which: Which::default(),
            follow: true,
            strict: false,
            rate: self.order.rate(),
            value_max: VALUE_MAX,
            cursor_file: None,
            share: Some(Share { name: name.clone(), pulse: Pulse::of(NOTICED), one_target: false }),
            any_sum: false,
        };
        let watch = Watching::new(self.held, self.stop);
        let populated = match moneta_bulk::populate(&config, archive, &watch) {
            Ok(populated) => populated,
            Err(error) => {
                if self.is_of_no_use(&error) {
                    Chain::remove_from(&**archive, &format!("claims/{name}"))?;
                }
                return Err(error.into());
            }
        };
        let end = watch.end(populated.done);
        if end == End::Done {
            before.check(self.order, self.held)?;
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
        archives::remove(&self.place)?;
        Ok(End::Done)
    }
}
