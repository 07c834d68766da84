//! `campaigns`: what `docs/campaigns.md` describes.

use std::process::ExitCode;

use clap::Parser;
use moneta_campaigns::cli::{Campaign, run};

#[derive(Debug, Parser)]
#[command(
    name = "campaigns",
    version,
    about = "Measures servers at length: SSD tiers, engines, hostile clients, policies"
)]
struct Program {
    #[command(subcommand)]
    campaign: Campaign,
}

fn main() -> ExitCode {
    match run(&Program::parse().campaign) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("campaigns: {error}");
            ExitCode::FAILURE
        }
    }
}
