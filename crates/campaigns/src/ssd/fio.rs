//! What the disk itself can do: fio's rate of random reads of the very file a server keeps its items in.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use moneta_bench::{BenchError, Result};

/// What fio measured.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    /// Reads a second.
    pub per_second: f64,
    /// 99th percentile of a read's time, in microseconds.
    pub p99: f64,
}

/// Whether fio is installed.
pub fn installed() -> bool {
    let run = Command::new("fio").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    run.is_ok_and(|status| status.success())
}

/// Reads 4 KiB at random places among the first `bytes` of `file`, past the page cache, `depth` reads at a time.
///
/// # Errors
/// [`BenchError::System`] when fio fails, [`BenchError::Format`] when its report cannot be read.
pub fn random_reads(file: &Path, bytes: u64, depth: usize, length: Duration) -> Result<Reads> {
    let mut command = Command::new("fio");
    command.args(["--name=reads", "--readonly", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring"]);
    command.args(["--time_based", "--output-format=json", "--norandommap"]);
    command.arg(format!("--filename={}", file.display()));
    command.arg(format!("--size={bytes}"));
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--runtime={}ms", length.as_millis()));
    let output = command.output().map_err(|error| BenchError::system("run fio", error))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BenchError::system(format!("run fio on {}: {message}", file.display()), std::io::ErrorKind::Other));
    }
    parse(&output.stdout).ok_or_else(|| BenchError::Format {
        path: PathBuf::from("fio's report"),
        reason: "it has no figures of reads".to_owned(),
    })
}

fn parse(output: &[u8]) -> Option<Reads> {
    // Warnings may come before the report.
    let start = output.iter().position(|byte| *byte == b'{')?;
    let report: Value = serde_json::from_slice(&output[start..]).ok()?;
    let read = report.get("jobs")?.get(0)?.get("read")?;
    let p99 = read.get("clat_ns")?.get("percentile")?.get("99.000000")?.as_f64()?;
    Some(Reads { per_second: read.get("iops")?.as_f64()?, p99: p99 / 1000.0 })
}

/// The largest file in `folder`: the one a server keeps its items in.
///
/// # Errors
/// [`BenchError::File`] when the folder cannot be read or holds no file.
pub fn largest_file(folder: &Path) -> Result<PathBuf> {
    let failed = |source| BenchError::File { path: folder.to_owned(), source };
    let mut largest = None;
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let metadata = entry.metadata().map_err(failed)?;
        if metadata.is_file() {
            largest = largest.max(Some((metadata.len(), entry.path())));
        }
    }
    largest.map(|(_, path)| path).ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_even_after_a_warning() {
        let report = br#"fio: a warning
{"jobs": [{"read": {"iops": 5000.5, "clat_ns": {"percentile": {"99.000000": 250000}}}}]}"#;
        let reads = parse(report).unwrap();
        assert_eq!((reads.per_second, reads.p99), (5000.5, 250.0));
        assert!(parse(b"no report").is_none() && parse(b"{}").is_none());
    }

    #[test]
    fn the_largest_file_is_found() {
        let folder = tempfile::tempdir().unwrap();
        assert!(largest_file(folder.path()).is_err());
        std::fs::write(folder.path().join("small"), "1").unwrap();
        std::fs::write(folder.path().join("large"), "12").unwrap();
        assert_eq!(largest_file(folder.path()).unwrap(), folder.path().join("large"));
    }
}
