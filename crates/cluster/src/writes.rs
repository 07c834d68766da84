//! Sets and deletes: stamped here, sent to all copies side by side, and answered when as many have taken them as the app wants.

use std::sync::atomic::Ordering;

use moneta_store::request::Write;
use moneta_store::{
    Deleted, ErrorKind, Expiry, ItemMeta, ItemRef, Lookup, Op, Outcome, OwnedKey, Put, StoreError, Value, Version,
    Written,
};

use smallvec::SmallVec;

use crate::call::Call;
use crate::fate::Fate;
use crate::hints::Missed;
use crate::node::is_unwell;
use crate::own::dead;
use crate::spread::Spread;

/// Times that a write is stamped anew because a copy holds something newer.
const STAMPS: u32 = 8;
/// By how much in the counter the second stamp of a key skips ahead where a node does not tell what is newer; four times as much
/// each time. The eighth is less than a tenth of a second ahead.
const SKIP: u64 = 64;

/// What is sent to all copies.
#[derive(Clone, Copy)]
pub(crate) enum Sent<'a> {
    /// An item, current at this moment, in milliseconds since the Unix epoch, and the version that it was made from, if that
    /// counts.
    Put(&'a ItemRef<'a>, u64, Option<Version>),
    /// A delete under a version.
    Bury(Version),
}

impl Sent<'_> {
    fn op<R>(&self, act: impl FnOnce(Op<'_>) -> R) -> R {
        match self {
            Self::Put(item, as_of, base) => act(Op::Put(item, Put::Newer { as_of: *as_of, base: *base })),
            Self::Bury(version) => act(Op::Bury(*version)),
        }
    }

    pub(crate) fn missed(&self, now: u64) -> Missed {
        match self {
            Self::Put(item, as_of, _) => Missed::set(item.meta.version(), (*as_of).min(now)),
            Self::Bury(version) => Missed::delete(*version, now),
        }
    }
}

/// How a write to all copies went.
pub(crate) enum WriteTold {
    /// As many copies took it as were wanted; whether one had the key, and the CAS value of a near copy that keeps no versions.
    Taken { had: bool, cas: Option<u64> },
    /// Too few copies took it, and others hold something newer.
    Superseded(Newer),
    /// Nodes refuse it for what it is.
    Refused(Written),
    /// All copies that answered have started so lately that they cannot tell whether the key was deleted before.
    NotCreated,
}

/// What a write came after.
#[derive(Debug)]
pub(crate) struct Newer {
    /// Where that is.
    node: usize,
    /// Its version; [`Version::ZERO`]: the node does not tell.
    by: Version,
    /// A copy that took the write had the key.
    had: bool,
    /// The key's home, if that took the write.
    home: Option<usize>,
}

/// What one copy made of a write.
pub(crate) enum Answer {
    /// `cas`: of what was written, as the copy told it.
    /// `same`: it held this very write.
    Taken {
        had: bool,
        cas: u64,
        same: bool,
    },
    /// It holds this version, which is newer.
    Superseded(Version),
    Refused(Written),
    /// It has started so lately that it cannot tell whether the key was deleted before; it holds nothing.
    NotCreated,
    Failed(StoreError),
}

impl Answer {
    pub(crate) fn of(ended: Result<Outcome, StoreError>) -> Self {
        match ended {
            Ok(Outcome::Written(Written::Stored { cas })) => Self::Taken { had: false, cas, same: false },
            Ok(Outcome::Written(Written::Unchanged { cas })) => Self::Taken { had: false, cas, same: true },
            Ok(Outcome::Written(Written::Superseded { by })) => Self::Superseded(by),
            Ok(Outcome::Written(Written::NotStored)) => Self::NotCreated,
            Ok(Outcome::Written(refused)) => Self::Refused(refused),
            Ok(Outcome::Deleted(Deleted::Superseded { by })) => Self::Superseded(by),
            Ok(Outcome::Deleted(deleted)) => Self::Taken { had: deleted == Deleted::Deleted, cas: 0, same: false },
            Ok(other) => panic!("a write to a node ended as {other:?}"),
            Err(error) => Self::Failed(error),
        }
    }
}

/// A failure with what it means for the write.
pub(crate) fn too_few(took: usize, copies: usize, why: Option<StoreError>) -> StoreError {
    let kind = why.as_ref().map_or(ErrorKind::Unreachable, StoreError::kind);
    let text = format!("{took} of {copies} copies took it");
    match why {
        Some(why) => StoreError::new(kind, format!("{text}: {why}")),
        None => StoreError::new(kind, text),
    }
}

