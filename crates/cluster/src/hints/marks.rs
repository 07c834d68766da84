//! What a process tells others of the writes that a node lacks: places of keys, or parts of all keys, each with the newest
//! version missed there.

use moneta_store::Version;

use super::doubt::BUCKET_BITS;
use super::doubt::Doubt;

/// Bits of the number of a part that tells keys apart, and of a part that many marks are folded into.
const FINE: u32 = 32;
const COARSE: u32 = 8;
/// Bytes of an encoded list before its marks, and of a mark.
const HEAD: usize = 3;
const MARK: usize = 12;

/// Parts of all keys, numbered by the highest bits of their places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Marks {
    bits: u32,
    /// By part.
    versions: Box<[(u32, Version)]>,
}

/// Places of keys that become marks: no more are kept than there may be marks, however many hints there are.
pub(crate) struct Places {
    marks_max: usize,
    /// By part, [`FINE`]; of more than `marks_max` this is empty.
    fine: Vec<(u32, Version)>,
    /// The newest by coarse part, once there are more.
    coarse: Option<Box<[Version]>>,
}

impl Places {
    pub(crate) fn new(marks_max: usize) -> Self {
        Self { marks_max, fine: Vec::new(), coarse: None }
    }

    pub(crate) fn add(&mut self, place: u64, version: Version) {
        let fine = (place >> (64 - FINE)) as u32;
        if self.coarse.is_none() && self.fine.len() < self.marks_max {
            return self.fine.push((fine, version));
        }
        let coarse = self.coarse.get_or_insert_with(|| vec![Version::ZERO; 1 << COARSE].into());
        for (part, version) in self.fine.drain(..).chain([(fine, version)]) {
            let newest = &mut coarse[(part >> (FINE - COARSE)) as usize];
            *newest = version.max(*newest);
        }
    }

    /// `None`: there are no places.
    pub(crate) fn marks(self) -> Option<Marks> {
        match self.coarse {
            None => (!self.fine.is_empty()).then(|| Marks::folded(FINE, self.fine, self.marks_max)),
            Some(coarse) => {
                let marks = (0..).zip(coarse).filter(|(_, version)| *version > Version::ZERO);
                Some(Marks::folded(COARSE, marks.collect(), self.marks_max))
            }
        }
    }
}

impl Marks {
    /// All keys.
    pub(crate) fn of_all(version: Version) -> Self {
        Self { bits: 0, versions: [(0, version)].into() }
    }

    pub(crate) fn of_buckets(doubt: &Doubt, marks_max: usize) -> Self {
        Self::folded(BUCKET_BITS, doubt.marks().collect(), marks_max)
    }

    /// More marks than `marks_max` are folded into larger parts, or into one.
    fn folded(mut bits: u32, mut marks: Vec<(u32, Version)>, marks_max: usize) -> Self {
        if marks.len() > marks_max {
            if marks_max < 1 << COARSE {
                return Self::of_all(marks.into_iter().map(|(_, version)| version).max().unwrap_or_default());
            }
            marks.iter_mut().for_each(|(part, _)| *part >>= bits - COARSE);
            bits = COARSE;
        }
        marks.sort_unstable();
        // Of one part the newest stays: it comes last.
        marks.reverse();
        marks.dedup_by_key(|(part, _)| *part);
        marks.reverse();
        Self { bits, versions: marks.into() }
    }

    /// Up to which version the key at this place may have been missed.
    pub(crate) fn version(&self, place: u64) -> Version {
        let part = if self.bits == 0 { 0 } else { (place >> (64 - self.bits)) as u32 };
        let at = self.versions.binary_search_by_key(&part, |(part, _)| *part);
        at.map_or(Version::ZERO, |at| self.versions[at].1)
    }

    /// The buckets of these parts, up to their versions or to `limit`.
    pub(crate) fn doubt(&self, limit: Version) -> Doubt {
        let mut doubt = Doubt::default();
        let is_part = |part: u32| u64::from(part) < 1 << self.bits;
        for (part, version) in self.versions.iter().filter(|(part, _)| is_part(*part)) {
            let buckets = match BUCKET_BITS.checked_sub(self.bits) {
                Some(bits) => *part << bits..=(*part << bits) + ((1 << bits) - 1),
                None => part >> (self.bits - BUCKET_BITS)..=part >> (self.bits - BUCKET_BITS),
            };
            for bucket in buckets {
                doubt.raise(bucket as usize, (*version).min(limit));
            }
        }
        doubt
    }

