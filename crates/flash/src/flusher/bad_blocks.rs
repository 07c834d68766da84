//! Blocks that the device does not take.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;

use rustix::io::Errno;

use moneta_device::format::BLOCK;

/// Bad blocks of a region that are told apart. With more of them all of it is taken for bad.
const BLOCKS_MAX: usize = 16;

/// Whether a failed write may be the fault of a block, rather than of the device or its file system.
pub(super) fn is_of_block(error: &io::Error) -> bool {
    let of_block = [Errno::IO, Errno::NODATA, Errno::ILSEQ, Errno::REMOTEIO];
    Errno::from_io_error(error).is_some_and(|errno| of_block.contains(&errno))
}

/// Blocks of a region that the device does not take.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadBlocks {
    /// Their offsets in the region.
    offsets: BTreeSet<usize>,
    /// So many, or both ends, without which a restart does not find the region.
    all: bool,
}

impl BadBlocks {
    pub(super) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Whether a part of the region touches any of them.
    pub(crate) fn touch(&self, part: Range<usize>) -> bool {
        self.all || self.offsets.range(part.start / BLOCK * BLOCK..part.end).next().is_some()
    }

    /// Notes the block at an offset of a region that is so long.
    pub(super) fn note(&mut self, offset: usize, region_bytes: usize) {
        self.offsets.insert(offset);
        let are_ends = [0, region_bytes - BLOCK].iter().all(|end| self.offsets.contains(end));
        self.all |= are_ends || self.offsets.len() > BLOCKS_MAX;
    }
}