impl Call {
    /// Sends a write to all copies and waits for as many answers as the app wants, and for the near copies. What a node did not
    /// take becomes a hint.
    pub(crate) async fn send(&self, key: &OwnedKey, sent: Sent<'_>) -> Result<WriteTold, StoreError> {
        let layout = self.layout();
        let mut spread = Spread::default();
        let now = self.shared.clock.millis();
        let (mut fate, missed) = (Fate::default(), sent.missed(now));
        self.shared.overlap.note(key.key().bytes, missed, now);
        // Copies that count and do not answer.
        let mut away = 0;
        for replica in &layout.replicas {
            let node = replica.node_of(key.key().bytes);
            if layout.nodes[node].health.is_ejected() {
                away += usize::from(!replica.write_only);
                fate.lacks(self, node, key, missed);
            } else {
                spread.add(node, sent.op(|op| self.begin(node, &key.key(), op)));
            }
        }
        let copies = layout.copies();
        let wanted_of = |away| match self.shared.rules.ack().without(copies, away) {
            // Nodes have refused the last one: until one is taken, it is told.
            0 if self.shared.refused.load(Ordering::Relaxed) => 1,
            wanted => wanted,
        };
        let mut wanted = wanted_of(away);
        let wants_all = matches!(sent, Sent::Bury(_));
        let (mut took, mut had, mut cas, mut why) = (0, false, None, None);
        let (mut refused, mut refusals) = (None, 0);
        let mut not_created = false;
        let mut order = Order::default();
        let told = loop {
            let near_is_open = wanted > 0 && spread.waits_for(|node| layout.is_near(node));
            // Whether a copy had the key is known when one says so, or all have answered.
            let is_answer = !wants_all || had || wanted == 0;
            let place = match took >= wanted {
                true => WritePlace::Taken,
                false if order.superseded.is_empty() => WritePlace::Open,
                false => {
                    // What enough copies have taken is taken.
                    let open = spread.nodes().filter(|node| layout.counts(*node)).count();
                    if took + open >= wanted { WritePlace::Open } else { order.place(&self.homes(&key.key()), &spread) }
                }
            };
            match place {
                WritePlace::Taken if !near_is_open && is_answer => break Ok(WriteTold::Taken { had, cas }),
                WritePlace::Superseded { node, by, home } => {
                    break Ok(WriteTold::Superseded(Newer { node, by, had, home }));
                }
                _ => {}
            }
            let Some((node, ended)) = spread.next().await else {
                break match refused {
                    _ if place == WritePlace::Taken => Ok(WriteTold::Taken { had, cas }),
                    Some(refused) if refusals > copies - wanted_of(0).min(copies) => Ok(WriteTold::Refused(refused)),
                    None if not_created && took == 0 && why.is_none() => Ok(WriteTold::NotCreated),
                    _ => Err(too_few(took, copies, why)),
                };
            };
            match Answer::of(self.heard(node, ended)) {
                Answer::Taken { had: had_here, cas: cas_here, .. } => {
                    // What clients read and compare with.
                    // One that ends at once was not stored, and has none.
                    if self.node(node).versions.has_none() && layout.is_near(node) && cas_here > 0 {
                        cas = Some(cas_here);
                    }
                    fate.took(self, node, key, missed);
                    took += usize::from(layout.counts(node));
                    had |= had_here;
                    order.taken.push(node);
                }
                Answer::Superseded(by) => {
                    self.shared.stamps.note(key.key().hash, by, self.shared.clock.millis());
                    order.superseded.push((node, by));
                }
                Answer::Refused(written) => {
                    refusals += usize::from(layout.counts(node));
                    refused.get_or_insert(written);
                }
                Answer::NotCreated => {
                    not_created |= layout.counts(node);
                    fate.lacks(self, node, key, missed);
                }
                Answer::Failed(error) => {
                    if is_unwell(&error) {
                        away += usize::from(layout.counts(node));
                        wanted = wanted_of(away);
                    }
                    fate.failed(self, node, key, missed, &error);
                    why = Some(error);
                }
            }
        };
        if took > 0 {
            self.shared.note_refused(false);
        }
        if spread.left() == 0 {
            fate.end();
        } else if !matches!(told, Ok(WriteTold::Superseded(_))) {
            self.watch_rest(spread, key, missed, fate).await;
        }
        told
    }

    /// Takes note that a node lacks a write.
    pub(crate) fn miss(&self, node: usize, key: &OwnedKey, sent: &Sent<'_>) {
        self.note_missed(node, key.key().bytes, sent.missed(self.shared.clock.millis()));
    }