    /// `bits u8 | marks u16 | part u32, version u64 | …`, little-endian.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.bits as u8);
        out.extend_from_slice(&(self.versions.len() as u16).to_le_bytes());
        for (part, version) in &self.versions {
            out.extend_from_slice(&part.to_le_bytes());
            out.extend_from_slice(&version.0.to_le_bytes());
        }
    }

    /// The list at the begin of `bytes`, and what is after it. `None`: there is none, or one that makes no sense.
    pub(crate) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(HEAD)?;
        let (bits, count) = (u32::from(head[0]), usize::from(u16::from_le_bytes([head[1], head[2]])));
        let (marks, rest) = rest.split_at_checked(count * MARK)?;
        let mark = |mark: &[u8]| {
            let (part, version) = mark.split_first_chunk::<4>()?;
            Some((u32::from_le_bytes(*part), Version(u64::from_le_bytes(version.try_into().ok()?))))
        };
        let versions = marks.chunks(MARK).map(mark).collect::<Option<Box<[_]>>>()?;
        let is_sorted = versions.windows(2).all(|two| two[0].0 < two[1].0);
        (bits <= FINE && is_sorted).then_some((Self { bits, versions }, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::super::place;
    use super::*;

    fn of_places(places: &[(u64, Version)], marks_max: usize) -> Marks {
        let mut some = Places::new(marks_max);
        places.iter().for_each(|(place, version)| some.add(*place, *version));
        some.marks().expect("there are some")
    }

    fn some(count: u64) -> Vec<(u64, Version)> {
        (0..count).map(|key| (place(&key.to_le_bytes()), Version(key + 1))).collect()
    }

    #[test]
    fn they_tell_each_key_or_a_part_with_its_newest() {
        let few = some(1000);
        let marks = of_places(&few, 1024);
        assert!(few.iter().all(|(place, version)| marks.version(*place) == *version));
        assert_eq!(marks.version(place(b"another")), Version::ZERO);
        let many = some(5000);
        for (marks_max, parts) in [(1024, 256), (256, 256), (1, 1)] {
            let marks = of_places(&many, marks_max);
            assert!(marks.versions.len() <= parts);
            assert!(many.iter().all(|(place, version)| marks.version(*place) >= *version));
        }
        let twice = of_places(&[(7 << 40, Version(9)), (7 << 40, Version(4))], 1024);
        assert_eq!(twice.version(7 << 40), Version(9));
        assert_eq!(Marks::of_all(Version(3)).version(place(b"any")), Version(3));
    }

    #[test]
    fn the_buckets_of_marks_are_in_doubt() {
        let many = some(5000);
        let of_buckets = Marks::of_buckets(&Doubt::of_all(Version(5)), 5000);
        for marks in [1024, 256, 1].map(|marks_max| of_places(&many, marks_max)).iter().chain([&of_buckets]) {
            let doubt = marks.doubt(Version(4_000));
            let most = |place: u64| marks.version(place).min(Version(4_000));
            assert!(many.iter().all(|(place, _)| doubt.version(*place) >= most(*place)));
        }
        let wrong = Marks { bits: COARSE, versions: [(1 << 20, Version(3))].into() };
        assert!(wrong.doubt(Version(9)).is_empty(), "a stranger may post anything");
        let one = of_places(&some(1), 1024).doubt(Version(9));
        assert_eq!((one.version(some(1)[0].0), one.marks().count()), (Version(1), 1));
        assert_eq!(Marks::of_all(Version(3)).doubt(Version(9)), Doubt::of_all(Version(3)));
    }

    #[test]
    fn they_are_read_as_they_were_written() {
        let lists = [
            of_places(&some(100), 1024),
            Marks::of_all(Version(8)),
            Marks::of_buckets(&Doubt::of_all(Version(5)), 5000),
        ];
        let mut bytes = Vec::new();
        lists.iter().for_each(|marks| marks.encode(&mut bytes));
        let mut rest = &bytes[..];
        for marks in &lists {
            let (read, behind) = Marks::decode(rest).expect("it was written");
            assert_eq!(read, *marks);
            rest = behind;
        }
        assert!(rest.is_empty());
        assert!(Marks::decode(&bytes[..50]).is_none() && Marks::decode(&[40, 0, 0]).is_none());
    }
}
