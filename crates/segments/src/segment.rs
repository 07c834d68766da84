//! A segment, written and read in one pass.

use std::io::{self, Read, Write};
use std::mem::take;

use blake3::Hasher;
use bytes::Bytes;
use moneta_store::feed::Change;
use serde::{Deserialize, Serialize};
use zstd::bulk::{Compressor, Decompressor};

use crate::checksum;
use crate::error::SegmentError;
use crate::record;

const MAGIC: &[u8; 7] = b"MNTSEG\0";
const FORM: u8 = 1;
const BLOCK: u32 = u32::from_le_bytes(*b"MBLK");
const FOOTER: u32 = u32::from_le_bytes(*b"MFTR");

/// Raw bytes after which a block is written. A larger record has a block of its own. A block is read three times, for its checksum,
/// the hash and the archive: this much stays in a core's second cache meanwhile.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Bytes of a block before what it stores.
const BLOCK_HEAD: usize = 32;

/// The most bytes that a header or a footer may have.
const JSON_MAX: u32 = 64 << 10;

/// zstd's level: what a core compresses at the rate of a disk.
const LEVEL: i32 = 1;

/// What the changes of a segment are of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// The source as it was named: a node's address, a slot.
    pub source: String,
    /// Where it begins: a cursor of the source's feed. Empty: at the begin of what it holds.
    pub from: String,
    /// When it was begun, Unix milliseconds.
    pub begun: u64,
    /// How blocks are compressed: `zstd`, or empty.
    pub compression: String,
    /// The changes are items by a list of keys: each key once, each item current when it was read. False: they are of a feed.
    #[serde(default)]
    pub listed: bool,
}

/// How many changes a segment has of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sets.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
    /// Flushes, gaps and losses.
    pub others: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}

impl Counts {
    fn add(&mut self, change: &Change) {
        match change {
            Change::Set(_) => self.sets += 1,
            Change::Delete { .. } => self.deletes += 1,
            Change::Flush(_) | Change::Gap(_) | Change::Lost { .. } => self.others += 1,
        }
        self.bytes += change.size() as u64;
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        // Records may say anything.
        Self {
            sets: self.sets.saturating_add(other.sets),
            deletes: self.deletes.saturating_add(other.deletes),
            others: self.others.saturating_add(other.others),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// What a segment holds, as it turned out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// Where the next one begins.
    pub to: String,
    /// Everything that the source was told until then is before its end, Unix milliseconds; 0: that is not known.
    pub watermark: u64,
    /// How many changes there are.
    pub counts: Counts,
    /// BLAKE3 of all bytes before the footer, in hexadecimal.
    pub blake3: String,
}

/// Writes a segment.
pub struct SegmentWriter<W: Write> {
    out: Hashed<W>,
    compressor: Option<Compressor<'static>>,
    block: Vec<u8>,
    records: u32,
    /// When the first record of the block was read, Unix milliseconds.
    read_at: u64,
    counts: Counts,
}

impl<W: Write> SegmentWriter<W> {
    /// Begins a segment.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(out: W, header: &Header) -> io::Result<Self> {
        let mut out = Hashed { out, hash: Hasher::new(), length: 0 };
        let json = serde_json::to_vec(header).map_err(io::Error::other)?;
        let mut head = Vec::with_capacity(json.len() + 32);
        head.extend_from_slice(MAGIC);
        head.push(FORM);
        push_json(&json, &mut head);
        out.write(&head)?;
        let compressor = (header.compression == "zstd").then(|| Compressor::new(LEVEL)).transpose()?;
        Ok(Self { out, compressor, block: Vec::new(), records: 0, read_at: 0, counts: Counts::default() })
    }

    /// Adds a change that was read at this moment, Unix milliseconds.
    ///
    /// # Errors
    /// If a block is full and cannot be written.
    pub fn add(&mut self, change: &Change, read_at: u64) -> io::Result<()> {
        if self.records > 0 && self.block.len() + record::size(change) > BLOCK_BYTES {
            self.write_block()?;
        }
        if self.records == 0 {
            self.read_at = read_at;
        }
        record::write(change, &mut self.block);
        self.records += 1;
        self.counts.add(change);
        if self.block.len() >= BLOCK_BYTES { self.write_block() } else { Ok(()) }
    }

    /// Bytes that the segment has by now, about.
    pub fn length(&self) -> u64 {
        self.out.length + self.block.len() as u64
    }

    /// How many changes it has.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Ends it: the next one begins at the cursor `to`. What is written to, the footer, and the bytes of all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(mut self, to: &str, watermark: u64) -> io::Result<(W, Footer, u64)> {
        self.write_block()?;
        let blake3 = self.out.hash.finalize().to_hex().to_string();
        let footer = Footer { to: to.to_owned(), watermark, counts: self.counts, blake3 };
        let json = serde_json::to_vec(&footer).map_err(io::Error::other)?;
        let mut tail = Vec::with_capacity(json.len() + 32);
        tail.extend_from_slice(&FOOTER.to_le_bytes());
        push_json(&json, &mut tail);
        self.out.write(&tail)?;
        Ok((self.out.out, footer, self.out.length))
    }

