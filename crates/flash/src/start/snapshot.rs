//! The snapshot of the index that a clean stop writes, so that the next start need not read footers.
//!
//! ```text
//!   0  magic "MONETASN"
//!   8  version u16, 0 u16, regions u32
//!  16  identity, the one that superblocks name
//!  24  layout of the devices
//!  32  shards u32, 0 u32
//!  40  regions, 80 bytes each:  sequence u64, base u64, expiry min u32, max u32, behind u64, last u64,
//!                               end of records u32, records u32, begun u64, ended u64, greatest version u64,
//!                               key of its records' checksums u64
//!      where records begin: u16 for each block
//!      the index of each shard
//!      buckets of keys evicted from the index: their number u64, then for each
//!      hash of a key in it u64, sequence number of the newest region u64
//!      XXH3-64 of all bytes before
//! ```
//!
//! A snapshot is a file next to the first device's. It is valid only while the superblocks name it, and they stop naming it
//! before the first request is served: after a crash the next start finds none and reads footers. Snapshots of earlier
//! versions are ignored.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_index::Index;

use crate::index::location::TAG_BITS;
use crate::index::shard::{Room, Shard};
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use moneta_device::devices::TierState;
use moneta_device::format::VERSION;
use moneta_device::format::footer::{Span, Summary};
use moneta_device::format::hash::Running;
use moneta_device::format::integers::{u16_at, u32_at, u64_at};

const MAGIC: [u8; 8] = *b"MONETASN";
const HEAD_BYTES: usize = 40;
const REGION_BYTES: usize = 80;
/// Bytes moved between file and memory at once.
const IO_BYTES: usize = 1 << 20;

/// Loads the snapshot that the superblocks name. False, with nothing changed, if there is none or it does not match.
pub(crate) fn load(inner: &Inner) -> bool {
    let named = inner.devices.state().clean_stop;
    let Some(path) = inner.devices.snapshot_path().filter(|_| named != 0) else { return false };
    match read(inner, &path, named) {
        Ok(image) => {
            image.put(inner);
            true
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the index snapshot is not taken; footers are read instead");
            false
        }
    }
}

/// Removes the snapshot, which no superblock names any more.
pub(crate) fn remove(inner: &Inner) {
    if let Some(path) = inner.devices.snapshot_path() {
        let _ = std::fs::remove_file(path);
    }
}

/// Saves the index for the next start. The tier must be at rest, with all regions written.
pub(crate) fn save(inner: &Inner) {
    let Some(path) = inner.devices.snapshot_path() else { return };
    let identity = inner.log.sequence.next().0.max(1);
    // All numbers that were given out are known, so that the next run need not skip any.
    let region_floor = inner.regions.upcoming_sequence() - 1;
    let state = inner.devices.state();
    let sequence_floor = inner.log.sequence.last_floor().unwrap_or(state.sequence_floor);
    let state = TierState { clean_stop: identity, region_floor, sequence_floor, ..state };
    let saved = write(inner, &path, identity).and_then(|()| inner.devices.save(&state));
    if let Err(error) = saved {
        tracing::warn!(path = %path.display(), %error, "no index snapshot is kept; the next start reads footers");
        let _ = std::fs::remove_file(path);
    }
}

/// Hashes what passes.
struct Hashed<T> {
    inner: T,
    hasher: Running,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.add(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(bytes)?;
        self.hasher.add(&bytes[..read]);
        Ok(read)
    }
}

fn write(inner: &Inner, path: &Path, identity: u64) -> io::Result<()> {
    let file = File::create(path)?;
    let mut out = Hashed { inner: BufWriter::with_capacity(IO_BYTES, &file), hasher: Running::new() };
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..10].copy_from_slice(&VERSION.to_le_bytes());
    head[12..16].copy_from_slice(&(inner.regions.len() as u32).to_le_bytes());
    head[16..24].copy_from_slice(&identity.to_le_bytes());
    head[24..32].copy_from_slice(&inner.devices.layout().to_le_bytes());
    head[32..36].copy_from_slice(&(inner.shard_count() as u32).to_le_bytes());
    out.write_all(&head)?;
    for (_, region) in inner.regions.iter() {
        let mut bytes = [0; REGION_BYTES];
        let (summary, span) = (region.summary(), region.span());
        bytes[..8].copy_from_slice(&region.sequence().to_le_bytes());
        bytes[8..16].copy_from_slice(&region.base().to_le_bytes());
        bytes[16..20].copy_from_slice(&summary.expiry_min.to_le_bytes());
        bytes[20..24].copy_from_slice(&summary.expiry_max.to_le_bytes());
        bytes[24..32].copy_from_slice(&summary.behind.to_le_bytes());
        bytes[32..40].copy_from_slice(&summary.last.to_le_bytes());
        bytes[40..44].copy_from_slice(&region.records_end().to_le_bytes());
        bytes[44..48].copy_from_slice(&region.records().to_le_bytes());
        bytes[48..56].copy_from_slice(&span.begun.to_le_bytes());
        bytes[56..64].copy_from_slice(&span.ended.to_le_bytes());
        bytes[64..72].copy_from_slice(&span.version.to_le_bytes());
        bytes[72..].copy_from_slice(&region.salt().to_le_bytes());
        out.write_all(&bytes)?;
    }
    for first in inner.regions.firsts() {
        out.write_all(&first.load(Ordering::Relaxed).to_le_bytes())?;
    }
    for shard in inner.shards() {
        shard.lock().index.save(&mut out)?;
    }
    let evicted: Vec<_> = inner.log.forgotten.all_evicted().collect();
    out.write_all(&(evicted.len() as u64).to_le_bytes())?;
    for number in evicted.into_iter().flat_map(|(hash, sequence)| [hash, sequence]) {
        out.write_all(&number.to_le_bytes())?;
    }
    let hash = out.hasher.finish();
    out.inner.write_all(&hash.to_le_bytes())?;
    out.inner.flush()?;
    drop(out);
    file.sync_all()
}

