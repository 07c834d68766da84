//! From the archive into nodes, to the last restore point at or before a moment.
//!
//! | | what the target holds | what clients write meanwhile |
//! |---|---|---|
//! | fill | stays where it is newer than the archive's; items keep their versions | stays |
//! | rollback | goes: it is flushed, then items are written just above the flush | stays: it is above the flush, too |

use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_bulk::law::Room;
use moneta_bulk::target::TargetSink;
use moneta_bulk::{
    BulkError, Counters, Counts, Place, RateConfig, Server, Throttle, WalkSource, Watch, Which, Written,
};
use moneta_client::wire::blocking::Dialogue;
use moneta_client::wire::{Answer, Request, Verb};
use moneta_feed::{Begin, Change, Durable, Line, Next, Set, Sink, SinkError, Source, SourceError, Word};
use moneta_item::{Origin, Version};
use moneta_net::Endpoint;
use moneta_segments::Archive;
use moneta_store::versions::Floor;
use serde::Serialize;

use crate::error::BackupError;
use crate::layout::{Slot, slots};
use crate::moment::{millis, second};
use crate::point::{Point, find};
use crate::rings;
use crate::state::{Reading, State};

/// Changes that are handed to a target at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 512 << 10;
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// What is restored, and how.
#[derive(Clone, Debug)]
pub struct RestoreConfig {
    /// Where items go: each to all of these.
    pub places: Vec<Place>,
    /// To the last restore point at or before this moment, Unix milliseconds.
    pub at: u64,
    /// Only keys that begin so.
    pub prefix: Vec<u8>,
    /// What the targets hold goes first.
    pub rolls_back: bool,
    /// The region in which a rollback is written; `None`: that of the targets. Another one than theirs is refused.
    pub region: Option<u8>,
    /// How fast it may go.
    pub rate: RateConfig,
    /// The largest value of the archive, in bytes.
    pub value_max: usize,
}

/// What was restored.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Restored {
    /// All was read.
    pub done: bool,
    /// The restore point of each slot, Unix milliseconds.
    pub points: Vec<(String, u64)>,
    /// What was read.
    pub read: Counts,
    /// Items that have expired since the restore point.
    pub expired: u64,
    /// What became of items.
    pub written: Written,
    /// What it left to clients, if it had a limit on what they wait.
    pub p99: Option<Room>,
}

/// The restore points of all slots at or before a moment.
///
/// # Errors
/// If a slot has none that had keys then, or what it needs is not whole.
pub fn points(archive: &Arc<dyn Archive>, at: u64) -> Result<Vec<Point>, BackupError> {
    let names = slots(&**archive)?;
    if names.is_empty() {
        return Err(BackupError::Refused("there is no backup here".to_owned()));
    }
    let point = |name: String| Ok((name.clone(), find(&Slot::open(archive, &name)?, at)?));
    let found = names.into_iter().map(point).collect::<Result<_, BackupError>>()?;
    rings::chosen(&**archive, found)
}

/// Restores all slots of an archive.
///
/// # Errors
/// If there is no restore point, what it needs is not whole, or a target does not take it. All that is needed is looked for
/// before a target is changed.
pub fn restore(config: &RestoreConfig, archive: &Arc<dyn Archive>, watch: &dyn Watch) -> Result<Restored, BackupError> {
    restore_points(config, &points(archive, config.at)?, watch)
}

