//! Sets and deletes: stamped here, sent to all copies side by side, and answered when as many have taken them as the app wants.

use moneta_store::request::Write;
use moneta_store::{
    Deleted, ErrorKind, Expiry, ItemMeta, ItemRef, Lookup, Op, Outcome, OwnedKey, Put, StoreError, Value, Version,
    Written,
};

use crate::call::Call;
use crate::fate::Fate;
use crate::hints::Missed;
use crate::spread::Spread;

/// Times that a write is stamped anew because a copy holds something newer.
const STAMPS: u32 = 8;
/// By how much the second stamp skips ahead where it is not known what is newer, in milliseconds; doubles each time.
const SKIP: u64 = 4;

/// What is sent to all copies.
#[derive(Clone, Copy)]
pub(crate) enum Sent<'a> {
    /// An item, current at this moment, in milliseconds since the Unix epoch, and the version that it was made from, if that counts.
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
pub(crate) enum Told {
    /// As many copies took it as were wanted; whether one had the key, and the CAS value of a near copy that keeps no versions.
    Taken { had: bool, cas: Option<u64> },
    /// A node holds something newer.
    Superseded(usize),
    /// Nodes refuse it for what it is.
    Refused(Written),
}

/// What one copy made of a write.
pub(crate) enum Answer {
    /// `cas`: of what was written, as the copy told it.
    Taken {
        had: bool,
        cas: u64,
    },
    Superseded,
    Refused(Written),
    /// It has started so lately that it cannot tell whether the key was deleted before; it holds nothing.
    NotCreated,
    Failed(StoreError),
}