/// A snapshot in memory, checked.
struct Image {
    regions: Vec<[u8; REGION_BYTES]>,
    firsts: Vec<u16>,
    shards: Vec<Shard>,
    /// Hashes of evicted keys, one for each bucket, and the newest region.
    evicted: Vec<(u64, u64)>,
}

fn read(inner: &Inner, path: &Path, identity: u64) -> io::Result<Image> {
    let unfit = |why: &'static str| io::Error::new(io::ErrorKind::InvalidData, why);
    let file = BufReader::with_capacity(IO_BYTES, File::open(path)?);
    let mut input = Hashed { inner: file, hasher: Running::new() };
    let mut head = [0; HEAD_BYTES];
    input.read_exact(&mut head)?;
    let fits = head[..8] == MAGIC
        && u16_at(&head, 8) == VERSION
        && u32_at(&head, 12) as usize == inner.regions.len()
        && u64_at(&head, 16) == identity
        && u64_at(&head, 24) == inner.devices.layout()
        && u32_at(&head, 32) as usize == inner.shard_count();
    if !fits {
        return Err(unfit("it is not of this tier's last stop"));
    }
    let mut regions = vec![[0; REGION_BYTES]; inner.regions.len()];
    regions.iter_mut().try_for_each(|region| input.read_exact(region))?;
    let mut bytes = vec![0; inner.regions.firsts().len() * size_of::<u16>()];
    input.read_exact(&mut bytes)?;
    let firsts = bytes.chunks_exact(2).map(|bytes| u16_at(bytes, 0)).collect();
    let room = Room::new(inner.config.index_bytes, inner.shard_count());
    let shards = (0..inner.shard_count())
        .map(|_| Ok(Shard::with(Index::<TAG_BITS>::load(&mut input, || room.take())?, Arc::clone(&room))))
        .collect::<io::Result<Vec<_>>>()?;
    let mut number = || {
        let mut bytes = [0; 8];
        input.read_exact(&mut bytes).map(|()| u64::from_le_bytes(bytes))
    };
    let buckets = number()?;
    let evicted = (0..buckets).map(|_| Ok((number()?, number()?))).collect::<io::Result<Vec<_>>>()?;
    let hash = input.hasher.finish();
    let mut expected = [0; 8];
    input.inner.read_exact(&mut expected)?;
    if u64::from_le_bytes(expected) != hash {
        return Err(unfit("its checksum does not fit"));
    }
    Ok(Image { regions, firsts, shards, evicted })
}

impl Image {
    fn put(self, inner: &Inner) {
        for (number, bytes) in self.regions.iter().enumerate() {
            let region = inner.regions.get(number);
            let sequence = u64_at(bytes, 0);
            if sequence == 0 {
                inner.regions.give_back(number);
                continue;
            }
            region.begin(sequence, u64_at(bytes, 8), u64_at(bytes, 72), RegionStage::Closed);
            region.set_summary(Summary {
                expiry_min: u32_at(bytes, 16),
                expiry_max: u32_at(bytes, 20),
                behind: u64_at(bytes, 24),
                last: u64_at(bytes, 32),
            });
            region.set_extent(u32_at(bytes, 40), u32_at(bytes, 44));
            region.set_span(Span { begun: u64_at(bytes, 48), ended: u64_at(bytes, 56), version: u64_at(bytes, 64) });
        }
        for (slot, first) in inner.regions.firsts().iter().zip(self.firsts) {
            slot.store(first, Ordering::Relaxed);
        }
        for (slot, shard) in inner.shards().zip(self.shards) {
            *slot.lock() = shard;
        }
        for (hash, sequence) in self.evicted {
            inner.log.forgotten.note_evicted(hash, sequence);
        }
    }
}