/// Restores these points.
pub(crate) fn restore_points(
    config: &RestoreConfig,
    points: &[Point],
    watch: &dyn Watch,
) -> Result<Restored, BackupError> {
    let moments = points.iter().map(|point| (point.slot.clone(), point.watermark)).collect();
    let mut restored = Restored { points: moments, ..Restored::default() };
    let mut targets = Vec::new();
    for place in &config.places {
        let servers = place.nodes.iter().map(Server::look).collect::<Result<Vec<_>, _>>()?;
        if let Some(server) = servers.iter().find(|server| config.rolls_back && !server.has_versions) {
            return Err(BackupError::Refused(format!("{} knows no versions: --rollback needs them", server.name())));
        }
        targets.push(Target { sink: TargetSink::new(place, &servers)?, servers, name: place.name.clone() });
    }
    let all = || targets.iter().flat_map(|target| &target.servers);
    let region = if config.rolls_back { Server::common_region(all(), config.region)? } else { 0 };
    let nodes: Vec<Endpoint> = all().map(|server| server.endpoint.clone()).collect();
    let mut durable = Durable::of(nodes.iter().cloned());
    // Read to the end before anything goes: a damaged segment leaves the targets as they are.
    let reading = Reading { prefix: config.prefix.clone(), value_max: config.value_max };
    let mut states = Vec::new();
    for point in points {
        watch.phase(&format!("reading {}", point.slot), Some(point.counts().sets));
        states.push(State::read(point, &reading)?);
        if watch.should_stop() {
            return Ok(restored);
        }
    }
    let flush = if config.rolls_back { Some(clear(config, region, &mut targets, watch)?) } else { None };
    let written =
        |targets: &[Target]| targets.iter().fold(Written::default(), |sum, target| sum.and(target.sink.written()));
    let cleared = written(&targets);
    let expected = points.iter().fold(0, |sum: u64, point| sum.saturating_add(point.base.counts.sets));
    watch.phase(if config.rolls_back { "rolling back" } else { "filling" }, Some(expected));
    let throttle = config.rate.throttle();
    let throttles = [throttle.clone()];
    let mut writer = Writer { targets: &mut targets, batch: Vec::new(), bytes: 0, throttle, watch };
    let run = || write(&mut states, flush, &mut writer, &mut restored);
    let (ended, p99) = config.rate.governed(nodes, &throttles, watch, run)?;
    let mut is_stopped = !ended?;
    restored.p99 = p99;
    durable.note(());
    match durable.finish(|| watch.should_stop()) {
        Some(Word::Durable(_)) => {}
        Some(Word::Lost(node, _)) => {
            return Err(BackupError::Refused(format!(
                "{node} was started anew in the middle of this, and may lack what it was given last: restore again"
            )));
        }
        None if watch.should_stop() => is_stopped = true,
        None => return Err(BulkError::NotDurable.into()),
    }
    targets.iter().flat_map(|target| &target.servers).try_for_each(Server::check_life)?;
    restored.done = !is_stopped;
    let all = written(&targets);
    // Of items, and not of what took the others away.
    let (taken, superseded) = (all.taken - cleared.taken, all.superseded - cleared.superseded);
    restored.written = Written { taken, superseded, ..all };
    Ok(restored)
}

/// Writes what slots held; above a flush, if there was one. False: it was stopped.
fn write(
    states: &mut [State],
    flush: Option<Version>,
    writer: &mut Writer<'_>,
    restored: &mut Restored,
) -> Result<bool, BackupError> {
    let watch = writer.watch;
    let mut told = Instant::now();
    let mut is_stopped = false;
    for state in states {
        state.items(|set| {
            if is_stopped || watch.should_stop() {
                is_stopped = true;
                return Ok(());
            }
            if set.meta.expiry.is_dead(second(millis())) {
                restored.expired += 1;
                return Ok(());
            }
            let change = Change::Set(match flush {
                Some(flush) => above(set, flush),
                None => Set { as_of: None, ..set },
            });
            restored.read.items += 1;
            restored.read.bytes += change.size() as u64;
            if told.elapsed() >= TELL_EVERY {
                told = Instant::now();
                watch.progress(restored.read);
            }
            writer.add(change)
        })?;
    }
    writer.settle()?;
    watch.progress(restored.read);
    Ok(!is_stopped)
}

/// An item as one that was written just after the flush, under a version that tells relays so: they carry it if they carry
/// flushes. Of then it is current, and not of now: a client may have deleted the key
/// since, and a node may have started anew and forgotten that.
fn above(set: Set, flush: Version) -> Set {
    let version = flush.rolled_back();
    let mut meta = set.meta;
    meta.cas = version.0;
    meta.unversioned = false;
    Set { meta, as_of: Some(flush.millis()), ..set }
}

struct Target {
    sink: TargetSink,
    servers: Vec<Server>,
    name: String,
}

impl Target {
    fn failed(&self) -> impl Fn(SinkError) -> BackupError + use<> {
        let target = self.name.clone();
        move |source| BackupError::Target { target: target.clone(), source }
    }
}

