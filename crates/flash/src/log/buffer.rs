//! The memory of a region that is being filled or written.
//!
//! One thread at a time appends, under its group's lock; others read published bytes without a lock. The `unsafe` here rests
//! on one rule: bytes below `published` never change again, bytes above it belong to the appender.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use memmap2::MmapMut;
use parking_lot::Mutex;

/// A region in RAM.
pub(crate) struct Buffer {
    start: *mut u8,
    length: usize,
    /// Bytes from the start that readers may see and that never change again.
    published: AtomicUsize,
    /// Bytes from the start that were written to the device, in whole blocks. Only the flusher changes this and the next two.
    written: AtomicUsize,
    /// Bytes from the start that were written to the device, the last block as far as it was filled.
    covered: AtomicUsize,
    /// Bytes from the start, in whole blocks, that have been synced.
    synced: AtomicUsize,
    /// The region was removed by `flush_all`: the contents need not be written.
    discarded: AtomicBool,
    /// Keeps the memory.
    map: Option<MmapMut>,
    pool: Arc<BufferPool>,
}

// SAFETY: the pointer is to memory that the buffer owns; each function states which part may be accessed by which thread.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Writes after everything published. Readers see the bytes after [`Buffer::publish`].
    ///
    /// # Safety
    /// The caller is the only one to append to this buffer now, and `offset` is not below what is published.
    pub(crate) unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset >= self.published.load(Ordering::Relaxed) && offset + bytes.len() <= self.length);
        // SAFETY: inside the map by the assertion; no thread reads beyond `published`, and only the caller writes there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(offset), bytes.len()) };
    }

    /// Makes everything up to `end` readable.
    pub(crate) fn publish(&self, end: usize) {
        debug_assert!(end >= self.published.load(Ordering::Relaxed) && end <= self.length);
        self.published.store(end, Ordering::Release);
    }

    /// Everything published so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        let end = self.published.load(Ordering::Acquire);
        // SAFETY: these bytes were written before they were published and are never written again while the buffer is out
        // of the pool.
        unsafe { std::slice::from_raw_parts(self.start, end) }
    }

    /// Part of what is published.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes()[range]
    }

    /// Bytes from the start that were written to the device, in whole blocks.
    pub(crate) fn written(&self) -> usize {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether everything up to `end` was written to the device.
    pub(crate) fn is_covered(&self, end: usize) -> bool {
        self.covered.load(Ordering::Relaxed) >= end
    }

    /// Notes that whole blocks up to `written`, and bytes up to `covered`, were written to the device.
    pub(crate) fn note_written(&self, written: usize, covered: usize) {
        self.written.store(written, Ordering::Relaxed);
        self.covered.store(covered, Ordering::Relaxed);
    }

    /// Marks all written bytes as synced.
    pub(crate) fn note_synced(&self) {
        self.synced.store(self.written(), Ordering::Relaxed);
    }

    /// After a failed sync: everything written since the last good sync has to be written again.
    pub(crate) fn distrust(&self) {
        let synced = self.synced.load(Ordering::Relaxed);
        self.note_written(synced, synced);
    }

    /// All of it has to be written again, whatever was synced.
    pub(crate) fn distrust_all(&self) {
        self.synced.store(0, Ordering::Relaxed);
        self.distrust();
    }

    pub(crate) fn discard(&self) {
        self.discarded.store(true, Ordering::Release);
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.discarded.load(Ordering::Acquire)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(map) = self.map.take() {
            self.pool.free.lock().push(map);
            self.pool.out.fetch_sub(1, Ordering::Release);
        }
    }
}

/// A pool of buffers, which bounds how many are in use at once.
#[derive(Debug)]
pub(crate) struct BufferPool {
    bytes: usize,
    most: usize,
    out: AtomicUsize,
    made: AtomicUsize,
    // Held for a push or a pop.
    free: Mutex<Vec<MmapMut>>,
}

impl BufferPool {
    /// A pool of up to `most` buffers of `bytes` bytes, made when they are first needed.
    pub(crate) fn new(bytes: usize, most: usize) -> Arc<Self> {
        Arc::new(Self { bytes, most, out: AtomicUsize::new(0), made: AtomicUsize::new(0), free: Mutex::default() })
    }

    /// A buffer; `None` if no more than `reserve` are left, or the system has no memory.
    pub(crate) fn take(self: &Arc<Self>, reserve: usize) -> Option<Arc<Buffer>> {
        let taken = |out: usize| (out + reserve < self.most).then_some(out + 1);
        self.out.fetch_update(Ordering::Acquire, Ordering::Relaxed, taken).ok()?;
        let reused = self.free.lock().pop();
        let map = reused.or_else(|| {
            let map = MmapMut::map_anon(self.bytes).ok()?;
            self.made.fetch_add(1, Ordering::Relaxed);
            Some(map)
        });
        let Some(mut map) = map else {
            self.out.fetch_sub(1, Ordering::Release);
            return None;
        };
        Some(Arc::new(Buffer {
            start: map.as_mut_ptr(),
            length: self.bytes,
            published: AtomicUsize::new(0),
            written: AtomicUsize::new(0),
            covered: AtomicUsize::new(0),
            synced: AtomicUsize::new(0),
            discarded: AtomicBool::new(false),
            map: Some(map),
            pool: Arc::clone(self),
        }))
    }

    /// Bytes of all buffers made so far.
    pub(crate) fn memory(&self) -> usize {
        self.made.load(Ordering::Relaxed) * self.bytes
    }
}
