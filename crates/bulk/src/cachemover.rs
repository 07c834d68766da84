//! The files of Netflix's Cachemover, as a source.
//!
//! ```text
//! data_<ip>__<key file>_<MD5, 32 upper-case hexadecimal digits>     whole; what ends in a number is still being written, and nothing
//! record: key length u16 · key · expiry i32, Unix seconds, -1: never · flags u32 · data length u32 · data      big-endian
//! ```
//!
//! Each file is read twice: its sum is known after all of it alone, and nothing of a file that does not match is told.

use std::io::{self, BufReader, ErrorKind, Read};
use std::sync::Arc;

use md5::{Digest, Md5};
use moneta_feed::{Begin, Change, FeedPlace, Line, Mark, Next, Set, Source, SourceError};
use moneta_item::{Expiry, ItemMeta};
use moneta_segments::Archive;

use crate::watch::{Counted, Counters};

/// Bytes of a record between its key and its data.
const AFTER_KEY: usize = 12;
/// Bytes that are read at once.
const READ: usize = 256 << 10;
/// The longest key of memcached.
const KEY_MAX: usize = 250;
/// Digits of a sum.
const DIGITS: usize = 32;

/// The whole data files of an archive, in their order; empty if it is no dump of Cachemover.
///
/// # Errors
/// The archive's.
pub fn files(archive: &dyn Archive) -> io::Result<Vec<String>> {
    Ok(archive.list("")?.into_iter().filter(|name| name.starts_with("data_") && sum_of(name).is_some()).collect())
}

/// The sum that a file's name says.
fn sum_of(name: &str) -> Option<&str> {
    let (_, sum) = name.rsplit_once('_')?;
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'A'..=b'F').contains(&byte);
    (sum.len() == DIGITS && sum.bytes().all(is_digit)).then_some(sum)
}

/// Reads data files, each once.
pub struct CachemoverSource {
    archive: Arc<dyn Archive>,
    names: Vec<String>,
    value_max: usize,
    /// Files whose sum does not match are read as far as they are records: a dump of Cachemover that was gone on with leaves some.
    takes_any: bool,
    counters: Counters,
    /// Of this reading alone, and how many files were told.
    place: FeedPlace,
    open: Option<BufReader<Box<dyn Read + Send>>>,
}

impl CachemoverSource {
    /// Will read these files. Values over `value_max` bytes are passed over.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new(
        archive: Arc<dyn Archive>,
        names: Vec<String>,
        value_max: usize,
        takes_any: bool,
        counters: Counters,
    ) -> io::Result<Self> {
        let place = FeedPlace { incarnation: getrandom::u64()?.max(1), position: 0, told: 0 };
        Ok(Self { archive, names, value_max, takes_any, counters, place, open: None })
    }

    fn name(&self) -> Option<&String> {
        self.names.get(usize::try_from(self.place.position).ok()?)
    }

    /// The next file, once its sum is known to match; `None`: there is no more.
    fn open(&mut self) -> Result<bool, SourceError> {
        let Some(name) = self.name().cloned() else { return Ok(false) };
        let away = |error: io::Error| SourceError::Away(format!("{name}: {error}"));
        if !self.takes_any {
            let mut file = self.archive.open(&name).map_err(away)?;
            let (mut sum, mut part) = (Md5::new(), vec![0; READ]);
            loop {
                match file.read(&mut part).map_err(away)? {
                    0 => break,
                    read => sum.update(&part[..read]),
                }
            }
            let sum: String = sum.finalize().iter().map(|byte| format!("{byte:02X}")).collect();
            if sum_of(&name) != Some(&sum) {
                return Err(SourceError::Refused(format!(
                    "{name} is damaged: its MD5 is {sum}; if Cachemover went on with a dump that was broken off, --any-sum reads it all \
                     the same"
                )));
            }
        }
        self.open = Some(BufReader::with_capacity(READ, self.archive.open(&name).map_err(away)?));
        Ok(true)
    }

    /// The next item of the open file; `None`: there is no more of them.
    fn item(&mut self) -> Result<Option<Change>, io::Error> {
        let value_max = self.value_max;
        let Some(file) = &mut self.open else { return Ok(None) };
        loop {
            let mut length = [0; 2];
            // The end of a file is the end of a record.
            if file.read(&mut length[..1])? == 0 {
                return Ok(None);
            }
            file.read_exact(&mut length[1..])?;
            let key_length = usize::from(u16::from_be_bytes(length));
            if key_length == 0 || key_length > KEY_MAX {
                return Err(io::Error::new(ErrorKind::InvalidData, format!("a key of {key_length} bytes")));
            }
            let mut key = vec![0; key_length];
            file.read_exact(&mut key)?;
            let mut head = [0; AFTER_KEY];
            file.read_exact(&mut head)?;
            let u32_at = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            // -1 is never, as any that is negative.
            let expiry = Expiry(u32::try_from(u32_at(0).cast_signed()).unwrap_or(0));
            let (flags, length) = (u32_at(4), u32_at(8) as usize);
            if length > value_max {
                let passed = io::copy(&mut file.take(length as u64), &mut io::sink())?;
                if passed < length as u64 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.counters.add(Counted::TooLarge);
                continue;
            }
            let mut value = Vec::new();
            file.take(length as u64).read_to_end(&mut value)?;
            if value.len() < length {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let meta = ItemMeta { flags, expiry, ..ItemMeta::default() };
            return Ok(Some(Change::Set(Set { key: key.into(), meta, value: Some(value.into()), as_of: None })));
        }
    }

    fn mark(&self) -> Mark {
        let more = self.name().is_some();
        Mark { cursor: self.place.to_string(), watermark: 0, horizon: 0, behind: None, more }
    }
}

impl Source for CachemoverSource {
    fn begin(&mut self, from: Begin, _: u64) -> Result<(), SourceError> {
        self.open = None;
        self.place.position = match from {
            Begin::Now | Begin::Since(_) => 0,
            Begin::Cursor(place) if place.incarnation == self.place.incarnation => place.position,
            Begin::Cursor(_) => return Err(SourceError::Refused("files of Cachemover have no cursors".to_owned())),
        };
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if self.open.is_none() && !self.open()? {
            return Ok(Next::Line(Line::End));
        }
        match self.item() {
            Ok(Some(change)) => return Ok(Next::Line(Line::Change(change))),
            Ok(None) => {}
            Err(error) => {
                let name = self.name().map_or("", String::as_str);
                return match error.kind() {
                    ErrorKind::UnexpectedEof => Err(SourceError::Refused(format!("{name} is cut short"))),
                    ErrorKind::InvalidData => Err(SourceError::Refused(format!("{name} is damaged: {error}"))),
                    _ => Err(SourceError::Away(format!("{name}: {error}"))),
                };
            }
        }
        self.open = None;
        self.place.position += 1;
        Ok(Next::Line(Line::Mark(self.mark())))
    }

    fn is_ready(&self) -> bool {
        self.open.is_some()
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        Ok(())
    }

    fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
        Ok(false)
    }
}
