//! The benchmark as a separate program: the same command line as `moneta bench`.

use std::process::ExitCode;

use clap::Parser;
use moneta_bench::cli::{BenchArgs, run};

#[derive(Debug, Parser)]
#[command(name = "bench", version, about = "Puts a load on memcached servers and measures them")]
struct Program {
    #[command(flatten)]
    args: BenchArgs,
}

fn main() -> ExitCode {
    match run(Program::parse().args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::FAILURE
        }
    }
}
