//! Empties the kernel's page cache, so that what is read next comes from the disk.

use moneta_bench::{BenchError, Result};

const DROP: &str = "/proc/sys/vm/drop_caches";

/// Writes dirty pages back and drops all clean ones, directory entries and inodes included: `3` of proc_sys_vm(5).
///
/// # Errors
/// [`BenchError::System`] without the right to, which is root's.
pub fn drop_all() -> Result<()> {
    nix::unistd::sync();
    std::fs::write(DROP, "3").map_err(|error| {
        let what = format!("drop the page cache through {DROP} (run as root, or give --keep-page-cache)");
        BenchError::system(what, error)
    })
}