impl Answer {
    pub(crate) fn of(ended: Result<Outcome, StoreError>) -> Self {
        match ended {
            Ok(Outcome::Written(Written::Stored { cas } | Written::Unchanged { cas })) => {
                Self::Taken { had: false, cas }
            }
            Ok(Outcome::Written(Written::Superseded)) => Self::Superseded,
            Ok(Outcome::Written(Written::NotStored)) => Self::NotCreated,
            Ok(Outcome::Written(refused)) => Self::Refused(refused),
            Ok(Outcome::Deleted(Deleted::Superseded)) => Self::Superseded,
            Ok(Outcome::Deleted(deleted)) => Self::Taken { had: deleted == Deleted::Deleted, cas: 0 },
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
    pub(crate) async fn send(&self, key: &OwnedKey, sent: Sent<'_>) -> Result<Told, StoreError> {
        let layout = self.layout();
        let mut spread = Spread::default();
        let (mut fate, missed) = (Fate::default(), sent.missed(self.shared.clock.millis()));
        for replica in &layout.replicas {
            let node = replica.node_of(key.key().bytes);
            if layout.nodes[node].health.is_ejected() {
                fate.lacks(self, node, key, missed);
            } else {
                spread.add(node, sent.op(|op| self.begin(node, &key.key(), op)));
            }
        }
        let wanted = self.shared.config.ack.of(layout.copies());
        let wants_all = matches!(sent, Sent::Bury(_));
        let (mut took, mut had, mut cas, mut why, mut refused) = (0, false, None, None, None);
        let told = loop {
            let near_is_open = wanted > 0 && spread.waits_for(|node| layout.is_near(node));
            // Whether a copy had the key is known when one says so, or all have answered.
            let is_answer = !wants_all || had || wanted == 0;
            if took >= wanted && !near_is_open && is_answer {
                break Ok(Told::Taken { had, cas });
            }
            let Some((node, ended)) = spread.next().await else {
                break match refused {
                    _ if took >= wanted => Ok(Told::Taken { had, cas }),
                    Some(refused) => Ok(Told::Refused(refused)),
                    None => Err(too_few(took, layout.copies(), why)),
                };
            };
            self.note(node, &ended);
            match Answer::of(ended) {
                Answer::Taken { had: had_here, cas: cas_here } => {
                    // What clients read and compare with.
                    // One that ends at once was not stored, and has none.
                    if self.node(node).versions.has_none() && layout.is_near(node) && cas_here > 0 {
                        cas = Some(cas_here);
                    }
                    fate.took(self, node, key, missed);
                    took += usize::from(layout.counts(node));
                    had |= had_here;
                }
                Answer::Superseded => break Ok(Told::Superseded(node)),
                Answer::Refused(written) => refused = Some(written),
                Answer::NotCreated => fate.lacks(self, node, key, missed),
                Answer::Failed(error) => {
                    fate.failed(self, node, key, missed, &error);
                    why = Some(error);
                }
            }
        };
        if spread.left() > 0 && !matches!(told, Ok(Told::Superseded(_))) {
            self.watch_rest(spread, key, missed, fate).await;
        }
        told
    }

    /// Takes note that a node lacks a write.
    pub(crate) fn miss(&self, node: usize, key: &OwnedKey, sent: &Sent<'_>) {
        self.node(node).hints.note(key.key().bytes, sent.missed(self.shared.clock.millis()));
    }

    /// Waits behind the answer for the nodes that have not answered yet, and takes note of what they did not take.
    pub(crate) async fn watch_rest(&self, mut spread: Spread, key: &OwnedKey, missed: Missed, mut fate: Fate) {
        // Reads that go to these copies meanwhile do not believe what is older.
        spread.nodes().for_each(|node| self.node(node).flight.note(key.key().hash, missed));
        let (call, key) = (self.clone(), key.clone());
        let rest = async move {
            while let Some((node, ended)) = spread.next().await {
                call.note(node, &ended);
                match Answer::of(ended) {
                    Answer::Taken { .. } => fate.took(&call, node, &key, missed),
                    // What is newer there is newer than the hint, too, which then changes nothing.
                    Answer::Superseded | Answer::NotCreated => fate.lacks(&call, node, &key, missed),
                    Answer::Failed(error) => fate.failed(&call, node, &key, missed, &error),
                    Answer::Refused(_) => {}
                }
                call.node(node).flight.settle(key.key().hash, missed.version);
            }
        };
        self.behind(Box::pin(rest)).await;
    }

    /// A plain set.
    pub(crate) async fn set(self, key: OwnedKey, value: Vec<u8>, request: Write) -> Result<Written, StoreError> {
        let clock = &self.shared.clock;
        let expiry = Expiry::resolve(request.exptime, clock.now());
        for stamp in 0..STAMPS {
            let version = self.shared.stamps.next(clock);
            let meta = ItemMeta {
                flags: request.flags,
                cas: version.0,
                expiry,
                last_access: clock.now(),
                ..ItemMeta::default()
            };
            let item = ItemRef { meta, value: Value::whole(&value) };
            match self.send(&key, Sent::Put(&item, clock.millis(), None)).await? {
                Told::Taken { cas, .. } => return Ok(Written::Stored { cas: cas.unwrap_or(version.0) }),
                Told::Superseded(node) => self.learn(node, &key, stamp).await,
                Told::Refused(written) => return Ok(written),
            }
        }
        Err(self.shared.outrun())
    }

    /// A plain delete.
    pub(crate) async fn delete(self, key: OwnedKey) -> Result<Deleted, StoreError> {
        for stamp in 0..STAMPS {
            let version = self.shared.stamps.next(&self.shared.clock);
            match self.send(&key, Sent::Bury(version)).await? {
                Told::Taken { had: true, .. } => return Ok(Deleted::Deleted),
                Told::Taken { had: false, .. } => return Ok(Deleted::NotFound),
                Told::Superseded(node) => self.learn(node, &key, stamp).await,
                Told::Refused(_) => unreachable!("a delete is not refused"),
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
        let item = ItemRef { meta, value: Value::whole(&value) };
        let told = self.send(&key, Sent::Put(&item, as_of, base)).await?;
        // Not before nodes took it: a version that is far ahead would stop all further writes.
        self.shared.stamps.note(meta.version());
        Ok(match told {
            Told::Taken { .. } => Written::Stored { cas: meta.cas },
            Told::Superseded(_) => Written::Superseded,
            Told::Refused(written) => written,
        })
    }

    /// A delete that has its version.
    pub(crate) async fn forward_delete(self, key: OwnedKey, version: Version) -> Result<Deleted, StoreError> {
        let told = self.send(&key, Sent::Bury(version)).await?;
        self.shared.stamps.note(version);
        Ok(match told {
            Told::Taken { had: true, .. } => Deleted::Deleted,
            Told::Taken { had: false, .. } => Deleted::NotFound,
            Told::Superseded(_) | Told::Refused(_) => Deleted::Superseded,
        })
    }

    /// Makes further stamps greater than what a node holds of a key. A delete does not show its version: the clock then skips ahead
    /// a little, more with each try.
    async fn learn(&self, node: usize, key: &OwnedKey, tries: u32) {
        self.shared.counters.stamped_anew.add(1);
        let mut spread = Spread::default();
        spread.add(node, self.begin(node, &key.key(), Op::Peek));
        match spread.next().await {
            Some((_, Ok(Outcome::Read(Lookup::Found(item))))) => self.shared.stamps.note(item.meta.version()),
            _ => self.shared.stamps.skip_to(self.shared.clock.millis() + (SKIP << tries)),
        }
    }
}
