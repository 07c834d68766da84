//! What a tier shall be: its devices, and how they are opened and read.

use std::path::PathBuf;

/// A place for regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// A directory, in which the file `moneta.flash` is created; a file, created if missing; or a block device.
    pub path: PathBuf,
    /// Bytes to use, everything included.
    pub bytes: u64,
}

/// A tier to open or to create.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// Where regions lie, at least one.
    pub devices: Vec<DeviceConfig>,
    /// Bytes of a region: a multiple of 4 KiB. A tier keeps the size it was created with.
    pub region_bytes: usize,
    /// Fewest bytes of a region with which an existing tier may be kept although its regions have another size. `None`: such a
    /// tier is not kept.
    pub region_bytes_kept: Option<u64>,
    /// Whether to start empty if the tier on the devices cannot be kept: one of its devices is missing, or smaller than before.
    /// Otherwise opening fails. A tier that can be kept is kept in either case.
    pub start_empty: bool,
    /// Whether to bypass the page cache (`O_DIRECT`) where the file system supports that.
    pub direct: bool,
}

/// How requests read devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// io_uring where the kernel allows it, else threads.
    Auto,
    /// io_uring, or refuse to start.
    Uring,
    /// A pool of threads.
    Threads,
}
