//! Compares the last writes of a process that is gone on all copies, by the nodes' feeds, and gives each copy what it lacks.
//!
//! A process that is killed may have given a write to some copies and not to others. None of these writes was answered, but
//! copies differ until the key is written again, and no other process knows of it. That a process is gone is known by
//! [`crate::living`]. What changed while it wrote last is read from the feeds of all nodes; of a key of which they tell
//! different versions, the newest goes to the copies that have an older one or none, as a hint is delivered.
//!
//! | a copy | is |
//! |---|---|
//! | has the newest version, or a newer one | left |
//! | has an older item, and another copy shows the newest | given that |
//! | has nothing, and remembers every delete since the newest was written | given that |
//! | has nothing, and does not | left: it may have been deleted there |
//! | has an older item, and another copy, known to lack no write of the key, told a delete and shows nothing | made to delete it |
//!
//! Nothing else is taken away. docs/decisions/38-mending.md says why so.

use std::sync::Arc;
use std::time::Duration;

use moneta_background::Run;
use moneta_feed::{Begin, Change, Line, Next, Source, SourceError};
use moneta_store::{Key, Lookup, Op, Outcome, OwnedKey, Version};

use crate::apart::APART;
use crate::cluster::Cluster;
use crate::error::ClusterError;
use crate::hints::{Belief, Missed};
use crate::layout::Layout;
use crate::living::Process;
use crate::maintenance::Delivery;
use crate::mending::Span;
use crate::node::Node;
use crate::shared::ClusterShared;
use crate::told_keys::{Table, Told};

/// Between two rounds.
const PAUSE: Duration = Duration::from_secs(1);
/// One that has heard no board for longer than this does not know who lives, in milliseconds.
const HEARD: u64 = 3_000;
/// Bytes a second that a node is asked to tell, at most.
const RATE: u64 = 16 << 20;
/// Keys that are compared at once.
const AT_ONCE: usize = 32;
/// How long a node that could not be asked is waited for, and how often it is looked for, in milliseconds.
const PATIENCE: u64 = 3_600_000;
const AGAIN: u64 = 30_000;

/// How far a node's feed could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Read {
    /// It was read.
    is_told: bool,
    /// It does not answer, and may later.
    is_away: bool,
    /// Since when the node remembers every delete, in milliseconds since the Unix epoch; 0: that is not known.
    horizon: u64,
    has_gap: bool,
}

impl Cluster {
    /// Starts the thread that mends. It ends when the store is closed or dropped.
    pub(crate) fn keep_mending(&self) -> Result<(), ClusterError> {
        let shared = Arc::downgrade(self.shared());
        if self.shared().mends_after().is_none() {
            return Ok(());
        }
        let run = move |task: &Run| {
            while let Some(shared) = shared.upgrade().filter(|shared| !shared.is_closed()) {
                pollster::block_on(shared.mend(|pause| task.sleep(pause)));
                drop(shared);
                if !task.sleep(PAUSE) {
                    break;
                }
            }
        };
        moneta_background::start("cluster-mend", run).map_err(ClusterError::Thread)?;
        Ok(())
    }

    /// One round of what the thread does, for callers that have none.
    pub async fn mend(&self) {
        self.shared().mend(|_| true).await;
    }
}

impl ClusterShared {
    /// After how long without a word a process is gone, in milliseconds, with one process; `None`: none ever is.
    pub(crate) fn mends_after(&self) -> Option<u64> {
        u64::try_from(self.config.mend_after.as_millis()).ok().filter(|after| *after > 0)
    }

    /// Takes up the last writes of processes that are gone, and compares those whose time has come. `sleep` is false if it is to
    /// end.
    async fn mend(self: &Arc<Self>, sleep: impl Fn(Duration) -> bool) {
        let now = self.clock.millis();
        self.take_up(now);
        let (layout, due) = {
            let spans = self.mending.lock();
            let layout = self.layout();
            // A node that is away would not answer this time, too.
            let waits = |span: &&Span| span.is_repeated && layout.nodes.iter().any(|node| node.health.is_ejected());
            let due = spans.0.iter().position(|span| span.at <= now && !waits(&span));
            (Arc::clone(&layout), due.map(|at| (at, spans.0[at].clone())))
        };
        if let Some((at, span)) = due {
            let is_whole = self.mend_span(&layout, &span, &sleep).await;
            let mut spans = self.mending.lock();
            match is_whole {
                true => drop(spans.0.remove(at)),
                false => (spans.0[at].at, spans.0[at].is_repeated) = (self.clock.millis() + AGAIN, true),
            }
            drop(spans);
            // Another process would find the same nodes away.
            span.of.iter().for_each(|process| self.tell_taken(Process { taken: Process::DONE, ..*process }));
        }
        self.mending.lock().0.retain(|span| span.until.saturating_add(PATIENCE) > now);
    }

