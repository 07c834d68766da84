//! Memory in pages of 64 KiB: what the index and the logs of an engine are made of, so that one number bounds them all.
//!
//! Pages come out of large anonymous maps advised to use huge pages (a random access to a gigabyte of 4 KiB pages misses
//! the TLB nearly every time) and go back to a free list, never to the allocator: no fragmentation, no size classes.
//!
//! This is one of the few places with `unsafe`: a page hands out slices of parts of itself, so that one thread may fill a
//! large value's room while another, under a lock, works elsewhere in the same page.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use memmap2::MmapMut;
use parking_lot::Mutex;

/// Bytes in a page.
pub const PAGE_BYTES: usize = 64 << 10;

/// Bytes mapped at a time. Only what is touched becomes resident.
const CHUNK_BYTES: usize = 32 << 20;

/// Free pages given to the system at a time, so that a thread that needs a page does not wait long.
const GIVE_BACK_BATCH: usize = 64;

/// Where pages come from and go back to.
#[derive(Debug, Default)]
pub struct PagePool {
    state: Mutex<PoolState>,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Keeps the maps alive as long as the pool; never read.
    chunks: Vec<MmapMut>,
    /// Start of the newest chunk, taken once: asking the map again would borrow what pages already own.
    newest: Option<PagePointer>,
    /// Bytes handed out of the newest chunk.
    used_of_newest: usize,
    /// Free, and resident: taken first.
    free: Vec<PagePointer>,
    /// Free, and given back to the system.
    returned: Vec<PagePointer>,
}

#[derive(Debug, Clone, Copy)]
struct PagePointer(NonNull<u8>);

// SAFETY: the pointer is only a name for memory that its holder owns alone; it is tied to no thread.
unsafe impl Send for PagePointer {}

impl PagePool {
    /// An empty pool; it maps memory when pages are taken.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Takes a page. Its bytes are zero if it is new, else whatever its last owner left.
    ///
    /// # Errors
    /// When the system gives no more memory.
    pub fn take(self: &Arc<Self>) -> std::io::Result<Page> {
        let mut state = self.state.lock();
        let free = state.free.pop().or_else(|| state.returned.pop());
        let pointer = match free {
            Some(pointer) => pointer,
            None => state.carve()?,
        };
        Ok(Page { pointer, pool: Arc::clone(self) })
    }

    /// Pages that wait to be taken again.
    pub fn free_pages(&self) -> usize {
        let state = self.state.lock();
        state.free.len() + state.returned.len()
    }

    /// Gives the memory of free pages back to the system: for a limit that has sunk. Else they stay resident, because
    /// they will soon be taken again. The pages stay in the pool, and are zero when they are taken again.
    pub fn give_back(&self) {
        let mut left = self.state.lock().free.len();
        while left > 0 {
            let mut batch = {
                let free = &mut self.state.lock().free;
                let keep = free.len().saturating_sub(GIVE_BACK_BATCH);
                free.split_off(keep)
            };
            left = if batch.is_empty() { 0 } else { left.saturating_sub(batch.len()) };
            // Pages removed from the list belong to this thread alone, so the lock is not held meanwhile.
            batch.sort_unstable_by_key(|page| page.0);
            for run in batch.chunk_by(|page, next| page.0.addr().get() + PAGE_BYTES == next.0.addr().get()) {
                discard(run);
            }
            self.state.lock().returned.append(&mut batch);
        }
    }
}

/// Releases the memory of a run of adjacent free pages; it is zero when next touched.
fn discard(run: &[PagePointer]) {
    let Some(first) = run.first() else { return };
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the range lies in a private anonymous map of the pool, and nothing refers to its bytes: its pages are in no
    // list and not taken.
    let _ = unsafe {
        // If the system refuses, the memory stays resident, and that is all.
        rustix::mm::madvise(first.0.as_ptr().cast(), run.len() * PAGE_BYTES, rustix::mm::Advice::LinuxDontNeed)
    };
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = first;
}