    /// Waits after the answer for the nodes that have not answered yet, and takes note of what they did not take.
    pub(crate) async fn watch_rest(&self, mut spread: Spread, key: &OwnedKey, missed: Missed, mut fate: Fate) {
        // Reads that go to these copies meanwhile do not believe what is older.
        spread.nodes().for_each(|node| self.node(node).flight.note(key.key().hash, missed));
        let (call, key) = (self.clone(), key.clone());
        let rest = async move {
            while let Some((node, ended)) = spread.next().await {
                match Answer::of(call.heard(node, ended)) {
                    Answer::Taken { .. } => fate.took(&call, node, &key, missed),
                    Answer::Superseded(by) => {
                        call.shared.stamps.note(key.key().hash, by, call.shared.clock.millis());
                        fate.superseded(&call, node, &key, missed, by);
                    }
                    Answer::NotCreated => fate.lacks(&call, node, &key, missed),
                    Answer::Failed(error) => fate.failed(&call, node, &key, missed, &error),
                    Answer::Refused(_) => fate.refused(),
                }
                call.node(node).flight.settle(key.key().hash, missed.version);
            }
            if let Some(is_refused) = fate.is_refused() {
                call.shared.note_refused(is_refused);
            }
            fate.end();
        };
        self.behind(Box::pin(rest)).await;
    }

    /// A plain set.
    pub(crate) async fn set(self, key: OwnedKey, value: Vec<u8>, request: Write) -> Result<Written, StoreError> {
        let clock = &self.shared.clock;
        let expiry = Expiry::resolve(request.exptime, clock.now());
        let mut version = self.shared.stamps.next(clock, key.key().hash);
        for stamp in 0..STAMPS {
            let item = |version: Version| {
                let meta = ItemMeta {
                    flags: request.flags,
                    cas: version.0,
                    expiry,
                    last_access: clock.now(),
                    ..ItemMeta::default()
                };
                ItemRef { meta, value: Value::whole(&value) }
            };
            match self.send(&key, Sent::Put(&item(version), clock.millis(), None)).await? {
                WriteTold::Taken { cas, .. } => return Ok(Written::Stored { cas: cas.unwrap_or(version.0) }),
                WriteTold::Refused(written) => return Ok(written),
                WriteTold::NotCreated => return Err(too_few(0, self.layout().copies(), None)),
                WriteTold::Superseded(newer) => {
                    let next = Box::pin(self.next_above(&newer, &key, version, stamp)).await;
                    let next_item = item(next);
                    if Box::pin(self.has_taken_effect(&newer, &key, version, &next_item)).await? {
                        return Ok(Written::Stored { cas: version.0 });
                    }
                    version = next;
                }
            }
        }
        Err(self.shared.outrun())
    }

    /// A plain delete.
    pub(crate) async fn delete(self, key: OwnedKey) -> Result<Deleted, StoreError> {
        // Under an earlier stamp, too: what that has deleted on some copies the next one does not find there.
        let mut had_before = false;
        let mut version = self.shared.stamps.next(&self.shared.clock, key.key().hash);
        for stamp in 0..STAMPS {
            match self.send(&key, Sent::Bury(version)).await? {
                WriteTold::Taken { had, .. } if had || had_before => return Ok(Deleted::Deleted),
                WriteTold::Taken { .. } => return Ok(Deleted::NotFound),
                WriteTold::Refused(_) | WriteTold::NotCreated => unreachable!("a delete is not refused"),
                WriteTold::Superseded(newer) => {
                    had_before |= newer.had;
                    let next = Box::pin(self.next_above(&newer, &key, version, stamp)).await;
                    let dead = dead(next);
                    if Box::pin(self.has_taken_effect(&newer, &key, version, &dead.as_ref())).await? {
                        return Ok(if had_before { Deleted::Deleted } else { Deleted::NotFound });
                    }
                    // The item that is dead from the start has this one.
                    version = self.shared.stamps.next(&self.shared.clock, key.key().hash);
                }
            }
        }
        Err(self.shared.outrun())
    }

    /// A write that has its version: from another cluster, or a feed. It is never stamped anew.
    pub(crate) async fn forward(
        self,
        key: OwnedKey,
        meta: ItemMeta,
        value: Vec<u8>,
        as_of: u64,
        base: Option<Version>,
    ) -> Result<Written, StoreError> {
        self.refuse_ahead(meta.version())?;
        let item = ItemRef { meta, value: Value::whole(&value) };
        let told = self.send(&key, Sent::Put(&item, as_of, base)).await?;
        self.shared.stamps.note(key.key().hash, meta.version(), self.shared.clock.millis());
        Ok(match told {
            WriteTold::Taken { .. } => Written::Stored { cas: meta.cas },
            WriteTold::Superseded(newer) => Written::Superseded { by: newer.by },
            WriteTold::Refused(written) => written,
            WriteTold::NotCreated => Written::NotStored,
        })
    }

