//! A ledger on etcd (3.4 and later), which several processes share.
//!
//! ```text
//!  ROOT k/KEY        entries, with etcd's revisions plus an offset
//!  ROOT m/ledger     incarnation, offset, whether it is being filled; each commit compares that it is as it was
//!  ROOT m/beat       put every few seconds: who is told of it was told all before
//!  ROOT m/compacted  from where on one can follow
//! ```
//!
//! **Marks.** etcd has progress notifications, and they cannot be relied on here: those that are asked for may overtake changes before
//! 3.4.25 and 3.5.8, those that come by themselves do so every ten minutes. A beat is a change like others, in the one watch of a
//! follower, so it comes after all that came before; and it needs a leader and a majority, so a member that is cut off gives no marks.
//!
//! **Unknown outcomes.** A change is sent once. If no answer comes it is [`LedgerError::Unknown`], unless it surely was not sent or the
//! member says that it did nothing.

mod client;
mod connecting;
mod filling;
mod follower;
mod state;
mod wire;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_background::runtime;
use moneta_net::Endpoint;
use parking_lot::Mutex;
use tokio::sync::OnceCell;
use tonic::Code;

use crate::commit::{Commit, Committed, Compare};
use crate::entry::{Cursor, Entry, Hold, Incarnation, Revision, Snapshot};
use crate::error::LedgerError;
use crate::etcd::client::{Client, Failed, Twice};
use crate::etcd::follower::Follower;
use crate::etcd::state::{Keys, State};
use crate::etcd::wire::{
    CompactionRequest, DeleteRangeRequest, Done, KeyValue, LeaseGrantRequest, LeaseKeepAliveResponse, LeaseRequest,
    Operation, PutRequest, RangeRequest, RangeResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use crate::ledger::{Answer, Follow, Ledger};

/// Entries of one page of a snapshot.
const PAGE: i64 = 256;
/// Times that a snapshot is begun again because what it read was compacted away, or the ledger was replaced.
const SNAPSHOT_TRIES: usize = 5;
/// The longest time to live of a hold, in seconds.
const SECONDS_MAX: u64 = 366 * 24 * 60 * 60;

/// A ledger on etcd, below a prefix of its keys.
pub struct Etcd {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    keys: Keys,
    /// As it was seen last.
    state: Mutex<State>,
    /// When a beat was seen last, by any follower.
    beaten: Mutex<Option<Instant>>,
    /// Whether the ledger was found, or made.
    opened: OnceCell<()>,
}

impl std::fmt::Debug for Etcd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Etcd").field("root", &self.shared.keys.root()).finish_non_exhaustive()
    }
}

impl Etcd {
    /// Opens the ledger below `root` on the cluster with these members, each reached, protected and logged in to as its endpoint says;
    /// makes it if it is not there.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] if the cluster does not answer, and [`LedgerError::Damaged`] if what is there is no ledger.
    pub async fn open(endpoints: Vec<Endpoint>, root: &str) -> Result<Self, LedgerError> {
        let etcd = Self::begin(endpoints, root)?;
        etcd.shared.open().await?;
        Ok(etcd)
    }

    /// The same, which looks for the ledger when it is first used: the cluster may not answer yet.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if no member is named, and [`LedgerError::Unavailable`] if there is no thread for it.
    pub fn begin(endpoints: Vec<Endpoint>, root: &str) -> Result<Self, LedgerError> {
        if endpoints.is_empty() {
            return Err(LedgerError::Refused { reason: "no member of the cluster is named".to_owned() });
        }
        let runtime = runtime::handle()
            .map_err(|error| LedgerError::Unavailable { reason: format!("no thread to call etcd on: {error}") })?;
        let (client, keys) = (Client::new(endpoints, runtime), Keys::new(root));
        let (state, beaten, opened) = (Mutex::default(), Mutex::default(), OnceCell::new());
        Ok(Self { shared: Arc::new(Shared { client, keys, state, beaten, opened }) })
    }
}