    /// Takes up the last writes of processes that are gone, if no other process is to.
    fn take_up(&self, now: u64) {
        let Some(after) = self.mends_after() else { return };
        // One that was cut off, or stopped, has heard none of them, and hears them first.
        if self.heard_at.load(std::sync::atomic::Ordering::Relaxed).saturating_add(HEARD) <= now {
            return;
        }
        let (gone, due) = {
            let mut board = self.board.lock();
            let author = board.author;
            let living = &board.notice.living;
            let (gone, due) = (living.gone(after), living.to_take(author, after, now));
            let living = living.clone();
            // What all know is said.
            board.taken_up.retain(|process| living.lacks(process, now));
            (gone, due)
        };
        let mut spans = self.mending.lock();
        for process in due {
            // It said that it lives less often than it wrote, and its last word may not have been heard.
            let (from, until) = (process.at.saturating_sub(self.rules.under_way() + 2 * APART), process.at + gone);
            let at = until + self.rules.under_way() + APART;
            match spans.0.iter_mut().find(|span| !span.is_repeated && from <= span.until && span.from <= until) {
                Some(span) => {
                    (span.from, span.until) = (span.from.min(from), span.until.max(until));
                    span.at = span.at.max(at);
                    span.of.push(process);
                }
                None => spans.0.push(Span { of: vec![process], from, until, at, is_repeated: false }),
            }
            self.counters.mends.processes.add(1);
            tracing::info!(
                app = self.config.app,
                "another process of the app says nothing more: what it wrote last is compared on all copies"
            );
            self.tell_taken(Process { taken: now, ..process });
        }
    }

    /// Has others know that a process was taken up.
    fn tell_taken(&self, process: Process) {
        let mut board = self.board.lock();
        board.taken_up.retain(|known| known.author != process.author);
        board.taken_up.push(process);
    }

    /// Compares the writes of a span, and gives copies what they lack; whether all nodes could be asked.
    async fn mend_span(self: &Arc<Self>, layout: &Layout, span: &Span, sleep: &impl Fn(Duration) -> bool) -> bool {
        let compared = match self.compared() {
            Ok(compared) => compared,
            Err(error) => {
                if !span.is_repeated {
                    let app = &self.config.app;
                    tracing::warn!(app, %error, "the last writes of a process that is gone are not compared yet");
                }
                // An app that is there no more counts for ten minutes.
                return false;
            }
        };
        let mut first = 0;
        let mut is_whole = true;
        let mut given = 0;
        loop {
            let mut table = Table::new(span.from, first);
            let mut reads = vec![Read::default(); layout.nodes.len()];
            for (copy, replica) in layout.replicas.iter().enumerate() {
                let of_copy = replica.first..replica.first + replica.count;
                for (index, read) in of_copy.clone().zip(&mut reads[of_copy]) {
                    let node = &layout.nodes[index];
                    if node.health.is_ejected() {
                        read.is_away = true;
                        continue;
                    }
                    let Some(source) = self.connect.feed(&node.place, table.buckets()) else { continue };
                    let is_ours = |key: &[u8]| replica.node_of(key) == index && compared.has(key);
                    *read = self.read_feed(source, span, &is_ours, copy, layout.replicas.len(), &mut table);
                    self.counters.mends.gaps.add(u64::from(read.has_gap && first == 0));
                    if self.is_closed() {
                        return false;
                    }
                }
            }
            is_whole &= !reads.iter().any(|read| read.is_away);
            let differ = |told: &&Told| {
                let newest = told.iter().max().expect("there is a copy");
                newest.0.millis() <= span.until && told.iter().any(|told| told.0 != newest.0)
            };
            let differing: Vec<_> = table.keys.iter().filter(|(_, told)| differ(told)).collect();
            for some in differing.chunks(AT_ONCE) {
                let all = some.iter().map(|(key, told)| self.mend_key(layout, &reads, key, told));
                given += futures_util::future::join_all(all).await.into_iter().sum::<u64>();
                let pause = Duration::from_secs(1) * some.len() as u32 / self.rules.hint_rate().max(1);
                if self.is_closed() || !sleep(pause) {
                    return false;
                }
            }
            match table.last.checked_add(1) {
                Some(next) => first = next,
                None => break,
            }
        }
        tracing::info!(
            app = self.config.app,
            given,
            is_whole,
            "the last writes of a process that is gone were compared"
        );
        is_whole
    }