    /// A delete that has its version.
    pub(crate) async fn forward_delete(self, key: OwnedKey, version: Version) -> Result<Deleted, StoreError> {
        self.refuse_ahead(version)?;
        let told = self.send(&key, Sent::Bury(version)).await?;
        self.shared.stamps.note(key.key().hash, version, self.shared.clock.millis());
        Ok(match told {
            WriteTold::Taken { had: true, .. } => Deleted::Deleted,
            WriteTold::Taken { had: false, .. } => Deleted::NotFound,
            WriteTold::Superseded(newer) => Deleted::Superseded { by: newer.by },
            WriteTold::Refused(_) | WriteTold::NotCreated => unreachable!("a delete is not refused"),
        })
    }

    /// Refuses what nodes would refuse, before they are asked: also where the answer does not wait for them.
    fn refuse_ahead(&self, version: Version) -> Result<(), StoreError> {
        match self.shared.stamps.is_ahead(version, self.shared.clock.millis()) {
            true => Err(StoreError::clock_ahead()),
            false => Ok(()),
        }
    }

    /// The next stamp of a write that was stamped too low: above what a node holds of the key. One of an older build does not
    /// tell the version of that: it is asked for the item, and of a delete the next stamp skips ahead a little, more with each
    /// try. Callers box it, since it is seldom needed: it is no part of what is copied for every write.
    async fn next_above(&self, newer: &Newer, key: &OwnedKey, stamped: Version, tries: u32) -> Version {
        self.shared.counters.stamped_anew.add(1);
        let mut seen = newer.by;
        if seen == Version::ZERO {
            let mut spread = Spread::default();
            spread.add(newer.node, self.begin(newer.node, &key.key(), Op::Peek));
            seen = match spread.next().await.map(|(node, ended)| self.heard(node, ended)) {
                Some(Ok(Outcome::Read(Lookup::Found(item)))) => item.meta.version(),
                _ => Version::new(stamped.local() + (SKIP << (2 * tries)), stamped.origin()),
            };
        }
        self.shared.stamps.note(key.key().hash, seen, self.shared.clock.millis());
        self.shared.stamps.next(&self.shared.clock, key.key().hash)
    }

    /// Whether a write that too few copies took has taken effect all the same: its home took it, and something came after it
    /// there, which may have been made from it. Else the home holds `next` from now on, the same under a later stamp, which no
    /// change is made before.
    async fn has_taken_effect(
        &self,
        newer: &Newer,
        key: &OwnedKey,
        version: Version,
        next: &ItemRef<'_>,
    ) -> Result<bool, StoreError> {
        let Some(home) = newer.home else { return Ok(false) };
        let put = Put::Newer { as_of: self.shared.clock.millis(), base: Some(version) };
        let mut spread = Spread::default();
        spread.add(home, self.begin(home, &key.key(), Op::Put(next, put)));
        let Some((home, ended)) = spread.next().await else { return Ok(false) };
        match Answer::of(self.heard(home, ended)) {
            Answer::Superseded(_) => {
                // A client that reads another copy is not to see what is older than its write: what a copy refused it for may be.
                let missed = Missed::set(next.meta.version(), self.shared.clock.millis());
                let nodes = self.homes(&key.key()).into_iter().filter(|&node| node != home);
                nodes.for_each(|node| self.note_missed(node, key.key().bytes, missed));
                Ok(true)
            }
            Answer::Failed(error) if error.kind() != ErrorKind::ClockAhead => Err(error),
            // What a home says that tells of the future counts for nothing.
            Answer::Failed(_) | Answer::Taken { .. } | Answer::NotCreated | Answer::Refused(_) => Ok(false),
        }
    }
}

/// Where a write stands to a newer one that some copies have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePlace {
    /// Enough copies have taken it.
    Taken,
    /// Too few will have: this node has something newer, of this version; and the key's home, if that took the write.
    Superseded { node: usize, by: Version, home: Option<usize> },
    /// Not known yet, or no copy has anything newer.
    Open,
}

/// Which copies took a write, and which held something newer.
#[derive(Default)]
struct Order {
    taken: SmallVec<[usize; 4]>,
    superseded: SmallVec<[(usize, Version); 4]>,
}

impl Order {
    /// `homes`: the key's home, and those that decide in its place while it does not answer.
    fn place(&self, homes: &[usize], open: &Spread) -> WritePlace {
        for home in homes {
            if open.waits_for(|node| node == *home) {
                return WritePlace::Open;
            }
            if let Some((node, by)) = self.superseded.iter().find(|(node, _)| node == home) {
                return WritePlace::Superseded { node: *node, by: *by, home: None };
            }
            if self.taken.contains(home) {
                let newest = self.superseded.iter().max_by_key(|(_, by)| *by);
                return newest.map_or(WritePlace::Open, |(node, by)| WritePlace::Superseded {
                    node: *node,
                    by: *by,
                    home: Some(*home),
                });
            }
        }
        // Only copies that take writes alone have something newer.
        WritePlace::Open
    }
}