impl Shared {
    /// Finds the ledger, or makes it, the first time.
    async fn open(&self) -> Result<(), LedgerError> {
        let look = async || match self.look().await? {
            Some(_) => Ok(()),
            None => self.make().await,
        };
        self.opened.get_or_try_init(look).await.copied()
    }

    async fn range(&self, question: RangeRequest) -> Result<RangeResponse, Failed> {
        self.client.call("/etcdserverpb.KV/Range", &question, Twice::Harmless).await
    }

    async fn txn(&self, question: &TxnRequest, twice: Twice) -> Result<TxnResponse, Failed> {
        self.client.call("/etcdserverpb.KV/Txn", question, twice).await
    }

    /// Reads and keeps what ledger it is. Nothing: there is none.
    async fn look(&self) -> Result<Option<(State, i64)>, LedgerError> {
        let question = RangeRequest { key: self.keys.state(), ..RangeRequest::default() };
        let found = self.range(question).await.map_err(Failed::unavailable)?;
        let at = revision_of(found.header)?;
        match found.kvs.first() {
            Some(found) => Ok(Some((self.keep(found)?, at))),
            None => Ok(None),
        }
    }

    /// The same, where there has to be one that can be used.
    async fn ready(&self) -> Result<(State, i64), LedgerError> {
        match self.look().await? {
            Some((state, _)) if state.is_filling => Err(state.filling()),
            Some(found) => Ok(found),
            None => Err(LedgerError::Damaged { reason: format!("{} is gone from etcd", self.keys.root()) }),
        }
    }

    fn keep(&self, found: &KeyValue) -> Result<State, LedgerError> {
        let state = State::read(found)?;
        *self.state.lock() = state;
        Ok(state)
    }

    async fn make(&self) -> Result<(), LedgerError> {
        let state = State { incarnation: random()?, ..State::default() };
        let question = TxnRequest {
            compare: vec![wire::Compare::created(self.keys.state(), wire::EQUAL, 0)],
            success: vec![put(self.keys.state(), state.write(), None).into()],
            failure: Vec::new(),
        };
        // Of several that make it one does, and which is no matter: twice is harmless.
        self.txn(&question, Twice::Harmless).await.map_err(Failed::unavailable)?;
        match self.look().await? {
            Some(_) => Ok(()),
            None => Err(LedgerError::Unavailable { reason: "etcd did not keep what was put".to_owned() }),
        }
    }

