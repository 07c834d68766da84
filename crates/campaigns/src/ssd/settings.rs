//! What a campaign is told: its servers, its parts, and its scale.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use super::page_cache;
use super::subject::Subject;
use moneta_bench::Result;
use moneta_bench::compare::Side;
use moneta_bench::interrupt;

/// What is measured after the fill, which every campaign begins with; always in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// Uniform random gets and multi-gets from SSD, half sets and half gets, and what fio reaches on the same file.
    Reads,
    /// Online gets while a bulk load runs.
    Nightly,
    /// A clean stop and a kill, and what is there after each.
    Restart,
    /// All keys overwritten several times.
    Overwrites,
    /// The same with small values, on the node alone, started anew.
    Small,
}

/// How large everything is.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Keys.
    pub keys: u64,
    /// Key length in bytes.
    pub key_length: usize,
    /// Value size in bytes.
    pub value_size: u32,
    /// Size of a server's file in MiB.
    pub flash: u64,
    /// Value size of the part with small values.
    pub small_value_size: u32,
    /// File size in MiB of the part with small values.
    pub small_flash: u64,
    /// Length of each measurement.
    pub length: Duration,
    /// Load before each measurement.
    pub warmup: Duration,
    /// Online gets a second while a bulk load runs.
    pub online_rate: f64,
    /// How long the hot keys are asked for before that.
    pub online_warmup: Duration,
    /// How often all keys are overwritten.
    pub overwrites: u32,
    /// Rounds of the measurements that change nothing that matters to the next.
    pub rounds: usize,
    /// Whether read values are checked.
    pub verify: bool,
}

/// What a campaign is told.
#[derive(Debug)]
pub struct Settings {
    /// The node, and the peer if there is one.
    pub sides: Vec<Side>,
    /// Where the servers' folders are made.
    pub data: PathBuf,
    /// Sizes and lengths.
    pub scale: Scale,
    /// What is measured after the fill.
    pub parts: Vec<Part>,
    /// Whether the page cache stays as it is.
    pub keep_page_cache: bool,
    /// CPUs of the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs of the client.
    pub client_cpus: Vec<usize>,
    /// Whether it is told what runs.
    pub progress: bool,
}

impl Settings {
    /// Starts every server with a file of this size.
    ///
    /// # Errors
    /// As [`Subject::start`].
    pub fn start(&self, mebibytes: u64) -> Result<Vec<Subject>> {
        let start = |side: &Side| Subject::start(side, &self.data, mebibytes, &self.server_cpus);
        self.sides.iter().map(start).collect()
    }

    /// Tells what runs now, and ends the campaign if it was interrupted.
    ///
    /// # Errors
    /// [`moneta_bench::BenchError::Interrupted`].
    pub fn announce(&self, what: &str, subject: &Subject) -> Result<()> {
        interrupt::check()?;
        if self.progress {
            eprintln!("{what}: {}", subject.name);
        }
        Ok(())
    }

    /// Drops the page cache unless it is to be kept.
    ///
    /// # Errors
    /// As [`page_cache::drop_all`].
    pub fn drop_page_cache(&self) -> Result<()> {
        if self.keep_page_cache { Ok(()) } else { page_cache::drop_all() }
    }
}
