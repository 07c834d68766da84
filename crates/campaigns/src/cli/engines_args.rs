//! `campaigns engines`.

use std::path::PathBuf;

use clap::Args;
use moneta_bench::cli::{CpuArgs, OutputArgs, seconds};

use crate::ssd::{self, Scale, Settings, engines};
use moneta_bench::compare::Side;
use moneta_bench::{BenchError, Result};

/// Several servers that keep their items on an SSD, one after the other.
#[derive(Debug, Args)]
// Scripts give a scale, which those who call them may override.
#[command(args_override_self = true)]
pub struct EnginesArgs {
    /// A server with its name in the table, as NAME=COMMAND with {port}, {flash} (a folder) and {flash_size} (MiB) in the command,
    /// and, if it has them, {batch_port} and {admin_port}; may be repeated
    #[arg(long = "engine", value_name = "NAME=SERVER", required = true, value_parser = named)]
    engines: Vec<Named>,
    /// Folder on the disk to measure; the servers' files are made in it and removed
    #[arg(long, value_name = "FOLDER")]
    data: PathBuf,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Key length in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 30)]
    key_size: usize,
    /// Value size in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    value_size: u32,
    /// Size of what each server may keep
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    flash_size: u64,
    /// Length of each measurement in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0)]
    duration: f64,
    /// Seconds of load before each
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    warmup: f64,
    /// How often all keys are overwritten
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    overwrites: u32,
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

/// A side on the command line.
#[derive(Debug, Clone)]
struct Named(Side);

fn named(text: &str) -> std::result::Result<Named, String> {
    let (name, command) = text.split_once('=').ok_or("expected NAME=COMMAND")?;
    let origin = command.parse()?;
    Ok(Named(Side { name: name.to_owned(), origin }))
}

impl EnginesArgs {
    pub(super) fn run(&self) -> Result<()> {
        let (engines, ran) = engines::run(&self.settings()?);
        print!("{}", engines::render(&engines));
        if let Some(path) = &self.markdown {
            let written = std::fs::write(path, engines::markdown(&engines));
            written.map_err(|source| BenchError::File { path: path.clone(), source })?;
        }
        self.output.file.write(&engines)?;
        ran
    }

    fn settings(&self) -> Result<Settings> {
        let length = seconds("duration", self.duration, 0.1)?;
        let settings = Settings {
            sides: self.engines.iter().map(|named| named.0.clone()).collect(),
            data: self.data.clone(),
            scale: Scale {
                keys: self.keys,
                key_length: self.key_size,
                value_size: self.value_size,
                flash: self.flash_size,
                small_value_size: self.value_size,
                small_flash: self.flash_size,
                length,
                warmup: seconds("warmup", self.warmup, 0.0)?,
                online_rate: 0.0,
                online_warmup: length,
                overwrites: self.overwrites,
                rounds: 1,
                verify: self.verify,
            },
            parts: Vec::new(),
            keep_page_cache: self.keep_page_cache,
            server_cpus: self.cpus.server(),
            client_cpus: self.cpus.client(),
            progress: !self.output.quiet,
        };
        ssd::check(&settings)?;
        Ok(settings)
    }
}