    /// A transaction that is only done if it is still the ledger that it was when etcd had this revision of its state.
    fn guarded(&self, modified: i64, mut question: TxnRequest) -> TxnRequest {
        question.compare.push(wire::Compare::modified(self.keys.state(), modified));
        question
            .failure
            .push(Operation::Range(RangeRequest { key: self.keys.state(), ..RangeRequest::default() }).into());
        question
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, LedgerError> {
        commit.check()?;
        let state = *self.state.lock();
        if state.is_filling {
            self.ready().await?;
        }
        let has_holds = commit.puts.iter().any(|put| put.hold.is_some());
        let compare = commit.compares.into_iter().map(|compare| match compare {
            Compare::Absent(key) => wire::Compare::created(self.keys.entry(&key), wire::EQUAL, 0),
            Compare::Present(key) => wire::Compare::created(self.keys.entry(&key), wire::GREATER, 0),
            Compare::Modified(key, revision) => wire::Compare::modified(self.keys.entry(&key), state.theirs(revision)),
        });
        let puts = commit.puts.into_iter().map(|entry| put(self.keys.entry(&entry.key), entry.value, entry.hold));
        let deletes =
            commit.deletes.into_iter().map(|key| Operation::Delete(DeleteRangeRequest { key: self.keys.entry(&key) }));
        let question = TxnRequest {
            compare: compare.collect(),
            success: puts.chain(deletes).map(Into::into).collect(),
            failure: Vec::new(),
        };
        let changes = !question.success.is_empty();
        let twice = if changes { Twice::Never } else { Twice::Harmless };
        let answer = self.txn(&self.guarded(state.modified, question), twice).await.map_err(|failed| match failed {
            Failed::Answered(Code::NotFound, words) if has_holds && words.contains("lease not found") => {
                LedgerError::HoldEnded
            }
            Failed::Answered(Code::InvalidArgument, reason) => LedgerError::Refused { reason },
            Failed::Perhaps(reason) if changes => LedgerError::Unknown { reason },
            failed => failed.unavailable(),
        })?;
        let at = revision_of(answer.header)?;
        if answer.succeeded {
            return Ok(Committed::Done(state.ours(at)));
        }
        let found = answer.ranges().next().and_then(|found| found.kvs.into_iter().next());
        let Some(found) = found else {
            return Err(LedgerError::Damaged { reason: format!("{} is gone from etcd", self.keys.root()) });
        };
        let now = self.keep(&found)?;
        match now.modified == state.modified {
            true => Ok(Committed::Conflict),
            false => Err(LedgerError::Replaced { now: now.incarnation }),
        }
    }

    /// One attempt at a snapshot; nothing if it has to be begun anew.
    async fn snapshot(&self, prefix: &str) -> Result<Option<Snapshot>, LedgerError> {
        let (mut from, end) = self.keys.entries(prefix);
        let page = |key: Vec<u8>, revision| RangeRequest {
            key,
            range_end: end.clone(),
            limit: PAGE,
            revision,
            ..RangeRequest::default()
        };
        let question = TxnRequest {
            success: vec![
                Operation::Range(RangeRequest { key: self.keys.state(), ..RangeRequest::default() }).into(),
                Operation::Range(page(from, 0)).into(),
            ],
            ..TxnRequest::default()
        };
        let answer = self.txn(&question, Twice::Harmless).await.map_err(Failed::unavailable)?;
        let at = revision_of(answer.header)?;
        let mut ranges = answer.ranges();
        let (Some(found), Some(mut entries)) = (ranges.next(), ranges.next()) else { return Err(misunderstood()) };
        let Some(found) = found.kvs.first() else {
            return Err(LedgerError::Damaged { reason: format!("{} is gone from etcd", self.keys.root()) });
        };
        let state = self.keep(found)?;
        if state.is_filling {
            return Err(state.filling());
        }
        let mut snapshot = Snapshot {
            incarnation: state.incarnation,
            revision: state.ours(at),
            entries: Vec::with_capacity(entries.kvs.len()),
        };
        loop {
            let last = entries.kvs.last().map(|last| last.key.clone());
            for found in entries.kvs {
                snapshot.entries.push(self.entry(state, found)?);
            }
            let (true, Some(last)) = (entries.more, last) else { return Ok(Some(snapshot)) };
            from = [&last[..], &[0]].concat();
            entries = match self.range(page(from, at)).await {
                Ok(entries) => entries,
                Err(Failed::Answered(Code::OutOfRange, _)) => return Ok(None),
                Err(failed) => return Err(failed.unavailable()),
            };
        }
    }

    fn entry(&self, state: State, found: KeyValue) -> Result<Entry, LedgerError> {
        Ok(Entry {
            key: self.keys.key_of(&found.key).ok_or_else(misunderstood)?,
            value: found.value,
            created: state.ours(found.create_revision),
            modified: state.ours(found.mod_revision),
            hold: (found.lease != 0).then_some(Hold(found.lease)),
        })
    }

    /// From where on one can follow, as far as this ledger's own compactions say.
    async fn compacted(&self) -> Result<Revision, LedgerError> {
        let question = RangeRequest { key: self.keys.compacted(), ..RangeRequest::default() };
        let found = self.range(question).await.map_err(Failed::unavailable)?;
        match found.kvs.first() {
            None => Ok(Revision(0)),
            Some(found) => match str::from_utf8(&found.value).ok().and_then(|text| text.parse().ok()) {
                Some(revision) => Ok(Revision(revision)),
                None => Err(misunderstood()),
            },
        }
    }

    /// Fails if what came right after a revision of etcd may have been compacted away.
    async fn check_kept(&self, state: State, after: i64) -> Result<(), LedgerError> {
        // Revision 1 is etcd's empty store.
        let question = RangeRequest {
            key: self.keys.state(),
            revision: after.max(1),
            count_only: true,
            ..RangeRequest::default()
        };
        match self.range(question).await {
            Ok(_) => Ok(()),
            Err(Failed::Answered(Code::OutOfRange, words)) if words.contains("future") => {
                let (_, at) = self.ready().await?;
                Err(LedgerError::Future { asked: state.ours(after), at: state.ours(at) })
            }
            Err(Failed::Answered(Code::OutOfRange, _)) => {
                let (_, at) = self.ready().await?;
                Err(LedgerError::Compacted {
                    oldest: self.compacted().await?.max(state.ours(after + 1)).min(state.ours(at)),
                })
            }
            Err(failed) => Err(failed.unavailable()),
        }
    }

    async fn follow(self: Arc<Self>, prefix: String, after: Cursor) -> Result<Follower, LedgerError> {
        let (state, at) = self.ready().await?;
        if after.incarnation != state.incarnation {
            return Err(LedgerError::Replaced { now: state.incarnation });
        }
        if after.revision > state.ours(at) {
            return Err(LedgerError::Future { asked: after.revision, at: state.ours(at) });
        }
        let oldest = self.compacted().await?;
        if after.revision < oldest {
            return Err(LedgerError::Compacted { oldest });
        }
        let from = state.theirs(after.revision).max(0);
        self.check_kept(state, from).await?;
        let (key, range_end) = self.keys.all();
        let create = WatchCreateRequest { key, range_end, start_revision: from + 1, fragment: true };
        let member = self.client.preferred();
        let question = WatchRequest { create: Some(create) };
        let watch = self.client.stream::<_, WatchResponse>("/etcdserverpb.Watch/Watch", &question);
        let watch = watch.await.map_err(Failed::unavailable)?;
        // A first mark, which also shows that there is a leader.
        self.beat();
        Ok(Follower::new(self, prefix, state, from, watch, member))
    }

    /// Puts a beat, without a wait for it.
    fn beat(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.client.runtime.spawn(async move {
            let question = put_request(shared.keys.beat(), Bytes::new(), None);
            // A beat that fails is a mark that does not come.
            let _ = shared.client.call::<_, Done>("/etcdserverpb.KV/Put", &question, Twice::Harmless).await;
        });
    }

    async fn compact(&self, before: Revision) -> Result<(), LedgerError> {
        let (state, at) = self.ready().await?;
        if before > state.ours(at) {
            return Err(LedgerError::Future { asked: before, at: state.ours(at) });
        }
        let revision = state.theirs(before);
        if revision <= 0 || before <= self.compacted().await? {
            return Ok(());
        }
        let mark = put(self.keys.compacted(), Bytes::from(before.to_string()), None);
        let question = self.guarded(state.modified, TxnRequest { success: vec![mark.into()], ..TxnRequest::default() });
        let marked = self.txn(&question, Twice::Harmless).await.map_err(Failed::unavailable)?;
        if !marked.succeeded {
            let (now, _) = self.ready().await?;
            return Err(LedgerError::Replaced { now: now.incarnation });
        }
        let question = CompactionRequest { revision };
        match self.client.call::<_, Done>("/etcdserverpb.KV/Compact", &question, Twice::Harmless).await {
            // Others may have compacted further.
            Ok(_) | Err(Failed::Answered(Code::OutOfRange, _)) => Ok(()),
            Err(failed) => Err(failed.unavailable()),
        }
    }

    async fn hold(&self, ttl: Duration) -> Result<Hold, LedgerError> {
        let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0)).clamp(1, SECONDS_MAX);
        // Named here, so that a second attempt finds what the first one did.
        let id = (random()?.0 >> 1).cast_signed().max(1);
        let question = LeaseGrantRequest { ttl: seconds.cast_signed(), id };
        match self.client.call::<_, Done>("/etcdserverpb.Lease/LeaseGrant", &question, Twice::Harmless).await {
            Ok(_) => Ok(Hold(id)),
            Err(Failed::Answered(Code::FailedPrecondition, words)) if words.contains("already exists") => Ok(Hold(id)),
            Err(failed) => Err(failed.unavailable()),
        }
    }

    async fn renew(&self, hold: Hold) -> Result<(), LedgerError> {
        let question = LeaseRequest { id: hold.0 };
        let renewing = async {
            let mut answers = self
                .client
                .stream::<_, LeaseKeepAliveResponse>("/etcdserverpb.Lease/LeaseKeepAlive", &question)
                .await?;
            let answer = answers.message().await.map_err(|status| Failed::Perhaps(status.message().to_owned()))?;
            Ok(answer.map(|answer| answer.ttl))
        };
        let member = self.client.preferred();
        match crate::deadline::within(&self.client.runtime, client::DEADLINE, renewing).await {
            Some(Ok(Some(1..))) => Ok(()),
            Some(Ok(Some(_))) => Err(LedgerError::HoldEnded),
            Some(Err(Failed::Answered(Code::NotFound, _))) => Err(LedgerError::HoldEnded),
            Some(Err(failed)) => {
                self.client.leave(member);
                Err(failed.unavailable())
            }
            Some(Ok(None)) | None => {
                self.client.leave(member);
                Err(LedgerError::Unavailable { reason: "etcd did not renew in time".to_owned() })
            }
        }
    }

    async fn release(&self, hold: Hold) -> Result<(), LedgerError> {
        let question = LeaseRequest { id: hold.0 };
        match self.client.call::<_, Done>("/etcdserverpb.Lease/LeaseRevoke", &question, Twice::Harmless).await {
            Ok(_) | Err(Failed::Answered(Code::NotFound, _)) => Ok(()),
            Err(failed) => Err(failed.unavailable()),
        }
    }
}

