//! Recorded requests: readers for the formats cache traces are published in, plain or compressed with Zstandard.

mod lis;
mod oracle;

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use zstd::stream::read::Decoder;

use crate::error::{BenchError, Result};

/// One request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceRequest {
    /// The object's number.
    pub object: u64,
    /// Its size in bytes.
    pub size: u32,
}

/// How a trace is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Lines of the ARC paper's traces: first block, number of blocks, a field to ignore, request number.
    Lis,
    /// libCacheSim's `oracleGeneral`: binary records of 24 bytes.
    OracleGeneral,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let name = name.strip_suffix(".zst").unwrap_or(name);
        match name {
            _ if name.ends_with(".lis") => Some(Self::Lis),
            _ if name.contains("oracleGeneral") => Some(Self::OracleGeneral),
            _ => None,
        }
    }
}

/// A stream of a trace's requests.
pub type Requests = Box<dyn Iterator<Item = Result<TraceRequest>>>;

/// Opens a trace. Without a format the file's name tells it; a name that ends in `.zst` is decompressed.
///
/// # Errors
/// [`BenchError::File`] when it cannot be opened, [`BenchError::Option`] when its format cannot be told; requests that do not
/// keep to the format come as [`BenchError::Format`].
pub fn open(path: &Path, format: Option<Format>) -> Result<Requests> {
    let unknown = || BenchError::option("format", path.display(), "the file's name does not tell the format");
    let format = format.or_else(|| Format::of(path)).ok_or_else(unknown)?;
    let file = File::open(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    let reader: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "zst") {
        Box::new(Decoder::new(file).map_err(|source| unreadable(path, source))?)
    } else {
        Box::new(file)
    };
    let reader = BufReader::with_capacity(1 << 20, reader);
    Ok(match format {
        Format::Lis => Box::new(lis::Reader::new(reader, path.to_owned())),
        Format::OracleGeneral => Box::new(oracle::Reader::new(reader, path.to_owned())),
    })
}

fn malformed(path: &Path, reason: String) -> BenchError {
    BenchError::Format { path: path.to_owned(), reason }
}

fn unreadable(path: &Path, source: std::io::Error) -> BenchError {
    BenchError::File { path: PathBuf::from(path), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_formats() {
        let of = |name: &str| Format::of(Path::new(name));
        assert_eq!(of("traces/OLTP.lis.zst"), Some(Format::Lis));
        assert_eq!(of("P3.lis"), Some(Format::Lis));
        assert_eq!(of("cloudPhysicsIO.oracleGeneral.bin"), Some(Format::OracleGeneral));
        assert_eq!(of("w1.oracleGeneral.zst"), Some(Format::OracleGeneral));
        assert_eq!(of("notes.txt"), None);
    }

    #[test]
    fn a_compressed_trace_reads_like_a_plain_one() {
        let compressed = zstd::encode_all(&b"7 2 0 0\n"[..], 1).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tiny.lis.zst");
        std::fs::write(&path, compressed).unwrap();
        let objects: Vec<_> = open(&path, None).unwrap().map(|request| request.unwrap().object).collect();
        assert_eq!(objects, [7, 8]);
    }
}
