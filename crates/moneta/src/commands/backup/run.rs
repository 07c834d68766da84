//! `moneta backup NODE`, `merge` and `prune`.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use moneta_backup::layout::{Slot, slot_name};
use moneta_backup::mirror::{Mirrored, mirror};
use moneta_backup::take::{TakeConfig, Taken, take as take_node};
use moneta_backup::{BackupError, keep, merge as merging, moment, rings};
use moneta_bulk::Watch;
use moneta_cluster::RingKind;
use moneta_net::{Address, Endpoint};
use moneta_segments::Archive;
use serde::Serialize;

use super::super::archives;
use super::super::moving::{Screen, endpoint, print, read_words};
use super::archive::begun;
use super::{MergeArgs, PruneArgs, TakeArgs, opened};

/// How often it is looked whether something is to be done beside the backup.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How often retention runs while changes are followed.
const PRUNE_EVERY: Duration = Duration::from_secs(3600);

/// How a backup ended.
#[derive(Debug, Default, Serialize)]
struct Report {
    slots: Vec<Taken>,
    /// What was copied to second copies.
    copied: Mirrored,
    pruned: Vec<keep::Pruned>,
}

/// Backs up nodes until all is there; with `--follow` until a signal.
pub(super) fn take(args: TakeArgs) -> anyhow::Result<()> {
    let (nodes, replica) = nodes(&args.source, args.topology.as_deref())?;
    let to_write = |name: &String| {
        let archive = archives::to_write(name)?;
        archives::refuse_dump(&*archive, name).map(|()| archive)
    };
    let plain = to_write(&args.into)?;
    let copies = args.copy_to.iter().map(to_write).collect::<anyhow::Result<Vec<_>>>()?;
    let archive = begun(Arc::clone(&plain), &args.recipient)?;
    if let Some(Divided { name, ring, nodes }) = &replica {
        rings::note(&archive, name, *ring, nodes)?;
    }
    let screen = Screen::new("backup")?;
    let ends = AtomicBool::new(false);
    let is_over = AtomicBool::new(false);
    let (value_max, rate) = (usize::try_from(args.value_max)?, args.rate.config()?);
    let one = |name: &str, node: &Endpoint| -> Result<Taken, BackupError> {
        let config = TakeConfig {
            node: node.clone(),
            moved: args.moved,
            follow: args.follow,
            every: args.every,
            part_age: args.part_age,
            rate,
            value_max,
            segment_bytes: args.segment_size,
        };
        let taken = take_node(&config, &mut Slot::open(&archive, name)?, &screen, &ends);
        // A backup that lacks a node is none.
        if taken.is_err() {
            ends.store(true, Ordering::Relaxed);
        }
        taken
    };
    let beside = || {
        let mut copied = Mirrored::default();
        let (mut copy_at, mut prune_at) = (Instant::now() + args.every, Instant::now() + PRUNE_EVERY);
        while !is_over.load(Ordering::Relaxed) {
            sleep(LOOK_EVERY);
            if Instant::now() >= copy_at {
                copy_at = Instant::now() + args.every;
                match copy(&*plain, &copies) {
                    Ok(more) => copied = copied.and(more),
                    Err(error) => screen.note(&format!("the second copy is behind: {error}")),
                }
            }
            if let Some(keep) = args.keep.filter(|_| Instant::now() >= prune_at) {
                prune_at = Instant::now() + PRUNE_EVERY;
                if let Err(error) = prune_all(&plain, &copies, keep) {
                    screen.note(&format!("what is too old stays for now: {error}"));
                }
            }
        }
        copied
    };
    let (taken, copied) = thread::scope(|scope| {
        let beside = args.follow.then(|| scope.spawn(beside));
        let one = &one;
        let threads: Vec<_> = nodes.iter().map(|(name, node)| scope.spawn(move || one(name, node))).collect();
        let taken: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        is_over.store(true, Ordering::Relaxed);
        let copied = beside.map_or_else(|| Ok(Mirrored::default()), thread::ScopedJoinHandle::join);
        (taken, copied)
    });
    screen.end();
    let panicked = || anyhow!("a thread of the backup has panicked");
    let mut report = Report { copied: copied.map_err(|_| panicked())?, ..Report::default() };
    for taken in taken {
        report.slots.push(taken.map_err(|_| panicked())??);
    }
    report.copied = report.copied.and(copy(&*plain, &copies)?);
    if let Some(keep) = args.keep {
        report.pruned = prune_all(&plain, &copies, keep)?;
    }
    print(&report, args.json, words(&report).trim_end())?;
    match report.slots.iter().all(|slot| slot.restore_point > 0) {
        true => Ok(()),
        false => bail!("it was stopped before there was a restore point"),
    }
}

