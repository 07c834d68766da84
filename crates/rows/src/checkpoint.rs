//! How far a load is: a file to which a line is added before each chunk.
//!
//! ```text
//! {"load":1,"files":[…],"mapping":{…}}                                     what is loaded
//! {"processes":{…}}                                                        these serve the targets: with others what was not durable is lost
//! {"lives":{…}}                                                            all before is written to these lives of the targets' nodes
//! {"file":0,"row":0,"version":"…","begun":1795389400000,"bad_bytes":0,"totals":{…}}      a chunk begins here, under this version
//! {"file":0,"row":10000,…,"since":[0,0]}                                   and a crash of a target may take what came since there
//! {"end":{…}}                                                              all rows were read; the totals
//! ```
//!
//! A chunk reaches to where the next one begins. A line that was cut short by a loss of power is none.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use moneta_bulk::KnownLives;
use moneta_feed::Process;
use serde::{Deserialize, Serialize};

use crate::error::LoadError;
use crate::files::RowFile;
use crate::mapping::Mapping;
use crate::totals::Totals;

/// The form of the file.
const FORM: u32 = 1;

/// What is loaded, and how. A load that goes on has the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The form of the checkpoint.
    load: u32,
    /// What is read, in this order.
    pub files: Vec<RowFile>,
    /// What rows become.
    pub mapping: Mapping,
    /// In which region rows are written.
    pub region: u8,
}

impl Plan {
    /// A load of these files.
    pub fn new(files: Vec<RowFile>, mapping: Mapping, region: u8) -> Self {
        Self { load: FORM, files, mapping, region }
    }

    /// What another one has changed, in words.
    fn differs(&self, other: &Self) -> Option<String> {
        let names = |plan: &Self| plan.files.iter().map(RowFile::name).collect::<Vec<_>>();
        if names(self) != names(other) {
            return Some("of other files".to_owned());
        }
        if let Some((file, _)) = self.files.iter().zip(&other.files).find(|(own, other)| own != other) {
            return Some(format!("of {} as it was before it changed", file.name()));
        }
        (self != other).then(|| "of the same files with other columns or options".to_owned())
    }
}

/// Where a chunk begins, and what its rows are written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// The file, as a place in the plan.
    pub file: usize,
    /// Rows of the file before it.
    pub row: u64,
    /// The version of its first row; each row has one more, in the counter.
    pub version: u64,
    /// When it began, Unix milliseconds.
    pub begun: u64,
    /// How long the file of bad rows was then.
    pub bad_bytes: u64,
    /// What had become of all rows before it.
    pub totals: Totals,
    /// Rows before it since this file and row were not on the targets' devices when it began; `None`: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<(usize, u64)>,
}

impl Chunk {
    /// Where it begins.
    pub fn place(&self) -> (usize, u64) {
        (self.file, self.row)
    }
}

/// A line after the first.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Step {
    End { end: Totals },
    Lives { lives: KnownLives },
    Processes { processes: BTreeMap<String, Process> },
    Chunk(Chunk),
}

/// The file, or none: then nothing is kept.
#[derive(Debug)]
pub struct Checkpoint {
    file: Option<(PathBuf, File)>,
    /// All chunks that were begun.
    pub chunks: Vec<Chunk>,
    /// The totals, if all was read.
    pub end: Option<Totals>,
    /// The lives of the nodes that have all rows of before; `None`: an earlier build noted none.
    pub lives: Option<KnownLives>,
    /// The processes that served these when the last chunk began.
    pub processes: BTreeMap<String, Process>,
}

impl Checkpoint {
    /// Takes the file at `path`, which need not be there, for a load. Another process cannot have it until this is dropped.
    ///
    /// # Errors
    /// If it is of another load, in use, damaged, or cannot be read or written.
    pub fn open(path: Option<&Path>, plan: &Plan) -> Result<Self, LoadError> {
        let nothing = Self { file: None, chunks: Vec::new(), end: None, lives: None, processes: BTreeMap::new() };
        let Some(path) = path else { return Ok(nothing) };
        let failed = |source| LoadError::Own { file: path.display().to_string(), source };
        let refused = |why: String| LoadError::Refused(format!("{}: {why}", path.display()));
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(refused("another load has this checkpoint".to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut text = Vec::new();
        file.read_to_end(&mut text).map_err(failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        file.set_len(whole as u64).and_then(|()| file.seek(SeekFrom::Start(whole as u64))).map_err(failed)?;
        let mut checkpoint = Self { file: Some((path.to_owned(), file)), ..nothing };
        let mut lines = text[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let Some(first) = lines.next() else {
            checkpoint.add(plan)?;
            return Ok(checkpoint);
        };
        let kept: Plan =
            serde_json::from_slice(first).map_err(|error| refused(format!("it is no checkpoint: {error}")))?;
        if let Some(differs) = kept.differs(plan) {
            return Err(refused(format!("it is {differs}: give another --checkpoint, or remove it")));
        }
        for line in lines {
            match serde_json::from_slice(line).map_err(|error| refused(format!("it is damaged: {error}")))? {
                Step::Chunk(chunk) => checkpoint.chunks.push(chunk),
                Step::End { end } => checkpoint.end = Some(end),
                Step::Lives { lives } => checkpoint.lives = Some(lives),
                Step::Processes { processes } => checkpoint.processes = processes,
            }
        }
        Ok(checkpoint)
    }

    /// A chunk begins: kept before this returns.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(&mut self, chunk: Chunk) -> Result<(), LoadError> {
        self.add(&Step::Chunk(chunk))?;
        // Only a load that keeps them asks for those of before.
        if self.file.is_some() {
            self.chunks.push(chunk);
        }
        Ok(())
    }

    /// All rows of before are written to nodes with these lives.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note(&mut self, lives: KnownLives) -> Result<(), LoadError> {
        if self.lives.as_ref() != Some(&lives) {
            self.add(&Step::Lives { lives: lives.clone() })?;
            self.lives = Some(lives);
        }
        Ok(())
    }

    /// These processes serve the nodes from now on.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn note_processes(&mut self, processes: BTreeMap<String, Process>) -> Result<(), LoadError> {
        if self.processes != processes {
            self.add(&Step::Processes { processes: processes.clone() })?;
            self.processes = processes;
        }
        Ok(())
    }

    /// All was read.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&mut self, totals: Totals) -> Result<(), LoadError> {
        self.end = Some(totals);
        self.add(&Step::End { end: totals })
    }

    fn add(&mut self, line: &impl Serialize) -> Result<(), LoadError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let mut add = || -> io::Result<()> {
            let mut text = serde_json::to_vec(line)?;
            text.push(b'\n');
            file.write_all(&text)?;
            file.sync_data()
        };
        add().map_err(|source| LoadError::Own { file: path.display().to_string(), source })
    }
}
