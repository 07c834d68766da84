//! Buckets and keys that differ.

use std::collections::HashMap;

use bytes::Bytes;
use moneta_store::Expiry;

use crate::digest::{Digest, Listed};

/// The buckets in which two sides differ, and how many items both have there.
pub fn differing(a: &Digest, b: &Digest) -> Vec<(u16, u64)> {
    let mut all: Vec<u16> = a.buckets.keys().chain(b.buckets.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    let of = |digest: &Digest, bucket: &u16| digest.buckets.get(bucket).copied().unwrap_or_default();
    let differing = all.into_iter().map(|bucket| (bucket, of(a, &bucket), of(b, &bucket))).filter(|(_, a, b)| a != b);
    differing.map(|(bucket, a, b)| (bucket, a.count + b.count)).collect()
}

/// Which side is right about a key, or the only one that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    /// A.
    A,
    /// B.
    B,
}

/// How a key differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Differs {
    /// Both have it; one has a newer version.
    Version,
    /// Both have the same version; on one it lives longer.
    Life,
    /// One of them alone has it.
    Alone,
}

/// A key that differs: the side that has the newer one or has it alone, and what it has there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key.
    pub key: Bytes,
    /// How.
    pub differs: Differs,
    /// Whose item is right, or the only one.
    pub right: Right,
    /// That item.
    pub item: Listed,
}

/// The keys that differ, in the order of keys.
pub fn differences(a: &HashMap<Bytes, Listed>, b: &HashMap<Bytes, Listed>) -> Vec<Difference> {
    let mut all = Vec::new();
    for (key, in_a) in a {
        let (differs, right, item) = match b.get(key) {
            None => (Differs::Alone, Right::A, in_a),
            Some(in_b) if in_a == in_b => continue,
            Some(in_b) if in_a.version != in_b.version => match in_a.version > in_b.version {
                true => (Differs::Version, Right::A, in_a),
                false => (Differs::Version, Right::B, in_b),
            },
            Some(in_b) => match ends_later(in_a.expiry, in_b.expiry) {
                true => (Differs::Life, Right::A, in_a),
                false => (Differs::Life, Right::B, in_b),
            },
        };
        all.push(Difference { key: key.clone(), differs, right, item: *item });
    }
    let alone = b.iter().filter(|(key, _)| !a.contains_key(*key));
    all.extend(alone.map(|(key, item)| Difference {
        key: key.clone(),
        differs: Differs::Alone,
        right: Right::B,
        item: *item,
    }));
    all.sort_by(|one, other| one.key.cmp(&other.key));
    all
}

fn ends_later(one: Expiry, other: Expiry) -> bool {
    let end = |expiry: Expiry| if expiry == Expiry::NEVER { u32::MAX } else { expiry.0 };
    end(one) > end(other)
}

#[cfg(test)]
mod tests {
    use moneta_store::Version;

    use super::*;
    use crate::digest::Bucket;

    fn items(all: &[(&'static str, u64, u32)]) -> HashMap<Bytes, Listed> {
        let listed = |(key, version, expiry): &(&'static str, u64, u32)| {
            (Bytes::from_static(key.as_bytes()), Listed { version: Version(*version), expiry: Expiry(*expiry) })
        };
        all.iter().map(listed).collect()
    }

    #[test]
    fn each_key_that_differs_is_found_with_what_is_right() {
        let a =
            items(&[("same", 5, 9), ("newer in a", 7, 0), ("newer in b", 1, 0), ("longer in a", 3, 0), ("of a", 4, 0)]);
        let b =
            items(&[("same", 5, 9), ("newer in a", 6, 0), ("newer in b", 2, 0), ("longer in a", 3, 8), ("of b", 4, 0)]);
        let found: Vec<(String, Differs, Right, u64)> = differences(&a, &b)
            .into_iter()
            .map(|one| {
                let key = String::from_utf8(one.key.to_vec()).unwrap();
                (key, one.differs, one.right, one.item.version.0)
            })
            .collect();
        let expected = [
            ("longer in a", Differs::Life, Right::A, 3),
            ("newer in a", Differs::Version, Right::A, 7),
            ("newer in b", Differs::Version, Right::B, 2),
            ("of a", Differs::Alone, Right::A, 4),
            ("of b", Differs::Alone, Right::B, 4),
        ];
        let expected: Vec<_> = expected
            .into_iter()
            .map(|(key, differs, right, version)| (key.to_owned(), differs, right, version))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn buckets_that_are_alike_are_passed_over() {
        let digest = |all: &[(u16, u64, u64)]| Digest {
            buckets: all.iter().map(|(number, count, all)| (*number, Bucket { count: *count, all: *all })).collect(),
            ..Digest::default()
        };
        let (a, b) = (digest(&[(1, 2, 7), (2, 1, 8), (4, 1, 1)]), digest(&[(1, 2, 7), (2, 1, 9), (3, 5, 5)]));
        assert_eq!(differing(&a, &b), [(2, 2), (3, 5), (4, 1)]);
    }
}