    fn write_block(&mut self) -> io::Result<()> {
        if self.records == 0 {
            return Ok(());
        }
        let compressed = self.compressor.as_mut().map(|compressor| compressor.compress(&self.block)).transpose()?;
        let stored = compressed.as_deref().unwrap_or(&self.block);
        let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
        let mut head = Vec::with_capacity(BLOCK_HEAD);
        head.extend_from_slice(&BLOCK.to_le_bytes());
        head.extend_from_slice(&length(stored)?.to_le_bytes());
        head.extend_from_slice(&length(&self.block)?.to_le_bytes());
        head.extend_from_slice(&self.records.to_le_bytes());
        head.extend_from_slice(&self.read_at.to_le_bytes());
        head.extend_from_slice(&checksum::of_both(&head, stored).to_le_bytes());
        self.out.write(&head)?;
        self.out.write(stored)?;
        self.block.clear();
        self.block.shrink_to(2 * BLOCK_BYTES);
        self.records = 0;
        Ok(())
    }
}

/// Writes, and hashes what it wrote.
struct Hashed<W> {
    out: W,
    hash: Hasher,
    length: u64,
}

impl<W: Write> Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.hash.update(bytes);
        self.length += bytes.len() as u64;
        Ok(())
    }
}

fn push_json(json: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(json.len() as u32).to_le_bytes());
    out.extend_from_slice(json);
    out.extend_from_slice(&checksum::of(json).to_le_bytes());
}

/// Changes of one block.
#[derive(Debug)]
pub struct Block {
    /// The changes, in their order; parts of one buffer.
    pub changes: Vec<Change>,
    /// When the first of them was read from the source, Unix milliseconds.
    pub read_at: u64,
}

/// Reads a segment. A block's changes are handed out once its checksum holds; that all of them are there, and are what was written,
/// is known with the footer.
pub struct SegmentReader<R: Read> {
    name: String,
    input: R,
    hash: Hasher,
    header: Header,
    decompressor: Option<Decompressor<'static>>,
    /// Raw bytes of a block that are taken.
    block_max: usize,
    counts: Counts,
    footer: Option<Footer>,
}

impl<R: Read> SegmentReader<R> {
    /// Begins to read the segment of this name, in which no block has more raw bytes than `block_max`.
    ///
    /// # Errors
    /// If its header cannot be read, or is none.
    pub fn open(name: &str, mut input: R, block_max: usize) -> Result<Self, SegmentError> {
        let mut hash = Hasher::new();
        let mut magic = [0; 8];
        read(name, &mut input, &mut magic)?;
        if &magic[..7] != MAGIC {
            return Err(SegmentError::damaged(name, "it is no segment"));
        }
        if magic[7] != FORM {
            return Err(SegmentError::Unknown { name: name.to_owned(), form: magic[7] });
        }
        hash.update(&magic);
        let header: Header = read_json(name, &mut input, Some(&mut hash))?;
        if !matches!(header.compression.as_str(), "" | "zstd") {
            return Err(SegmentError::damaged(name, format!("it is compressed by {}", header.compression)));
        }
        let decompressor = (header.compression == "zstd").then(Decompressor::new).transpose();
        let decompressor = decompressor.map_err(|error| SegmentError::archive(name, error))?;
        let name = name.to_owned();
        Ok(Self { name, input, hash, header, decompressor, block_max, counts: Counts::default(), footer: None })
    }

