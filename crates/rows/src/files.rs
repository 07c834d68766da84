//! Which files a load reads: those that were named, and all of directories and below URLs of object stores, in the order of their
//! names.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use flate2::read::MultiGzDecoder;
use moneta_bulk::stages::TimedRead;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;

/// How rows lie in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Format {
    /// Lines of values with a delimiter, RFC 4180.
    Csv,
    /// The same with tabs.
    Tsv,
    /// A JSON object a line.
    Json,
    /// Apache Parquet.
    Parquet,
}

impl Format {
    /// By the name that a user gives it, which is also a file's end.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "csv" => Some(Self::Csv),
            "tsv" => Some(Self::Tsv),
            "json" | "jsonl" | "ndjson" => Some(Self::Json),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// How a file is compressed as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packed {
    Not,
    Gzip,
    Zstd,
}

/// A file as it was when the load began. It is to be the same when the load goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowFile {
    /// Where it lies: a path, or the URL of an object.
    pub path: PathBuf,
    /// Its format.
    pub format: Format,
    /// Its length in bytes.
    pub bytes: u64,
    /// When it was written last, in nanoseconds since the Unix epoch.
    pub modified: u64,
}

impl RowFile {
    /// The file at `path`; its format by its name, unless given.
    ///
    /// # Errors
    /// If it cannot be read, or its name says no format.
    pub fn at(path: PathBuf, format: Option<Format>) -> Result<Self, LoadError> {
        let shown = path.display().to_string();
        let about = fs::metadata(&path).map_err(|error| LoadError::file(&shown, error))?;
        let modified = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let modified = u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX);
        Self::of(path, format, about.len(), modified)
    }

    fn of(path: PathBuf, format: Option<Format>, bytes: u64, modified: u64) -> Result<Self, LoadError> {
        let Some(format) = format.or_else(|| of_name(&path).0) else {
            return Err(LoadError::file(
                &path.display().to_string(),
                "its name does not end with a format (.csv, .tsv, .json, .jsonl, .ndjson, .parquet, perhaps .gz or .zst \
                 after it): say --format",
            ));
        };
        Ok(Self { path, format, bytes, modified })
    }

    /// Its name for people.
    pub fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// The file itself, or of an object a copy without a name in `TMPDIR`: for formats that are not read from their begin to their end.
    ///
    /// # Errors
    /// If it cannot be opened, or there is no room for a copy.
    pub fn local(&self) -> io::Result<File> {
        if !is_url(&self.path) {
            return File::open(&self.path);
        }
        let mut copy = tempfile::tempfile()?;
        io::copy(&mut bytes_of(&self.path)?, &mut copy)?;
        copy.seek(SeekFrom::Start(0))?;
        Ok(copy)
    }

    /// Its bytes, decompressed. One that was cut short ends in an error.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(&self) -> io::Result<Box<dyn Read>> {
        let file = bytes_of(&self.path)?;
        Ok(match of_name(&self.path).1 {
            Packed::Not => file,
            Packed::Gzip => Box::new(MultiGzDecoder::new(BufReader::with_capacity(128 << 10, file))),
            Packed::Zstd => Box::new(zstd::Decoder::new(file)?),
        })
    }
}

fn is_url(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.contains("://"))
}

fn bytes_of(path: &Path) -> io::Result<Box<dyn Read>> {
    match path.to_str().filter(|_| is_url(path)) {
        Some(url) => Ok(Box::new(TimedRead(objects::open(url)?))),
        None => Ok(Box::new(TimedRead(File::open(path)?))),
    }
}

#[cfg(feature = "stores")]
mod objects {
    use std::io::{self, Read};
    use std::path::PathBuf;

    use super::{Format, LoadError, RowFile};

    pub(super) fn open(url: &str) -> io::Result<Box<dyn Read>> {
        Ok(moneta_stores::objects::open(url)?)
    }