/// A replica, and what divides its keys.
struct Divided {
    name: String,
    ring: RingKind,
    nodes: Vec<moneta_cluster::Node>,
}

/// Nodes with their slots' names.
type Named = Vec<(String, Endpoint)>;

/// The nodes of this name; and the replica that they are.
fn nodes(name: &str, topology: Option<&str>) -> anyhow::Result<(Named, Option<Divided>)> {
    let topology = topology.map(crate::proxy::topology).transpose()?;
    let replicas = topology.iter().flat_map(|topology| &topology.replicas);
    if let Some(replica) = replicas.clone().find(|replica| replica.name == name) {
        let node = |node: &moneta_cluster::Node| (slot_name(&node.slot), endpoint(node.address.clone()));
        let nodes: Vec<_> = replica.nodes.iter().map(node).collect();
        let mut names: Vec<&String> = nodes.iter().map(|(name, _)| name).collect();
        names.sort_unstable();
        names.dedup();
        return match names.len() == nodes.len() {
            true => {
                let ring = topology.as_ref().map_or(RingKind::default(), |topology| topology.ring);
                Ok((nodes, Some(Divided { name: name.to_owned(), ring, nodes: replica.nodes.clone() })))
            }
            false => bail!("slots of {name} have names that are alike but for punctuation"),
        };
    }
    let known: Vec<&str> = replicas.map(|replica| &*replica.name).collect();
    let known = if known.is_empty() { String::new() } else { format!(", and no replica: {}", known.join(", ")) };
    let address = name.parse::<Address>().map_err(|error| anyhow!("\"{name}\" is no server: {error}{known}"))?;
    Ok((vec![(slot_name(name), endpoint(address))], None))
}

fn copy(from: &dyn Archive, copies: &[Arc<dyn Archive>]) -> Result<Mirrored, BackupError> {
    copies.iter().try_fold(Mirrored::default(), |sum, to| Ok(sum.and(mirror(from, &**to)?)))
}

fn prune_all(
    archive: &Arc<dyn Archive>,
    copies: &[Arc<dyn Archive>],
    keep: Duration,
) -> Result<Vec<keep::Pruned>, BackupError> {
    let from = moment::millis().saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    for copy in copies {
        keep::prune(copy, from)?;
    }
    keep::prune(archive, from)
}

fn words(report: &Report) -> String {
    let mut text = String::new();
    for slot in &report.slots {
        if slot.base.is_some() {
            let _ = writeln!(text, "{}: base: {}", slot.slot, read_words(&slot.of_base));
        }
        let _ = writeln!(text, "{}: changes: {}", slot.slot, read_words(&slot.of_changes));
        if slot.restore_point > 0 {
            let _ = writeln!(text, "{}: restore point {}", slot.slot, moment::text(slot.restore_point));
        }
    }
    if report.copied.files > 0 {
        let _ = writeln!(text, "copied: {} files, {} bytes", report.copied.files, report.copied.bytes);
    }
    text + &pruned_words(&report.pruned)
}

fn pruned_words(pruned: &[keep::Pruned]) -> String {
    let line = |slot: &keep::Pruned| {
        format!("{}: removed {} bases and {} parts\n", slot.slot, slot.bases.len(), slot.parts.len())
    };
    pruned.iter().map(line).collect::<String>().trim_end().to_owned()
}

/// `moneta backup merge`.
pub(super) fn merge(args: &MergeArgs) -> anyhow::Result<()> {
    let archive = archives::to_write(&args.of.from)?;
    let archive = opened(archive, args.identity.as_deref())?;
    let value_max = usize::try_from(args.value_max)?;
    let merged = merging::merge(&archive, args.at, value_max, args.segment_size)?;
    let line = |slot: &merging::Merged| match slot.base {
        Some(base) => format!(
            "{}: base {base} of {}: {} items, in place of {} segments of changes\n",
            slot.slot,
            moment::text(slot.at),
            slot.items,
            slot.segments
        ),
        None => format!("{}: nothing to merge\n", slot.slot),
    };
    print(&merged, args.of.json, merged.iter().map(line).collect::<String>().trim_end())
}

/// `moneta backup prune`.
pub(super) fn prune(args: &PruneArgs) -> anyhow::Result<()> {
    let pruned = prune_all(&archives::to_write(&args.of.from)?, &[], args.keep)?;
    print(&pruned, args.of.json, &pruned_words(&pruned))
}