    /// Reads what a node tells of its keys since a span began.
    fn read_feed(
        &self,
        mut source: Box<dyn Source>,
        span: &Span,
        is_ours: &impl Fn(&[u8]) -> bool,
        copy: usize,
        copies: usize,
        table: &mut Table,
    ) -> Read {
        let mut read = Read::default();
        // By then other processes' writes of the span are on all nodes that answer.
        let end = span.until + self.rules.under_way() + 2 * APART;
        let mut go_on = || -> Result<(), SourceError> {
            source.begin(Begin::Since(span.from.saturating_sub(APART)), RATE)?;
            loop {
                match source.next()? {
                    Next::Line(Line::Change(Change::Set(set))) if is_ours(&set.key) && !set.meta.unversioned => {
                        self.note_told(table, &set.key, set.meta.version(), false, copy, copies);
                    }
                    Next::Line(Line::Change(Change::Delete { key, version })) if is_ours(&key) => {
                        self.note_told(table, &key, version, true, copy, copies);
                    }
                    Next::Oversized { key, version } if is_ours(&key) => {
                        self.note_told(table, &key, version, false, copy, copies);
                    }
                    Next::Line(Line::Change(Change::Gap(gap))) => read.has_gap |= gap.since > span.from,
                    Next::Line(Line::Change(_)) | Next::Oversized { .. } => {}
                    Next::Line(Line::Mark(mark)) => {
                        read.horizon = mark.horizon;
                        if mark.watermark > end {
                            return Ok(());
                        }
                    }
                    Next::Line(Line::End) => return Ok(()),
                    Next::Lacking(bytes) => source.wait(bytes)?,
                }
                if self.is_closed() {
                    return Ok(());
                }
            }
        };
        match go_on() {
            Ok(()) => read.is_told = true,
            Err(SourceError::Away(why)) => {
                tracing::debug!(app = self.config.app, why, "a feed cannot be read");
                read.is_away = true;
            }
            // A memcached, a node that is none of a cluster, or one that does not show its feed to this process.
            Err(error) => tracing::debug!(app = self.config.app, %error, "a node tells no changes"),
        }
        read
    }

    /// No write has a version from the future.
    fn note_told(&self, table: &mut Table, key: &[u8], version: Version, deleted: bool, copy: usize, copies: usize) {
        if !self.stamps.is_ahead(version, self.clock.millis()) {
            table.note(key, version, deleted, copy, copies);
        }
    }

    /// Gives the copies that lack it the newest write of a key; how many were.
    async fn mend_key(self: &Arc<Self>, layout: &Layout, reads: &[Read], key: &[u8], told: &Told) -> u64 {
        let (version, deleted) = told.iter().copied().max().expect("there is a copy");
        let owned = OwnedKey::of(&Key::new(key, self.seed));
        let missed_at = version.millis().min(self.clock.millis());
        let missed = match deleted {
            true => Missed::delete(version, missed_at),
            false => Missed::set(version, missed_at),
        };
        let mut given = 0;
        for (copy, replica) in layout.replicas.iter().enumerate() {
            let index = replica.node_of(key);
            if told[copy].0 >= version || !reads[index].is_told {
                continue;
            }
            let node = &layout.nodes[index];
            match self.lacks(node, &reads[index], &owned, &missed).await {
                Some(true) => {}
                Some(false) => continue,
                None => {
                    self.counters.mends.left.add(1);
                    continue;
                }
            }
            match self.mend_copy(layout, index, told, &owned, missed).await {
                true => given += 1,
                false => self.counters.mends.left.add(1),
            }
        }
        self.counters.mends.given.add(given);
        given
    }

    /// Whether a node lacks a write. `None`: it does not say.
    async fn lacks(&self, node: &Node, read: &Read, key: &OwnedKey, missed: &Missed) -> Option<bool> {
        let peeked = self.finish(&*node.store, key, Op::Peek).await;
        match self.believed(node, peeked).map(Outcome::lookup).ok()? {
            Lookup::Found(item) => Some(!item.meta.unversioned && item.meta.version() < missed.version),
            // What is younger than that was not deleted there, unless the node would refuse it.
            _ => Some(!missed.deleted && read.horizon > 0 && read.horizon < missed.version.millis()),
        }
    }

    /// Gives a node a write that it lacks; whether it has it, or will be given it as a hint.
    async fn mend_copy(
        self: &Arc<Self>,
        layout: &Layout,
        index: usize,
        told: &Told,
        key: &OwnedKey,
        missed: Missed,
    ) -> bool {
        let node = &layout.nodes[index];
        let asked = self.clock.millis();
        let found = match missed.deleted {
            true => match self.is_gone_elsewhere(layout, told, key, missed.version).await {
                true => None,
                false => return false,
            },
            false => match self.newest(layout, index, key.key().bytes, missed).await {
                Ok(Some(item)) if item.meta.version() >= missed.version => Some(item),
                _ => return false,
            },
        };
        if self.give(node, key, found, missed, asked).await != Delivery::Done {
            node.hints.note(key.key().bytes, missed);
        }
        true
    }

    /// Whether a copy that told a delete shows nothing of the key, and nothing speaks against that.
    async fn is_gone_elsewhere(&self, layout: &Layout, told: &Told, key: &OwnedKey, version: Version) -> bool {
        for (replica, _) in layout.replicas.iter().zip(told).filter(|(_, told)| **told == (version, true)) {
            let source = &layout.nodes[replica.node_of(key.key().bytes)];
            let peeked = self.finish(&*source.store, key, Op::Peek).await;
            let is_believed = source.known(&key.key()).judge(None) == Belief::Believed;
            let shown = self.believed(source, peeked).map(Outcome::lookup);
            if is_believed && matches!(shown, Ok(Lookup::Miss { .. })) {
                return true;
            }
        }
        false
    }
}
