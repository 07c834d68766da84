//! Buffers that direct I/O accepts: their address and length are multiples of 4 KiB. What a device is read into goes to the
//! client's output without a copy in between, so items know this kind of memory.
//!
//! Small ones are kept on a free list of the thread that drops them, so that a read for a request costs no call of the
//! allocator. One of the few places with `unsafe`: the allocation is made by hand, because no owner in the standard library
//! has a larger alignment than its elements.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// What offsets, lengths and addresses of device reads and writes are multiples of, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// Largest buffer that is kept for reuse, in blocks: 32 KiB.
const KEPT_BLOCKS: usize = 8;
/// Most bytes that one thread keeps for reuse: 512 buffers of 4 KiB, more than a worker has reads under way.
const KEPT_BYTES: usize = 2 << 20;

thread_local! {
    static FREE: RefCell<FreeList> = const { RefCell::new(FreeList { lists: [const { Vec::new() }; KEPT_BLOCKS], bytes: 0 }) };
}

/// A buffer whose address and length are multiples of 4 KiB.
pub struct Aligned {
    memory: Memory,
}

impl Aligned {
    /// A buffer of `bytes` zeros.
    ///
    /// # Panics
    /// If `bytes` is 0 or no multiple of 4 KiB.
    pub fn zeroed(bytes: usize) -> Self {
        match take_free(bytes) {
            Some(memory) => {
                let mut buffer = Self { memory };
                buffer.fill(0);
                buffer
            }
            None => Self { memory: Memory::allocate(bytes) },
        }
    }

    /// A buffer of `bytes` that hold whatever its last owner left, for someone who fills all of it.
    ///
    /// # Panics
    /// As [`Aligned::zeroed`].
    pub fn recycled(bytes: usize) -> Self {
        Self { memory: take_free(bytes).unwrap_or_else(|| Memory::allocate(bytes)) }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        // SAFETY: the memory is ours, this long, and was zeroed when it was allocated.
        unsafe { std::slice::from_raw_parts(self.memory.pointer.as_ptr(), self.memory.bytes) }
    }
}

impl DerefMut for Aligned {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.memory.pointer.as_ptr(), self.memory.bytes) }
    }
}

impl Drop for Aligned {
    fn drop(&mut self) {
        // While a thread ends its list may be gone already: then the memory is freed as any other.
        let memory = self.memory;
        let kept = FREE.try_with(|free| free.borrow_mut().keep(memory)).unwrap_or(false);
        if !kept {
            memory.free();
        }
    }
}

impl std::fmt::Debug for Aligned {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Aligned").field("bytes", &self.memory.bytes).finish()
    }
}

// SAFETY: the memory has one owner and is tied to no thread.
unsafe impl Send for Aligned {}
// SAFETY: shared references only read.
unsafe impl Sync for Aligned {}

/// An allocation; the holder of the only used copy owns it.
#[derive(Clone, Copy)]
struct Memory {
    pointer: NonNull<u8>,
    bytes: usize,
}

impl Memory {
    fn layout(bytes: usize) -> Layout {
        assert!(bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES), "{bytes} bytes are no whole number of blocks");
        Layout::from_size_align(bytes, BLOCK_BYTES).expect("a buffer is smaller than the address space")
    }

    fn allocate(bytes: usize) -> Self {
        let layout = Self::layout(bytes);
        // SAFETY: the layout's size is not zero.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        Self { pointer, bytes }
    }

    fn free(self) {
        // SAFETY: it was allocated with this very layout, and its owner gives it up.
        unsafe { dealloc(self.pointer.as_ptr(), Self::layout(self.bytes)) }
    }
}

/// Buffers that wait to be used again, by their size in blocks.
struct FreeList {
    lists: [Vec<Memory>; KEPT_BLOCKS],
    bytes: usize,
}

impl FreeList {
    fn keep(&mut self, memory: Memory) -> bool {
        let blocks = memory.bytes / BLOCK_BYTES;
        if blocks > KEPT_BLOCKS || self.bytes + memory.bytes > KEPT_BYTES {
            return false;
        }
        self.bytes += memory.bytes;
        self.lists[blocks - 1].push(memory);
        true
    }

    fn take(&mut self, bytes: usize) -> Option<Memory> {
        let blocks = bytes / BLOCK_BYTES;
        let memory = self.lists.get_mut(blocks.wrapping_sub(1))?.pop()?;
        self.bytes -= memory.bytes;
        Some(memory)
    }
}

impl Drop for FreeList {
    fn drop(&mut self) {
        self.lists.iter_mut().flat_map(|list| list.drain(..)).for_each(Memory::free);
    }
}

#[inline]
fn take_free(bytes: usize) -> Option<Memory> {
    debug_assert!(bytes.is_multiple_of(BLOCK_BYTES), "{bytes} bytes are no whole number of blocks");
    FREE.try_with(|free| free.borrow_mut().take(bytes)).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_zeroed_even_when_they_were_used_before() {
        for bytes in [4096, 8192, 32768, 36864, 1 << 20] {
            for _ in 0..3 {
                let mut buffer = Aligned::zeroed(bytes);
                assert_eq!(buffer.len(), bytes);
                assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
                assert!(buffer.iter().all(|&byte| byte == 0));
                buffer.fill(0xAA);
            }
        }
    }

    #[test]
    fn a_small_buffer_is_used_again_and_a_large_one_is_not_kept() {
        let first = Aligned::recycled(8192);
        let address = first.as_ptr();
        drop(first);
        let small = Aligned::recycled(4096);
        assert_ne!(small.as_ptr(), address, "of another size");
        assert_eq!(Aligned::recycled(8192).as_ptr(), address);
        drop(Aligned::zeroed(1 << 20));
        FREE.with(|free| assert!(free.borrow().bytes <= KEPT_BYTES));
        assert!(FREE.with(|free| free.borrow().bytes) < 1 << 20);
    }

    #[test]
    fn a_thread_keeps_no_more_than_its_share() {
        let many: Vec<Aligned> = (0..600).map(|_| Aligned::recycled(8192)).collect();
        drop(many);
        assert_eq!(FREE.with(|free| free.borrow().bytes), KEPT_BYTES);
    }

    #[test]
    #[should_panic(expected = "no whole number of blocks")]
    fn a_length_that_is_no_whole_number_of_blocks_is_refused() {
        drop(Aligned::zeroed(4097));
    }
}
