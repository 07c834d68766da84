//! Parts of the keys of which a node may lack any write up to a version, where more was missed than hints are kept for.
//!
//! The keys are divided into buckets by a hash that is the same in every process; each has the newest version that was missed
//! there. What the node shows of such a key below that version is not believed while another copy answers for it
//! (docs/decisions/15-doubt.md).

use moneta_store::Version;

/// In the hash of a key, the bits that number its bucket: the highest.
pub(crate) const BUCKET_BITS: u32 = 12;
const BUCKETS: usize = 1 << BUCKET_BITS;
/// Begins the file of a node's doubt.
const MAGIC: &[u8; 8] = b"MONDOUBT";
/// Bytes of the magic and of the CRC-32 of the rest; and of a bucket.
const HEAD: usize = 12;
const BUCKET: usize = 10;

/// Where a key is in the space that buckets divide.
pub(crate) fn place(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The newest version missed in each bucket: 32 KiB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Doubt {
    versions: Box<[Version]>,
    /// Buckets in doubt.
    count: usize,
}

impl Default for Doubt {
    fn default() -> Self {
        Self { versions: vec![Version::ZERO; BUCKETS].into(), count: 0 }
    }
}

impl Doubt {
    /// All keys, up to this version.
    pub(crate) fn of_all(version: Version) -> Self {
        Self { versions: vec![version; BUCKETS].into(), count: BUCKETS }
    }

    /// A write of the key at this place was missed. True if that was not known.
    pub(crate) fn mark(&mut self, place: u64, version: Version) -> bool {
        self.raise((place >> (64 - BUCKET_BITS)) as usize, version)
    }

    pub(super) fn raise(&mut self, bucket: usize, version: Version) -> bool {
        let known = &mut self.versions[bucket];
        let is_new = version > *known;
        if is_new {
            self.count += usize::from(*known == Version::ZERO);
            *known = version;
        }
        is_new
    }

    /// Both.
    pub(crate) fn add(&mut self, other: &Self) {
        for (bucket, version) in other.marks() {
            self.raise(bucket as usize, version);
        }
    }

    /// Up to which version the key at this place may have been missed.
    pub(crate) fn version(&self, place: u64) -> Version {
        self.versions[(place >> (64 - BUCKET_BITS)) as usize]
    }

    /// Takes out what is no newer than `checked` has, in all buckets but those in `keeps`.
    pub(crate) fn settle(&mut self, checked: &Self, keeps: &[bool]) {
        for ((known, checked), keeps) in self.versions.iter_mut().zip(&checked.versions).zip(keeps) {
            if !keeps && *known != Version::ZERO && *known <= *checked {
                *known = Version::ZERO;
                self.count -= 1;
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The share of all keys.
    pub(crate) fn share(&self) -> f64 {
        self.count as f64 / BUCKETS as f64
    }

    /// A flag for each bucket.
    pub(crate) fn flags() -> Vec<bool> {
        vec![false; BUCKETS]
    }

    /// The bucket of a place.
    pub(crate) fn bucket(place: u64) -> usize {
        (place >> (64 - BUCKET_BITS)) as usize
    }

    /// The buckets in doubt and their versions.
    pub(crate) fn marks(&self) -> impl Iterator<Item = (u32, Version)> {
        (0..)
            .zip(&self.versions)
            .filter(|(_, version)| **version > Version::ZERO)
            .map(|(bucket, version)| (bucket, *version))
    }

    /// For a file: `MONDOUBT | CRC-32 of the rest u32 | bucket u16, version u64 | …`, little-endian.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut file = [&MAGIC[..], &[0; 4]].concat();
        for (bucket, version) in self.marks() {
            file.extend_from_slice(&(bucket as u16).to_le_bytes());
            file.extend_from_slice(&version.0.to_le_bytes());
        }
        let check = crc32fast::hash(&file[HEAD..]);
        file[8..HEAD].copy_from_slice(&check.to_le_bytes());
        file
    }

    /// What a file says. `None`: it is damaged.
    pub(super) fn decode(file: &[u8]) -> Option<Self> {
        let rest = file.strip_prefix(MAGIC)?;
        let (check, rest) = rest.split_first_chunk::<4>()?;
        if crc32fast::hash(rest) != u32::from_le_bytes(*check) || !rest.len().is_multiple_of(BUCKET) {
            return None;
        }
        let mut doubt = Self::default();
        for bucket in rest.chunks(BUCKET) {
            let (number, version) = bucket.split_first_chunk::<2>()?;
            let number = usize::from(u16::from_le_bytes(*number));
            let version = Version(u64::from_le_bytes(version.try_into().ok()?));
            if number >= BUCKETS {
                return None;
            }
            doubt.raise(number, version);
        }
        Some(doubt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_in_doubt_until_it_was_checked_up_to_its_version() {
        let mut doubt = Doubt::default();
        let (one, other) = (place(b"one"), place(b"other"));
        assert_ne!(Doubt::bucket(one), Doubt::bucket(other));
        assert!(doubt.mark(one, Version(5)) && !doubt.mark(one, Version(4)) && doubt.mark(other, Version(7)));
        let checked = doubt.clone();
        doubt.mark(one, Version(6));
        assert_eq!(doubt.version(one), Version(6));
        doubt.settle(&checked, &Doubt::flags());
        assert_eq!((doubt.version(one), doubt.version(other)), (Version(6), Version::ZERO));
        let checked = doubt.clone();
        let mut keeps = Doubt::flags();
        keeps[Doubt::bucket(one)] = true;
        doubt.settle(&checked, &keeps);
        assert!(!doubt.is_empty(), "not all of its keys could be checked");
        doubt.settle(&checked, &Doubt::flags());
        assert!(doubt.is_empty() && doubt == Doubt::default());
    }

    #[test]
    fn a_file_is_read_as_it_was_written_or_not_at_all() {
        let mut doubt = Doubt::default();
        for key in 0..300u64 {
            doubt.mark(place(&key.to_le_bytes()), Version(key + 1));
        }
        let file = doubt.encode();
        assert_eq!(Doubt::decode(&file).as_ref(), Some(&doubt));
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 16;
            assert_eq!(Doubt::decode(&damaged), None, "byte {at}");
            assert_eq!(Doubt::decode(&file[..at]), None, "{at} bytes");
        }
        let all = Doubt::of_all(Version(9));
        assert_eq!(Doubt::decode(&all.encode()), Some(all));
    }
}