fn put_request(key: Vec<u8>, value: Bytes, hold: Option<Hold>) -> PutRequest {
    PutRequest { key, value, lease: hold.map_or(0, |hold| hold.0) }
}

fn put(key: Vec<u8>, value: Bytes, hold: Option<Hold>) -> Operation {
    Operation::Put(put_request(key, value, hold))
}

fn revision_of(header: Option<wire::Header>) -> Result<i64, LedgerError> {
    header.map(|header| header.revision).ok_or_else(misunderstood)
}

fn misunderstood() -> LedgerError {
    LedgerError::Damaged { reason: "etcd has what no ledger wrote".to_owned() }
}

fn random() -> Result<Incarnation, LedgerError> {
    let drawn = getrandom::u64();
    drawn.map(Incarnation).map_err(|error| LedgerError::Unavailable { reason: format!("no randomness: {error}") })
}

impl Ledger for Etcd {
    fn snapshot<'a>(&'a self, prefix: &'a str) -> Answer<'a, Snapshot> {
        Box::pin(async move {
            self.shared.open().await?;
            for _ in 0..SNAPSHOT_TRIES {
                if let Some(snapshot) = self.shared.snapshot(prefix).await? {
                    return Ok(snapshot);
                }
            }
            Err(LedgerError::Unavailable { reason: "what was read was compacted away again and again".to_owned() })
        })
    }

    fn commit(&self, commit: Commit) -> Answer<'_, Committed> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.commit(commit).await
        })
    }

    fn follow<'a>(&'a self, prefix: &'a str, after: Cursor) -> Answer<'a, Box<dyn Follow>> {
        Box::pin(async move {
            self.shared.open().await?;
            let follower = Arc::clone(&self.shared).follow(prefix.to_owned(), after).await?;
            Ok(Box::new(follower) as Box<dyn Follow>)
        })
    }

    fn compact(&self, before: Revision) -> Answer<'_, ()> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.compact(before).await
        })
    }

    fn hold(&self, ttl: Duration) -> Answer<'_, Hold> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.hold(ttl).await
        })
    }

    fn renew(&self, hold: Hold) -> Answer<'_, ()> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.renew(hold).await
        })
    }

    fn release(&self, hold: Hold) -> Answer<'_, ()> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.release(hold).await
        })
    }

    fn fill(&self, above: Revision, entries: Vec<(String, Bytes)>) -> Answer<'_, Cursor> {
        Box::pin(async move {
            self.shared.open().await?;
            self.shared.fill(above, entries).await
        })
    }
}