impl PoolState {
    fn carve(&mut self) -> std::io::Result<PagePointer> {
        let newest = match self.newest {
            Some(newest) if self.used_of_newest + PAGE_BYTES <= CHUNK_BYTES => newest,
            _ => self.map_chunk()?,
        };
        // SAFETY: `used_of_newest + PAGE_BYTES <= CHUNK_BYTES`, so the offset stays inside the map.
        let pointer = unsafe { newest.0.add(self.used_of_newest) };
        self.used_of_newest += PAGE_BYTES;
        Ok(PagePointer(pointer))
    }

    fn map_chunk(&mut self) -> std::io::Result<PagePointer> {
        let mut chunk = MmapMut::map_anon(CHUNK_BYTES)?;
        // Without huge pages it is slower, not wrong: a kernel without them refuses, and that is fine.
        #[cfg(all(target_os = "linux", not(miri)))]
        let _ = chunk.advise(memmap2::Advice::HugePage);
        let start = PagePointer(NonNull::new(chunk.as_mut_ptr()).ok_or(std::io::ErrorKind::OutOfMemory)?);
        self.chunks.push(chunk);
        self.newest = Some(start);
        self.used_of_newest = 0;
        Ok(start)
    }
}

/// One page, owned. Dropping it gives it back.
#[derive(Debug)]
pub struct Page {
    pointer: PagePointer,
    pool: Arc<PagePool>,
}

// SAFETY: a page owns its memory; shared access through `&Page` only reads.
unsafe impl Sync for Page {}

impl Drop for Page {
    fn drop(&mut self) {
        self.pool.state.lock().free.push(self.pointer);
    }
}

impl Page {
    /// The bytes of `range`.
    ///
    /// # Panics
    /// If the range reaches out of the page.
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> &[u8] {
        assert!(range.start <= range.end && range.end <= PAGE_BYTES);
        // SAFETY: in bounds by the assertion; the memory is initialised (anonymous maps are zero) and lives as long as the
        // pool, which `self` keeps alive; only this page's owner can write it, and not while `&self` is borrowed, except
        // through `parts` to disjoint ranges.
        unsafe { std::slice::from_raw_parts(self.pointer.0.as_ptr().add(range.start), range.end - range.start) }
    }

    /// The bytes of `range`, to write.
    ///
    /// # Panics
    /// If the range reaches out of the page.
    #[inline]
    pub fn slice_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        assert!(range.start <= range.end && range.end <= PAGE_BYTES);
        // SAFETY: as in `slice`, with `&mut self` for exclusivity.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.0.as_ptr().add(range.start), range.end - range.start) }
    }

    /// The page as 64-bit words in memory order.
    #[inline]
    pub fn words(&self) -> &[u64; PAGE_BYTES / 8] {
        // SAFETY: pages start at a multiple of 64 KiB within a map that starts at a page of the system, so they are
        // aligned for u64; every bit pattern is a u64.
        unsafe { &*self.pointer.0.as_ptr().cast() }
    }

    /// The page as 64-bit words in memory order, to write.
    #[inline]
    pub fn words_mut(&mut self) -> &mut [u64; PAGE_BYTES / 8] {
        // SAFETY: as in `words`, with `&mut self` for exclusivity.
        unsafe { &mut *self.pointer.0.as_ptr().cast() }
    }

    /// A part of the page that can be read or filled without the page's lock. Making one is safe, using it is not: see
    /// its methods.
    ///
    /// # Panics
    /// If the range reaches out of the page.
    pub fn part(&self, range: Range<usize>) -> Part {
        assert!(range.start <= range.end && range.end <= PAGE_BYTES);
        // SAFETY: in bounds by the assertion.
        let pointer = unsafe { self.pointer.0.add(range.start) };
        Part { pointer, length: range.end - range.start }
    }

    /// Asks the processor for the three cache lines from `offset` on: a small record, whole. Any offset is allowed; one outside
    /// does nothing useful.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        prefetch(self.pointer.0.as_ptr().wrapping_add(offset));
        prefetch(self.pointer.0.as_ptr().wrapping_add(offset + 64));
        prefetch(self.pointer.0.as_ptr().wrapping_add(offset + 128));
    }

    /// Fills the page with zeros.
    pub fn zero(&mut self) {
        self.words_mut().fill(0);
    }
}