    pub(super) fn find(url: &str, format: Option<Format>) -> Result<Vec<RowFile>, LoadError> {
        let found = moneta_stores::objects::find(url).map_err(|error| LoadError::file(url, error))?;
        let is_data = |below: &[String]| !below.iter().any(|part| part.starts_with(['.', '_']));
        let data = found.into_iter().filter(|object| is_data(&object.below));
        data.map(|object| RowFile::of(PathBuf::from(object.url), format, object.bytes, object.modified)).collect()
    }
}

#[cfg(not(feature = "stores"))]
mod objects {
    use std::io::{self, ErrorKind, Read};

    use super::{Format, LoadError, RowFile};

    const WITHOUT: &str = "this build reads no object stores: it lacks the feature `stores`";

    pub(super) fn open(_: &str) -> io::Result<Box<dyn Read>> {
        Err(io::Error::new(ErrorKind::Unsupported, WITHOUT))
    }

    pub(super) fn find(url: &str, _: Option<Format>) -> Result<Vec<RowFile>, LoadError> {
        Err(LoadError::file(url, WITHOUT))
    }
}

/// What a file's name says.
fn of_name(path: &Path) -> (Option<Format>, Packed) {
    let name = path.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let (name, packed) = match name.rsplit_once('.') {
        Some((rest, "gz")) => (rest, Packed::Gzip),
        Some((rest, "zst" | "zstd")) => (rest, Packed::Zstd),
        _ => (&*name, Packed::Not),
    };
    (name.rsplit_once('.').and_then(|(_, end)| Format::named(end)), packed)
}

/// The files that were named, and of directories and URLs all in them and below, but for those whose names begin with `.` or `_`. What was
/// named first comes first; what is in a directory, by its name.
///
/// # Errors
/// If one cannot be read, or there is none.
pub fn find(named: &[PathBuf], format: Option<Format>) -> Result<Vec<RowFile>, LoadError> {
    let mut files = Vec::new();
    for path in named {
        if let Some(url) = path.to_str().filter(|_| is_url(path)) {
            files.extend(objects::find(url, format)?);
        } else if path.is_dir() {
            let mut found = Vec::new();
            collect(path, &mut found).map_err(|error| LoadError::file(&path.display().to_string(), error))?;
            found.sort_unstable();
            for path in found {
                files.push(RowFile::at(path, format)?);
            }
        } else {
            files.push(RowFile::at(path.clone(), format)?);
        }
    }
    if files.is_empty() {
        return Err(LoadError::Refused("there is no file to load".to_owned()));
    }
    Ok(files)
}

fn collect(folder: &Path, into: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match name.starts_with(['.', '_']) {
            true => {}
            false if path.is_dir() => collect(&path, into)?,
            false => into.push(path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_format_and_compression() {
        let of = |name: &str| of_name(Path::new(name));
        assert_eq!(of("a/b.csv"), (Some(Format::Csv), Packed::Not));
        assert_eq!(of("a/B.JSONL.GZ"), (Some(Format::Json), Packed::Gzip));
        assert_eq!(of("x.2026.tsv.zst"), (Some(Format::Tsv), Packed::Zstd));
        assert_eq!(of("part-0.snappy.parquet"), (Some(Format::Parquet), Packed::Not));
        assert_eq!(of("csv"), (None, Packed::Not));
    }

    #[test]
    fn a_directory_is_all_its_files_by_name_without_marks_of_other_programs() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("day=2")).expect("a folder");
        for name in ["b.csv", "a.csv", "_SUCCESS", ".a.csv.crc", "day=2/c.csv"] {
            fs::write(folder.path().join(name), "k\n").expect("it can be written");
        }
        let found = find(&[folder.path().to_owned()], None).expect("they are there");
        let names: Vec<_> = found.iter().map(|file| file.path.strip_prefix(folder.path()).expect("in it")).collect();
        assert_eq!(names, [Path::new("a.csv"), Path::new("b.csv"), Path::new("day=2/c.csv")]);
        fs::write(folder.path().join("what"), "").expect("it can be written");
        assert!(find(&[folder.path().to_owned()], None).is_err_and(|error| error.to_string().contains("--format")));
    }
}
