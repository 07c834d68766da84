//! Which of two writes of a key is newer: the rule that makes every order of arrival end in one state.

use std::cmp::Ordering;

use moneta_item::{Expiry, ItemMeta, Version};
use xxhash_rust::xxh3::Xxh3;

/// What a key is known to hold.
#[derive(Clone, Copy, Debug)]
pub enum Standing {
    /// A live item, with the digest of its content; see [`digest`].
    Item {
        /// Its version.
        version: Version,
        /// When it dies.
        expiry: Expiry,
        /// Only looked at where versions and expiries are equal.
        digest: u64,
    },
    /// It was deleted under this version.
    Deleted(Version),
}

/// What is to be done with a write in mode *newer*.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is newer than what is there.
    Newer,
    /// The same is there.
    Same,
    /// Something newer is there.
    Older,
}

impl Standing {
    fn version(&self) -> Version {
        match self {
            Self::Item { version, .. } | Self::Deleted(version) => *version,
        }
    }

    /// How a write that makes `self` stands to what is `there`. At one version a delete wins, then the later expiry, then the
    /// greater digest.
    pub fn against(&self, there: &Self) -> Verdict {
        let ordering = self.version().cmp(&there.version()).then_with(|| match (self, there) {
            (Self::Deleted(_), Self::Deleted(_)) => Ordering::Equal,
            (Self::Deleted(_), Self::Item { .. }) => Ordering::Greater,
            (Self::Item { .. }, Self::Deleted(_)) => Ordering::Less,
            (Self::Item { expiry, digest, .. }, Self::Item { expiry: other_expiry, digest: other_digest, .. }) => {
                moment(*expiry).cmp(&moment(*other_expiry)).then(digest.cmp(other_digest))
            }
        });
        match ordering {
            Ordering::Greater => Verdict::Newer,
            Ordering::Equal => Verdict::Same,
            Ordering::Less => Verdict::Older,
        }
    }
}

/// Whether a write that was made from version `base` still stands on what is `there`, the version of a live item. From
/// [`Version::ZERO`]: it was made where nothing was.
pub fn follows(base: Option<Version>, there: Option<Version>) -> bool {
    match (base, there) {
        (None, _) | (_, None) => true,
        (Some(base), Some(there)) => base != Version::ZERO && there <= base,
    }
}

/// Whether a write that was made from version `base` still stands where the key was deleted under a version. One that was made
/// where nothing was does.
pub fn follows_delete(base: Option<Version>, deleted: Version) -> bool {
    base.is_none_or(|base| base == Version::ZERO || deleted <= base)
}

/// When something dies, such that never is last.
fn moment(expiry: Expiry) -> u64 {
    if expiry == Expiry::NEVER { u64::MAX } else { expiry.0.into() }
}

/// A digest of what a client sees of an item: XXH3-64 of flags, the stale mark and the value, which may come in runs.
pub fn digest<'a>(meta: &ItemMeta, value: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let mut hash = Xxh3::new();
    hash.update(&meta.flags.to_le_bytes());
    hash.update(&[u8::from(meta.stale)]);
    value.into_iter().for_each(|run| hash.update(run));
    hash.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_of_arrival_ends_in_one_state() {
        let item = |version: u64, expiry: u32, digest: u64| Standing::Item {
            version: Version(version),
            expiry: Expiry(expiry),
            digest,
        };
        let rising = [
            item(1, 0, 9),
            Standing::Deleted(Version(1)),
            item(2, 5, 9),
            item(2, 6, 8),
            item(2, 0, 7),
            item(2, 0, 8),
            Standing::Deleted(Version(2)),
        ];
        for (one, write) in rising.iter().enumerate() {
            for (other, there) in rising.iter().enumerate() {
                let verdict = match one.cmp(&other) {
                    Ordering::Greater => Verdict::Newer,
                    Ordering::Equal => Verdict::Same,
                    Ordering::Less => Verdict::Older,
                };
                assert_eq!(write.against(there), verdict, "{write:?} over {there:?}");
            }
        }
    }
}
