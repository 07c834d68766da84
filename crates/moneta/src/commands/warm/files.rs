//! A node of the source dumped into an archive, and that written into the nodes of the target, from its first segment on: two tasks,
//! which go on where another worker was.
//!
//! ```text
//!  VIA/JOB/PART/base, changes     as `moneta dump --follow` writes them
//!  VIA/JOB/PART/claims/fill-RING  what the target has of them, as `moneta populate --share` says it
//! ```

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use moneta_bulk::{BulkError, DumpConfig, PopulateConfig, Share, Which};
use moneta_link::worker::{End, Held, Word};
use moneta_segments::{Archive, Chain, Pulse, SegmentError};
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

    /// Dumps what the node of the task's slot holds, and what changes there until it is told to finish.
    ///
    /// # Errors
    /// If the node does not answer, or changes are missing: then the files are removed, and the next try begins anew.
    pub fn dump(&self) -> anyhow::Result<End> {
        let (archive, name) = self.archive()?;
        // Another worker that had the task is waited for, which may not have noticed yet.
        let _alone = archives::alone_within(NOTICED, &archive, &name, &|| self.held.word() != Word::Go)?;
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
        let watch = Watching::until_told(self.held, self.stop);
        let dumped = match moneta_bulk::dump(&config, &archive, &watch) {
            Ok(dumped) => dumped,
            Err(error) => {
                if self.is_of_no_use(&error) {
                    for chain in ["base", "changes"] {
                        Chain::remove_from(&*archive, chain)?;
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

    /// Whether what there is cannot be gone on with, and is this worker's to remove.
    fn is_of_no_use(&self, error: &BulkError) -> bool {
        let may_pass = matches!(
            error,
            BulkError::Pump { .. }
                | BulkError::Server { .. }
                | BulkError::System(_)
                | BulkError::Segments(SegmentError::Archive { .. })
        );
        !may_pass && self.held.is_sure()
    }

    /// Writes what is dumped into the target, as it comes, until all is there.
    ///
    /// # Errors
    /// If a node does not answer, or the files are damaged or begun anew: then the next try begins with the first of them.
    pub fn fill(&self) -> anyhow::Result<End> {
        let (archive, _) = self.archive()?;
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
            share: Some(Share { name: name.clone(), pulse: Pulse::of(NOTICED) }),
            any_sum: false,
        };
        let watch = Watching::new(self.held, self.stop);
        let populated = match moneta_bulk::populate(&config, &archive, &watch) {
            Ok(populated) => populated,
            Err(error) => {
                if self.is_of_no_use(&error) {
                    Chain::remove_from(&*archive, &format!("claims/{name}"))?;
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
