//! Segments in their order, without holes.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use moneta_store::feed::Change;
use serde::{Deserialize, Serialize};

use crate::archive::{Archive, Created, Upload, check_name};
use crate::error::SegmentError;
use crate::form::Form;
use crate::segment::{Counts, Footer, Header, SegmentReader, SegmentWriter};

/// The largest record of a segment, or of an end, in bytes.
const RECORD_MAX: u64 = 64 << 10;

/// What makes a segment exist.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Committed {
    /// Its number in the chain.
    pub number: u64,
    /// The file that holds it, in the chain's folder.
    pub segment: String,
    /// Its length in bytes.
    pub length: u64,
    /// Where it begins: a cursor of the source; empty at the begin of what that holds.
    pub from: String,
    /// As its footer.
    #[serde(flatten)]
    pub footer: Footer,
}

/// What ends a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// How many segments it has.
    pub segments: u64,
    /// Where the source is to be followed from for what came after.
    pub to: String,
    /// Everything that the source was told until then is in it, Unix milliseconds; 0: that is not known.
    pub watermark: u64,
    /// What the segments hold together.
    pub counts: Counts,
}

/// A chain in an archive.
#[derive(Clone, Debug)]
pub struct Chain {
    archive: Arc<dyn Archive>,
    name: String,
    /// Where the first segment begins, if there is none yet.
    start: String,
    segments: Vec<Committed>,
    done: Option<Done>,
}

impl Chain {
    /// The chain of this name, with the segments that it has by now; perhaps none.
    ///
    /// # Errors
    /// If the archive does not answer, a record is damaged, or there is a hole.
    pub fn open(archive: Arc<dyn Archive>, name: &str) -> Result<Self, SegmentError> {
        let (name, start) = (name.to_owned(), String::new());
        let mut chain = Self { archive, name, start, segments: Vec::new(), done: None };
        chain.refresh()?;
        Ok(chain)
    }

    /// The same chain as it is now, also if it was begun anew since.
    ///
    /// # Errors
    /// As [`Chain::open`].
    pub fn reopened(&self) -> Result<Self, SegmentError> {
        Self::open(Arc::clone(&self.archive), &self.name)
    }

    /// Looks for segments that came since.
    ///
    /// # Errors
    /// As [`Chain::open`].
    pub fn refresh(&mut self) -> Result<(), SegmentError> {
        if self.done.is_some() {
            return Ok(());
        }
        let names = self.archive.list(&self.name).map_err(|error| SegmentError::archive(&self.name, error))?;
        let known = self.segments.last().map(|last| last.number);
        let mut numbers: BTreeMap<u64, &str> = BTreeMap::new();
        for name in &names {
            let number = name.rsplit('/').next().and_then(|file| file.strip_suffix(".commit"));
            if let Some(number) = number.and_then(|number| number.parse().ok()).filter(|number| Some(*number) > known) {
                numbers.insert(number, name);
            }
        }
        let done = self.place("DONE");
        // Looked for before the segments are read: what it counts was there by then.
        let done = names.contains(&done).then(|| self.read_record::<Done>(&done)).transpose()?;
        for (number, name) in numbers {
            let committed: Committed = self.read_record(name)?;
            if committed.segment.contains('/') || check_name(&committed.segment).is_err() {
                return Err(SegmentError::damaged(name, "it names no file of its chain"));
            }
            self.fits(&committed, number)?;
            self.segments.push(committed);
        }
        if let Some(done) = done {
            if self.segments.len() as u64 != done.segments {
                return Err(self.hole(format!(
                    "it says that it has {}, and there are {}",
                    done.segments,
                    self.segments.len()
                )));
            }
            self.done = Some(done);
        }
        Ok(())
    }

    fn fits(&self, committed: &Committed, number: u64) -> Result<(), SegmentError> {
        if committed.number != number {
            return Err(self.hole(format!("the record of segment {number} is that of {}", committed.number)));
        }
        let (expected, from) = match self.segments.last() {
            Some(last) => (last.number + 1, last.footer.to.as_str()),
            None => (0, committed.from.as_str()),
        };
        if number != expected {
            return Err(self.hole(format!("segment {expected} is missing before {number}")));
        }
        if committed.from != from {
            return Err(self.hole(format!(
                "segment {number} begins at {:?}, and the one before ends at {from:?}",
                committed.from
            )));
        }
        Ok(())
    }

