//! Whether a restore would work: into an empty node, which is then asked for every item.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use moneta_bulk::{RateConfig, Server, Watch};
use moneta_client::wire::VALUE_LIMIT;
use moneta_feed::Set;
use moneta_item::Lookup;
use moneta_net::Endpoint;
use moneta_remote::{Remote, RemoteConfig};
use moneta_segments::{Archive, Counts};
use moneta_store::steps::into_pending;
use moneta_store::{Clock, Cx, Key, KeyHash, Op, Policy, Store, Unseen};
use serde::{Deserialize, Serialize};

use crate::error::BackupError;
use crate::layout::{VERIFIED, create, read};
use crate::moment::{millis, second};
use crate::restore::{RestoreConfig, points, restore_points};
use crate::state::{Reading, State};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Items that are asked for at once.
const BATCH: usize = 256;
/// Differences that are told.
const TOLD: usize = 5;

/// A restore was tried, and held.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verified {
    /// When it had ended, Unix milliseconds.
    pub verified: u64,
    /// The restore point of each slot, Unix milliseconds.
    pub points: Vec<(String, u64)>,
    /// Items that were restored and compared.
    pub items: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Verified {
    /// The oldest of the restore points: all slots were whole as of then.
    pub fn point(&self) -> u64 {
        self.points.iter().map(|(_, point)| *point).min().unwrap_or(0)
    }
}

/// The bytes of items that a node must hold that all of the last restore point at or before `at` is restored to, at most.
///
/// # Errors
/// If there is no restore point, or what it needs is not whole.
pub fn size(archive: &Arc<dyn Archive>, at: u64) -> Result<(u64, u64), BackupError> {
    let points = points(archive, at)?;
    let counts = points.iter().fold(Counts::default(), |sum, point| sum.and(point.counts()));
    Ok((counts.sets, counts.bytes))
}

/// Restores to the empty node at `node`, compares each item, and notes in the archive that it held.
///
/// # Errors
/// [`BackupError::Differs`] if the node does not hold what the archive has; else as [`crate::restore::restore`].
pub fn verify(
    archive: &Arc<dyn Archive>,
    at: u64,
    node: &Endpoint,
    value_max: usize,
    watch: &dyn Watch,
) -> Result<Option<Verified>, BackupError> {
    let config = RestoreConfig {
        places: vec![node.clone().into()],
        at,
        prefix: Vec::new(),
        rolls_back: false,
        region: None,
        rate: RateConfig::default(),
        value_max,
    };
    // The same for both: others may come meanwhile.
    let points = points(archive, at)?;
    let restored = restore_points(&config, &points, watch)?;
    if !restored.done {
        return Ok(None);
    }
    let mut comparison = Comparison::new(node)?;
    watch.phase("comparing", Some(restored.read.items));
    for point in &points {
        let mut state = State::read(point, &Reading { prefix: Vec::new(), value_max })?;
        state.items(|set| comparison.add(set))?;
    }
    comparison.settle()?;
    let held = Server::look(node)?.items;
    let Comparison { items, bytes, differ, told, .. } = comparison;
    if differ > 0 {
        return Err(BackupError::Differs(format!(
            "{differ} of {items} items are not as in the archive: {}",
            told.join("; ")
        )));
    }
    if held.is_some_and(|held| held > items) {
        return Err(BackupError::Differs(format!(
            "the node holds {} items, and the archive has {items}",
            held.unwrap_or(0)
        )));
    }
    let verified = Verified { verified: millis(), points: restored.points, items, bytes };
    create(&**archive, &format!("{VERIFIED}/{:013}.json", verified.verified), &verified)?;
    Ok(Some(verified))
}

/// What was verified last.
///
/// # Errors
/// If the archive does not answer.
pub fn last(archive: &dyn Archive) -> Result<Option<Verified>, BackupError> {
    let names = archive.list(VERIFIED).map_err(|error| BackupError::archive(VERIFIED, error))?;
    names.iter().max().map(|name| read(archive, name)).transpose()
}

struct Comparison {
    store: Remote,
    cx: Cx,
    batch: Vec<Set>,
    items: u64,
    bytes: u64,
    differ: u64,
    told: Vec<String>,
}

impl Comparison {
    fn new(node: &Endpoint) -> Result<Self, BackupError> {
        let config = RemoteConfig {
            request_timeout: PATIENCE.into(),
            item_max: VALUE_LIMIT,
            asks_statistics: false,
            ..RemoteConfig::new(node.clone(), KeyHash::seeded(0))
        };
        let store = Remote::new(config, Arc::new(Clock::system())).map_err(io::Error::other)?;
        let cx = Cx::outside().under(Policy::Batch);
        Ok(Self { store, cx, batch: Vec::new(), items: 0, bytes: 0, differ: 0, told: Vec::new() })
    }

    fn add(&mut self, set: Set) -> Result<(), BackupError> {
        self.batch.push(set);
        if self.batch.len() >= BATCH { self.settle() } else { Ok(()) }
    }

    fn settle(&mut self) -> Result<(), BackupError> {
        let batch = std::mem::take(&mut self.batch);
        let asked = batch.iter().map(|set| {
            let key = Key::new(&set.key, self.store.seed());
            into_pending(self.store.call(&self.cx, &key, Op::Peek, &mut Unseen))
        });
        let answers = pollster::block_on(join_all(asked));
        for (set, answer) in batch.into_iter().zip(answers) {
            let failed = |source| BackupError::Store { target: "the node that verifies".to_owned(), source };
            let there = match answer.map_err(failed)?.lookup() {
                Lookup::Found(item) => Some(item),
                _ => None,
            };
            let value = set.value.as_deref().unwrap_or_default();
            self.bytes += (set.key.len() + value.len()) as u64;
            let is_same = match &there {
                Some(item) => {
                    item.meta.flags == set.meta.flags
                        && item.meta.expiry == set.meta.expiry
                        && (set.meta.unversioned || item.meta.version() == set.meta.version())
                        && item.value.clone().into_vec() == value
                }
                // It may have died on the way.
                None => set.meta.expiry.is_dead(second(millis()) + 1),
            };
            self.items += 1;
            if !is_same {
                self.differ += 1;
                if self.told.len() < TOLD {
                    let how = if there.is_some() { "is another" } else { "is missing" };
                    self.told.push(format!("{} {how}", set.key.escape_ascii()));
                }
            }
        }
        Ok(())
    }
}