/// Asks the processor for the cache line at an address, which need not be valid.
#[inline]
pub fn prefetch<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address is harmless.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(line.cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = line;
}

/// A range of a page, used without the lock that guards the page.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    pointer: NonNull<u8>,
    length: usize,
}

// SAFETY: a pointer and a length; what may be done with them is on the callers of the unsafe methods.
unsafe impl Send for Part {}

impl Part {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A range of the range.
    ///
    /// # Panics
    /// If it reaches out of it.
    pub fn sub(&self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.length);
        // SAFETY: in bounds by the assertion.
        let pointer = unsafe { self.pointer.add(range.start) };
        Self { pointer, length: range.end - range.start }
    }

    /// The bytes.
    ///
    /// # Safety
    /// The page must stay taken, and no thread may write this range, as long as the slice is used.
    pub unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        // SAFETY: by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.pointer.as_ptr(), self.length) }
    }

    /// Fills the range with `bytes`.
    ///
    /// # Safety
    /// The page must stay taken, and no other thread may read or write this range meanwhile.
    ///
    /// # Panics
    /// If the lengths differ.
    pub unsafe fn fill(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.length);
        // SAFETY: lengths are equal, and by the caller's promise the range is ours alone.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.pointer.as_ptr(), self.length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pages; a dozen times as many take more than one map. Miri takes a second for a page.
    const MANY: usize = if cfg!(miri) { 1 } else { 100 };

    #[test]
    fn a_page_given_back_is_taken_again() {
        let pool = PagePool::new();
        let mut page = pool.take().expect("memory");
        page.slice_mut(0..3).copy_from_slice(b"abc");
        drop(page);
        assert_eq!(pool.free_pages(), 1);
        let page = pool.take().expect("memory");
        assert_eq!(page.slice(0..3), b"abc");
        assert_eq!(pool.free_pages(), 0);
    }

    #[test]
    fn memory_given_back_is_zero_and_taken_again() {
        let pool = PagePool::new();
        let mut pages: Vec<Page> = (0..2 * MANY).map(|_| pool.take().expect("memory")).collect();
        pages.iter_mut().for_each(|page| page.words_mut().fill(u64::MAX));
        let kept = pages.split_off(MANY);
        drop(pages);
        pool.give_back();
        assert_eq!(pool.free_pages(), MANY);
        assert!(kept.iter().all(|page| page.words().iter().all(|&word| word == u64::MAX)));
        let again: Vec<Page> = (0..MANY).map(|_| pool.take().expect("memory")).collect();
        if cfg!(all(target_os = "linux", not(miri))) {
            assert!(again.iter().all(|page| page.words().iter().all(|&word| word == 0)));
        }
        assert_eq!(pool.free_pages(), 0);
    }

    #[test]
    fn pages_do_not_overlap() {
        let pool = PagePool::new();
        let mut pages: Vec<Page> = (0..12 * MANY).map(|_| pool.take().expect("memory")).collect();
        for (number, page) in pages.iter_mut().enumerate() {
            page.words_mut().fill(number as u64);
        }
        for (number, page) in pages.iter().enumerate() {
            let step = if cfg!(miri) { 997 } else { 1 };
            assert!(page.words().iter().step_by(step).all(|&word| word == number as u64));
        }
    }

    #[test]
    #[should_panic]
    fn a_range_out_of_the_page_is_refused() {
        let pool = PagePool::new();
        let page = pool.take().expect("memory");
        let _ = page.slice(PAGE_BYTES - 1..PAGE_BYTES + 1);
    }
}