    fn hole(&self, reason: String) -> SegmentError {
        SegmentError::Hole { chain: self.name.clone(), reason }
    }

    fn place(&self, file: &str) -> String {
        format!("{}/{file}", self.name)
    }

    fn read_record<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, SegmentError> {
        let file = self.archive.open(name).map_err(|error| SegmentError::archive(name, error))?;
        let mut text = Vec::new();
        file.take(RECORD_MAX + 1).read_to_end(&mut text).map_err(|error| SegmentError::archive(name, error))?;
        serde_json::from_slice(&text).map_err(|error| SegmentError::damaged(name, error.to_string()))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its segments, in their order.
    pub fn segments(&self) -> &[Committed] {
        &self.segments
    }

    /// How it ended, if it has.
    pub fn done(&self) -> Option<&Done> {
        self.done.as_ref()
    }

    /// Where the next segment begins; empty: at the begin of what the source holds.
    pub fn end(&self) -> &str {
        self.segments.last().map_or(&self.start, |last| &last.footer.to)
    }

    /// Has the first segment begin at this cursor: where another chain says that its source is to be followed from.
    ///
    /// # Errors
    /// If there are segments, and the first begins elsewhere.
    pub fn start_at(&mut self, cursor: &str) -> Result<(), SegmentError> {
        match self.segments.first() {
            Some(first) if first.from != cursor => {
                Err(self.hole(format!("it begins at {:?}, and {cursor:?} is looked for", first.from)))
            }
            _ => {
                cursor.clone_into(&mut self.start);
                Ok(())
            }
        }
    }

    /// A chain that has this segment alone, to read it.
    #[must_use]
    pub fn only(&self, segment: &Committed) -> Self {
        let (archive, name) = (Arc::clone(&self.archive), self.name.clone());
        Self { archive, name, start: segment.from.clone(), segments: vec![segment.clone()], done: None }
    }

    /// Begins the next segment. `begun`: Unix milliseconds.
    ///
    /// # Errors
    /// If the chain is done, or the archive does not take it.
    pub fn begin(&self, form: &Form, begun: u64) -> Result<Draft, SegmentError> {
        if self.done.is_some() {
            return Err(SegmentError::Done { chain: self.name.clone() });
        }
        let header = Header {
            source: form.source.clone(),
            from: self.end().to_owned(),
            begun,
            compression: if form.compresses { "zstd".to_owned() } else { String::new() },
            listed: form.listed,
        };
        let number = self.segments.len() as u64;
        let mark = getrandom::u64().map_err(|error| SegmentError::archive(&self.name, error.into()))?;
        let file = format!("{number:012}-{mark:016x}.segment");
        let place = self.place(&file);
        let begin = || SegmentWriter::begin(self.archive.begin(&place)?, &header);
        let writer = begin().map_err(|error| SegmentError::archive(&place, error))?;
        Ok(Draft { number, file, from: header.from, place, writer })
    }

    /// Ends a segment, the next of the chain: it is there from now on. The one after it begins at the cursor `to`.
    ///
    /// # Errors
    /// If the archive does not take it, or another process writes the chain, too.
    pub fn commit(&mut self, draft: Draft, to: &str, watermark: u64) -> Result<(), SegmentError> {
        let Draft { number, file, from, place, writer } = draft;
        let end = || {
            let (upload, footer, length) = writer.end(to, watermark)?;
            upload.finish()?;
            Ok((footer, length))
        };
        let (footer, length) = end().map_err(|error: io::Error| SegmentError::archive(&place, error))?;
        let committed = Committed { number, segment: file, length, from, footer };
        let record = self.place(&format!("{number:012}.commit"));
        match self.create(&record, &committed)? {
            Created::Now => self.segments.push(committed),
            // Its own, if an answer was lost.
            Created::Before if self.read_record::<Committed>(&record)? == committed => self.segments.push(committed),
            Created::Before => {
                let _ = self.archive.remove(&place);
                return Err(SegmentError::Taken { chain: self.name.clone(), number });
            }
        }
        Ok(())
    }

    /// Ends the chain. What came after it is to be followed from the cursor `to`; `None`: from where its last segment ended.
    ///
    /// # Errors
    /// If the archive does not take it.
    pub fn finish(&mut self, to: Option<&str>) -> Result<&Done, SegmentError> {
        let done = Done {
            segments: self.segments.len() as u64,
            to: to.unwrap_or(self.end()).to_owned(),
            watermark: self.segments.last().map_or(0, |last| last.footer.watermark),
            counts: self.segments.iter().fold(Counts::default(), |sum, segment| sum.and(segment.footer.counts)),
        };
        let place = self.place("DONE");
        match self.create(&place, &done)? {
            Created::Before if self.read_record::<Done>(&place)? != done => {
                Err(SegmentError::Taken { chain: self.name.clone(), number: done.segments })
            }
            _ => Ok(self.done.insert(done)),
        }
    }

    fn create(&self, name: &str, record: &impl Serialize) -> Result<Created, SegmentError> {
        let json = serde_json::to_vec(record).map_err(|error| SegmentError::archive(name, error.into()))?;
        self.archive.create(name, &json).map_err(|error| SegmentError::archive(name, error))
    }

    /// Reads a segment. No block of it has more raw bytes than `block_max`.
    ///
    /// # Errors
    /// If it is not there, or its header is none or another than the record says.
    pub fn read(
        &self,
        segment: &Committed,
        block_max: usize,
    ) -> Result<SegmentReader<Box<dyn Read + Send>>, SegmentError> {
        let place = self.place(&segment.segment);
        let file = self.archive.open(&place).map_err(|error| SegmentError::archive(&place, error))?;
        let file: Box<dyn Read + Send> = Box::new(io::BufReader::with_capacity(1 << 18, file));
        let reader = SegmentReader::open(&place, file, block_max)?;
        match reader.header().from == segment.from {
            true => Ok(reader),
            false => Err(SegmentError::damaged(&place, "it begins elsewhere than its record says")),
        }
    }

    /// Removes all of it, the last segment first: what is left if that breaks off is a chain that is not done. Only who alone writes the
    /// chain may ask for it.
    ///
    /// # Errors
    /// If the archive does not answer.
    pub fn remove(self) -> Result<(), SegmentError> {
        Self::remove_from(&*self.archive, &self.name)
    }

    /// The same of a chain that may be damaged, or not there.
    ///
    /// # Errors
    /// If the archive does not answer.
    pub fn remove_from(archive: &dyn Archive, name: &str) -> Result<(), SegmentError> {
        let mut names = archive.list(name).map_err(|error| SegmentError::archive(name, error))?;
        let rank = |name: &str| match name.rsplit('/').next() {
            Some("DONE") => 0,
            Some(file) if file.ends_with(".commit") => 1,
            _ => 2,
        };
        names.sort_by(|one, other| rank(one).cmp(&rank(other)).then_with(|| other.cmp(one)));
        names.iter().try_for_each(|name| archive.remove(name).map_err(|error| SegmentError::archive(name, error)))
    }

    /// Removes segments that no record names and that no record can come to name, since their number has one: what processes left that
    /// were killed. One that another is about to commit stays. Only who alone writes the chain may ask for it.
    ///
    /// # Errors
    /// If the archive does not answer.
    pub fn sweep(&self) -> Result<usize, SegmentError> {
        self.archive.tidy(&self.name).map_err(|error| SegmentError::archive(&self.name, error))?;
        let names = self.archive.list(&self.name).map_err(|error| SegmentError::archive(&self.name, error))?;
        let mut removed = 0;
        for name in names.iter().filter(|name| name.ends_with(".segment")) {
            let file = name.rsplit('/').next().unwrap_or(name);
            let number = file.split('-').next().and_then(|number| number.parse::<usize>().ok());
            let Some(named) = number.and_then(|number| self.segments.get(number)) else { continue };
            if named.segment != file {
                self.archive.remove(name).map_err(|error| SegmentError::archive(name, error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }
}

/// A segment that is being written.
pub struct Draft {
    number: u64,
    file: String,
    from: String,
    place: String,
    writer: SegmentWriter<Box<dyn Upload>>,
}

impl Draft {
    /// Adds a change that was read at `read_at`, Unix milliseconds.
    ///
    /// # Errors
    /// If the archive does not take it.
    pub fn add(&mut self, change: &Change, read_at: u64) -> Result<(), SegmentError> {
        self.writer.add(change, read_at).map_err(|error| SegmentError::archive(&self.place, error))
    }

    /// Bytes that it has by now, about.
    pub fn length(&self) -> u64 {
        self.writer.length()
    }
}
