//! `campaigns ssd`.

use std::path::PathBuf;

use clap::Args;
use moneta_bench::cli::{CpuArgs, OutputArgs, rate, seconds};

use crate::ssd::{self, Part, Scale, Settings};
use moneta_bench::compare::Side;
use moneta_bench::server::Origin;
use moneta_bench::{BenchError, Result};

/// A campaign on servers that keep their items on an SSD.
#[derive(Debug, Args)]
// Scripts give a scale, which those who call them may override.
#[command(args_override_self = true)]
pub struct SsdArgs {
    /// The node: a command line with {port}, {flash} (a folder) and {flash_size} (MiB) in it, and, if it has such listeners,
    /// {batch_port} and {admin_port}
    #[arg(long, value_name = "SERVER")]
    node: Origin,
    /// What it is compared with: a command line of the same kind
    #[arg(long, value_name = "SERVER")]
    peer: Option<Origin>,
    /// The node's name in the table
    #[arg(long, value_name = "NAME")]
    name_node: Option<String>,
    /// The peer's name in the table
    #[arg(long, value_name = "NAME")]
    name_peer: Option<String>,
    /// Folder on the disk to measure; the servers' files are made in it and removed
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// What is measured after the fill
    #[arg(
        long,
        value_enum,
        value_name = "PART,...",
        value_delimiter = ',',
        default_value = "reads,nightly,restart,overwrites,small"
    )]
    parts: Vec<Part>,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    keys: u64,
    /// Key length in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 30)]
    key_size: usize,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    value_size: u32,
    /// Size of each server's file
    #[arg(long, value_name = "MIB", default_value_t = 8192)]
    flash_size: u64,
    /// Value size of the part `small`
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    small_value_size: u32,
    /// Size of each server's file in the part `small`
    #[arg(long, value_name = "MIB", default_value_t = 1280)]
    small_flash_size: u64,
    /// Length of each measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds of load before each
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// Online gets a second while a bulk load runs
    #[arg(long, value_name = "N", default_value_t = 5000.0)]
    online_rate: f64,
    /// Seconds for which the hot keys are asked for before that, as fast as they are answered
    #[arg(long, value_name = "SECONDS", default_value_t = 30.0)]
    online_warmup: f64,
    /// How often all keys are overwritten
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    overwrites: u32,
    /// Rounds of the part `reads`
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Check every value read
    #[arg(long)]
    verify: bool,
    /// Leave the page cache as it is: for machines where it cannot be dropped, and figures that mean little
    #[arg(long)]
    keep_page_cache: bool,
    #[command(flatten)]
    cpus: CpuArgs,
    /// Write the table to this file as Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    #[command(flatten)]
    output: OutputArgs,
}

impl SsdArgs {
    pub(super) fn run(&self) -> Result<()> {
        let (report, ran) = ssd::run(&self.settings()?);
        print!("{}", report.render());
        if let Some(path) = &self.markdown {
            let written = std::fs::write(path, report.markdown());
            written.map_err(|source| BenchError::File { path: path.clone(), source })?;
        }
        self.output.file.write(&report)?;
        ran
    }

    fn settings(&self) -> Result<Settings> {
        let side = |origin: &Origin, name: &Option<String>| Side {
            name: name.clone().unwrap_or_else(|| origin.name()),
            origin: origin.clone(),
        };
        let node = side(&self.node, &self.name_node);
        let peer = self.peer.as_ref().map(|peer| side(peer, &self.name_peer));
        let settings = Settings {
            sides: std::iter::once(node).chain(peer).collect(),
            data: self.data.clone(),
            scale: self.scale()?,
            parts: self.parts.clone(),
            keep_page_cache: self.keep_page_cache,
            server_cpus: self.cpus.server(),
            client_cpus: self.cpus.client(),
            progress: !self.output.quiet,
        };
        ssd::check(&settings)?;
        Ok(settings)
    }

    fn scale(&self) -> Result<Scale> {
        rate(Some(self.online_rate), moneta_bench::Arrivals::Poisson)?;
        Ok(Scale {
            keys: self.keys,
            key_length: self.key_size,
            value_size: self.value_size,
            flash: self.flash_size,
            small_value_size: self.small_value_size,
            small_flash: self.small_flash_size,
            length: seconds("duration", self.duration, 0.1)?,
            warmup: seconds("warmup", self.warmup, 0.0)?,
            online_rate: self.online_rate,
            online_warmup: seconds("online-warmup", self.online_warmup, 0.0)?,
            overwrites: self.overwrites,
            rounds: self.rounds as usize,
            verify: self.verify,
        })
    }
}
