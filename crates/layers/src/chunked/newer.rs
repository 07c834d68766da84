//! Writes by version: what is newer replaces what is older, and nothing older replaces it, in whatever order both arrive.

use moneta_store::steps::start_operation;
use moneta_store::versions::{Standing, Verdict, digest, follows, follows_delete};
use moneta_store::{Deleted, Item, ItemMeta, ItemRef, Key, OwnedKey, Step, Store, StoreError, Version, Written};

use super::Call;
use super::draft::Draft;
use super::reads::Found;
use super::writes::Changing;

/// How a write by version stands to what the key has.
struct Compared {
    verdict: Verdict,
    /// The key has a live item.
    is_live: bool,
    /// The version that it stands to.
    by: Version,
}

impl<S: Store + 'static> Call<S> {
    /// [`moneta_store::Put::Newer`].
    pub(super) fn put_newer(self, key: &Key<'_>, item: &ItemRef<'_>, as_of: u64, base: Option<Version>) -> Step {
        if let Err(error) = self.versions.accept(item.meta.version()) {
            return Step::Done(Err(error));
        }
        let owned = OwnedKey::of(key);
        if item.value.len() > self.config.item_max {
            return start_operation(async move { self.refuse(&owned.key(), Written::TooLarge).await });
        }
        let item = Item::copy(item);
        start_operation(async move {
            let (key, version) = (owned.key(), item.meta.version());
            let mut changing = self.change(&key).await;
            let written = || standing(&item.meta, item.value.as_slice());
            let Compared { verdict, is_live, by } = self.compare(&key, (version, base), written, &mut changing).await?;
            let refused = match verdict {
                Verdict::Older => Written::Superseded { by },
                Verdict::Same => Written::Unchanged { cas: version.0 },
                Verdict::Newer if !is_live && self.versions.is_unsure(as_of, self.versions.buried(key.hash).1) => {
                    Written::NotStored
                }
                Verdict::Newer => {
                    let draft = Draft::new(&key, item.meta, &item.as_ref().value, &self.config);
                    return self.put(&key, draft, changing).await;
                }
            };
            changing.settle();
            Ok(refused)
        })
    }

    /// [`moneta_store::Op::Bury`].
    pub(super) fn bury(self, key: &Key<'_>, version: Version) -> Step {
        if let Err(error) = self.versions.accept(version) {
            return Step::Done(Err(error));
        }
        let owned = OwnedKey::of(key);
        start_operation(async move {
            let key = owned.key();
            let mut changing = self.change(&key).await;
            let written = || Standing::Deleted(version);
            let Compared { verdict, is_live, by } = self.compare(&key, (version, None), written, &mut changing).await?;
            if verdict != Verdict::Newer {
                changing.settle();
                return Ok(Deleted::Superseded { by });
            }
            // Before what is there goes: nothing older may come in between.
            self.versions.bury(key.hash, version);
            self.drop_all(&key, changing).await?;
            Ok(if is_live { Deleted::Deleted } else { Deleted::NotFound })
        })
    }

    async fn compare(
        &self,
        key: &Key<'_>,
        (version, base): (Version, Option<Version>),
        written: impl FnOnce() -> Standing,
        changing: &mut Changing<'_>,
    ) -> Result<Compared, StoreError> {
        let is_older = |by| Compared { verdict: Verdict::Older, is_live: false, by };
        let floors = self.versions.floors();
        if floors.takes_write(version, base) {
            return Ok(is_older(floors.bound));
        }
        let found = self.find_to_change(key, false, changing).await?;
        // Behind the look, which takes note of what has expired.
        if let Some(deleted) = self.versions.buried(key.hash).0 {
            if deleted >= version {
                let verdict = written().against(&Standing::Deleted(deleted));
                return Ok(Compared { verdict, is_live: false, by: deleted });
            }
            if !follows_delete(base, deleted) {
                return Ok(is_older(deleted));
            }
        }
        let Found::Live(old) = found else {
            return Ok(Compared { verdict: Verdict::Newer, is_live: false, by: Version::ZERO });
        };
        let verdict = match written().against(&standing(&old.meta, old.value.as_slice())) {
            Verdict::Newer if !follows(base, Some(old.meta.version())) => Verdict::Older,
            verdict => verdict,
        };
        Ok(Compared { verdict, is_live: true, by: old.meta.version() })
    }
}

fn standing(meta: &ItemMeta, value: &[u8]) -> Standing {
    Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(meta, [value]) }
}
