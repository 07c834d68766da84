//! A change as readers are told it, and its form on the memcached port.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use moneta_store::feed::{Change, Wanted};
use moneta_store::holding::{Held, held};
use moneta_store::versions::Floor;
use moneta_store::{Cx, ItemMeta, Policy, Store, StoreError, Version};

/// A change with all that a reader is told of it.
#[derive(Clone, Debug)]
pub(crate) enum Line {
    Set {
        key: Bytes,
        meta: ItemMeta,
        /// `None` if the reader does not want values.
        value: Option<Bytes>,
        /// When the key was last known to hold it, in milliseconds since the Unix epoch; `None`: it does now.
        as_of: Option<u64>,
    },
    Delete {
        key: Vec<u8>,
        version: Version,
    },
    Flush(Floor),
    /// The node was killed; when it began again, in milliseconds since the Unix epoch.
    Lost(u64),
}

/// Looks up what a change has left, if it does not say; `None` if it is not to be told, or no longer there. May block.
///
/// # Errors
/// The store's.
pub(crate) fn resolve(store: &Arc<dyn Store>, change: Change, wanted: &Wanted) -> Result<Option<Line>, StoreError> {
    Ok(match change {
        Change::Flushed(floor) if wanted.has_version(floor.version) => Some(Line::Flush(floor)),
        Change::Lost(until) => Some(Line::Lost(until)),
        Change::Deleted(key, version) if wanted.has_key(&key) && has_delete(wanted, version) => {
            Some(Line::Delete { key: key.to_vec(), version })
        }
        Change::Item(left) if wanted.has_key(&left.key) && wanted.has_version(left.meta.version()) => {
            Some(Line::Set { key: left.key, meta: left.meta, value: left.value, as_of: left.as_of })
        }
        Change::Set(key) if wanted.has_key(&key) => {
            let cx = Cx::outside().under(Policy::Batch);
            match pollster::block_on(held(store, &cx, &key))? {
                Held::Item(item) if wanted.has_version(item.meta.version()) => {
                    let value = wanted.values.then(|| item.value.to_vec().into());
                    Some(Line::Set { key: Bytes::copy_from_slice(&key), meta: item.meta, value, as_of: None })
                }
                Held::Buried(version) if has_delete(wanted, version) => {
                    Some(Line::Delete { key: key.to_vec(), version })
                }
                _ => None,
            }
        }
        _ => None,
    })
}

/// Whether a delete under this version is wanted. What has expired is told as deleted under the version just below its own, which counts
/// as one of the item's region; so a delete by the last writer of a region passes for one of the next region, too.
fn has_delete(wanted: &Wanted, version: Version) -> bool {
    wanted.has_version(version) || wanted.has_version(Version(version.0.saturating_add(1)))
}

impl Line {
    /// Appends its form on the memcached port.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        // Writing to memory does not fail.
        let _ = match self {
            Self::Set { key, meta, value, as_of } => {
                out.extend_from_slice(b"SET");
                number(out, key.len() as u64);
                match value {
                    Some(value) => number(out, value.len() as u64),
                    None => out.extend_from_slice(b" -"),
                }
                let (flags, expiry, stale) = (meta.flags.into(), meta.expiry.0.into(), meta.stale.into());
                [meta.cas, flags, expiry, stale, as_of.unwrap_or(0)].into_iter().for_each(|field| number(out, field));
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(key);
                out.extend_from_slice(value.as_deref().unwrap_or_default());
                out.write_all(b"\r\n")
            }
            Self::Delete { key, version } => {
                let _ = write!(out, "DELETE {} {}\r\n", key.len(), version.0);
                out.extend_from_slice(key);
                out.write_all(b"\r\n")
            }
            Self::Flush(floor) => write!(out, "FLUSH {} {}\r\n", floor.version.0, floor.second),
            Self::Lost(until) => write!(out, "LOST {until}\r\n"),
        };
    }
}

/// Appends a space and a number: these are most of what a change of a few bytes costs.
fn number(out: &mut Vec<u8>, number: u64) {
    out.push(b' ');
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

#[cfg(test)]
mod tests {
    use moneta_store::Origin;

    use super::*;

    #[test]
    fn what_is_told_just_below_a_version_is_of_its_region() {
        let wanted = |region| Wanted { region: Some(region), ..Wanted::default() };
        for writer in [0, 7, 15] {
            let version = Version::new(1 << 40, Origin::new(1, writer));
            assert!(has_delete(&wanted(1), version) && !has_delete(&wanted(0), version), "writer {writer}");
            let expired = version.just_below();
            assert!(has_delete(&wanted(1), expired) && !has_delete(&wanted(2), expired), "writer {writer}");
        }
    }
}