    /// What the changes are of.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next block; `None` after the last, when the footer is there and holds.
    ///
    /// # Errors
    /// If what comes next is damaged or cut short.
    pub fn block(&mut self) -> Result<Option<Block>, SegmentError> {
        if self.footer.is_some() {
            return Ok(None);
        }
        let mut tag = [0; 4];
        self.fill(&mut tag)?;
        match u32::from_le_bytes(tag) {
            BLOCK => self.block_after(tag).map(Some),
            FOOTER => {
                let footer: Footer = read_json(&self.name, &mut self.input, None)?;
                if footer.blake3 != self.hash.finalize().to_hex().as_str() {
                    return Err(self.damaged("its hash is another"));
                }
                if footer.counts != self.counts {
                    return Err(self.damaged("it has another number of changes than it says"));
                }
                if self.input.read(&mut [0]).map_err(|error| SegmentError::archive(&self.name, error))? > 0 {
                    return Err(self.damaged("something follows its end"));
                }
                self.footer = Some(footer);
                Ok(None)
            }
            _ => Err(self.damaged("a block is none")),
        }
    }

    /// How it ended, once it has.
    pub fn footer(&self) -> Option<&Footer> {
        self.footer.as_ref()
    }

    fn block_after(&mut self, tag: [u8; 4]) -> Result<Block, SegmentError> {
        let mut head = [0; BLOCK_HEAD];
        head[..4].copy_from_slice(&tag);
        self.fill(&mut head[4..])?;
        let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let (stored, raw, records) = (u32_at(4) as usize, u32_at(8) as usize, u32_at(12) as usize);
        // What zstd cannot compress grows by a little.
        if raw > self.block_max || stored > raw + raw / 128 + 512 || records > raw / record::HEAD {
            return Err(self.damaged("a block says that it is too large"));
        }
        let mut bytes = vec![0; stored];
        self.fill(&mut bytes)?;
        if checksum::of_both(&head[..24], &bytes) != u64_at(24) {
            return Err(self.damaged("the checksum of a block does not hold"));
        }
        self.hash.update(&head);
        self.hash.update(&bytes);
        if let Some(decompressor) = &mut self.decompressor {
            let decompressed = decompressor.decompress(&bytes, raw);
            bytes = decompressed.map_err(|error| self.damaged(&error.to_string()))?;
        }
        if bytes.len() != raw {
            return Err(self.damaged("a block has another length than it says"));
        }
        let mut rest = Bytes::from(bytes);
        let mut changes = Vec::with_capacity(records);
        for _ in 0..records {
            let change = record::read(&mut rest).ok_or_else(|| self.damaged("a record is none"))?;
            self.counts.add(&change);
            changes.push(change);
        }
        if !take(&mut rest).is_empty() {
            return Err(self.damaged("a block has more than its records"));
        }
        Ok(Block { changes, read_at: u64_at(16) })
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), SegmentError> {
        read(&self.name, &mut self.input, buffer)
    }

    fn damaged(&self, reason: &str) -> SegmentError {
        SegmentError::damaged(&self.name, reason)
    }
}

fn read(name: &str, input: &mut impl Read, buffer: &mut [u8]) -> Result<(), SegmentError> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => SegmentError::damaged(name, "it is cut short"),
        _ => SegmentError::archive(name, error),
    })
}

fn read_json<T: for<'de> Deserialize<'de>>(
    name: &str,
    input: &mut impl Read,
    hash: Option<&mut Hasher>,
) -> Result<T, SegmentError> {
    let mut length = [0; 4];
    read(name, input, &mut length)?;
    if u32::from_le_bytes(length) > JSON_MAX {
        return Err(SegmentError::damaged(name, "its header or footer is too long"));
    }
    let mut json = vec![0; u32::from_le_bytes(length) as usize];
    read(name, input, &mut json)?;
    let mut sum = [0; 8];
    read(name, input, &mut sum)?;
    if checksum::of(&json) != u64::from_le_bytes(sum) {
        return Err(SegmentError::damaged(name, "the checksum of its header or footer does not hold"));
    }
    if let Some(hash) = hash {
        hash.update(&length);
        hash.update(&json);
        hash.update(&sum);
    }
    serde_json::from_slice(&json).map_err(|error| SegmentError::damaged(name, error.to_string()))
}
