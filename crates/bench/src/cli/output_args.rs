//! Where results go.

use std::path::PathBuf;

use clap::Args;

/// Where results go, and whether progress is printed.
#[derive(Debug, Args)]
pub struct OutputArgs {
    /// The results' file.
    #[command(flatten)]
    pub file: ResultFile,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

/// Where results go.
#[derive(Debug, Args)]
pub struct ResultFile {
    /// Write the results to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
