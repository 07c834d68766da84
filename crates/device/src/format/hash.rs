//! The hash of all on-disk structures: XXH3-64.
//!
//! A read for a request hashes about 2 KiB, a tenth of its instructions. twox-hash chooses the widest vector instructions at run
//! time; other implementations choose at compile time, and builds are for any x86-64.

use std::hash::Hasher;

use smallvec::SmallVec;
use twox_hash::XxHash3_64;

/// Runs of up to this many bytes in total are copied into one before hashing. Incremental hashing costs as much as copying
/// about 10 KiB; the stack limits this buffer to less.
const GATHERED: usize = 2048;

/// Hash of one run of bytes.
#[inline]
pub fn hash(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The same with a seed.
pub fn hash_with_seed(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The hash of the concatenated runs.
pub fn hash_of_runs(runs: &[&[u8]]) -> u64 {
    if runs.iter().map(|run| run.len()).sum::<usize>() <= GATHERED {
        let mut bytes = SmallVec::<[u8; GATHERED]>::new();
        runs.iter().for_each(|run| bytes.extend_from_slice(run));
        return hash(&bytes);
    }
    let mut hasher = Running::new();
    runs.iter().for_each(|run| hasher.add(run));
    hasher.finish()
}

/// An incremental hash.
#[derive(Clone, Default)]
pub struct Running(XxHash3_64);

impl std::fmt::Debug for Running {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Running").field(&self.finish()).finish()
    }
}

impl Running {
    /// The hash of nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds bytes after those that were added.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The hash of all that was added.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_disk_depends_on_these_values() {
        let bytes: Vec<u8> = (0..5000u32).map(|n| (n * 7) as u8).collect();
        // One length for each code path of the algorithm.
        let expected = [
            (0, 0x2d06800538d394c2),
            (1, 0xc44bdff4074eecdb),
            (8, 0xb88dee77f6bf6980),
            (14, 0x09fdc2096199fca4),
            (32, 0x99cb9ad0f1a11fbe),
            (100, 0x6dbb812cf19d012e),
            (200, 0x7c64f3b17285e96a),
            (1030, 0xdb8dfc894bcbd3c5),
            (5000, 0x6abe8be5abcb2760),
        ];
        for (length, expected) in expected {
            assert_eq!(hash(&bytes[..length]), expected, "{length} bytes");
        }
        assert_eq!(hash_with_seed(&bytes[..8], 42), 0x7b954fc823483166);
    }

    #[test]
    fn bytes_in_runs_hash_as_in_one() {
        let bytes: Vec<u8> = (0..9000u32).map(|n| (n * 7) as u8).collect();
        for length in [0, 1, 40, 300, 2047, 2048, 2049, 9000] {
            for cut in [0, length / 3, length] {
                let runs = [&bytes[..cut], &bytes[cut..length], &[]];
                assert_eq!(hash_of_runs(&runs), hash(&bytes[..length]), "{length} bytes cut at {cut}");
            }
        }
    }
}