/// Hands items on, in batches, to all targets.
struct Writer<'a> {
    targets: &'a mut [Target],
    batch: Vec<Change>,
    bytes: usize,
    throttle: Throttle,
    watch: &'a dyn Watch,
}

impl Writer<'_> {
    fn add(&mut self, change: Change) -> Result<(), BackupError> {
        self.bytes += change.size();
        self.batch.push(change);
        if self.batch.len() >= self.throttle.batch(BATCH) || self.bytes >= BATCH_BYTES { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> Result<(), BackupError> {
        let batch = std::mem::take(&mut self.batch);
        self.throttle.sent(batch.len() as u64, std::mem::take(&mut self.bytes) as u64);
        for target in &mut *self.targets {
            let failed = target.failed();
            target.sink.take(batch.clone()).map_err(failed)?;
        }
        self.throttle.wait(|| self.watch.should_stop());
        Ok(())
    }

    fn settle(&mut self) -> Result<(), BackupError> {
        self.send()?;
        for target in &mut *self.targets {
            let failed = target.failed();
            target.sink.settle().map_err(failed)?;
        }
        Ok(())
    }
}

/// Takes from the targets what they hold: by a flush, or of a prefix by a delete of each key. Tells the version under which.
fn clear(
    config: &RestoreConfig,
    region: u8,
    targets: &mut [Target],
    watch: &dyn Watch,
) -> Result<Version, BackupError> {
    let (mut now, mut newest) = (0, Version::ZERO);
    for server in targets.iter().flat_map(|target| &target.servers) {
        let (time, version) = ask(server)?;
        now = now.max(time);
        newest = newest.max(version);
    }
    let now = if now == 0 { millis() } else { now };
    let flush = Version::of_rollback(newest, now, Origin::new(region, 0));
    watch.note(&format!("what the targets hold goes under version {}", flush.0));
    for target in targets {
        let failed = target.failed();
        if config.prefix.is_empty() {
            let floor = Floor { version: flush, second: second(flush.millis()) };
            target.sink.take(vec![Change::Flush(floor)]).map_err(&failed)?;
        } else {
            for server in &target.servers {
                let which = Which { prefix: config.prefix.clone(), ..Which::default() };
                let mut walk = WalkSource::new(server.endpoint.clone(), which, config.value_max, Counters::default());
                let mut batch = Vec::new();
                bury(&mut walk, flush, &mut batch, |batch| target.sink.take(batch).map_err(&failed))?;
            }
        }
        target.sink.settle().map_err(&failed)?;
    }
    Ok(flush)
}

/// Deletes each key that a walk tells.
fn bury(
    walk: &mut WalkSource,
    version: Version,
    batch: &mut Vec<Change>,
    mut take: impl FnMut(Vec<Change>) -> Result<(), BackupError>,
) -> Result<(), BackupError> {
    let refused = |error: SourceError| BackupError::Refused(error.to_string());
    walk.begin(Begin::Since(0), 0).map_err(refused)?;
    loop {
        match walk.next().map_err(refused)? {
            Next::Line(Line::Change(Change::Set(set))) => batch.push(Change::Delete { key: set.key, version }),
            Next::Line(Line::End) => return take(std::mem::take(batch)),
            Next::Line(_) => {}
            Next::Oversized { key, .. } => batch.push(Change::Delete { key, version }),
            Next::Lacking(bytes) => walk.wait(bytes).map_err(refused)?,
        }
        if batch.len() >= BATCH {
            take(std::mem::take(batch))?;
        }
    }
}

/// A node's clock, in Unix milliseconds, and the newest version that it knows.
fn ask(server: &Server) -> Result<(u64, Version), BackupError> {
    let failed = |source| BackupError::Server(moneta_bulk::BulkError::Server { server: server.name(), source });
    let mut dialogue = Dialogue::open(&server.endpoint, None, 0).map_err(failed)?;
    let time = dialogue.server_time().map_err(failed)?.unwrap_or(0);
    let newest = match dialogue.call(&Request { verb: Verb::Newest, key: &[], value: &[] }).map_err(failed)? {
        Answer::Newest(version) => version,
        _ => Version::ZERO,
    };
    Ok((time, newest))
}
