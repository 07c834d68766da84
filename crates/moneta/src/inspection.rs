//! What `moneta flash inspect` prints: a summary for people, a table of regions, or everything as JSON.

use std::fmt::Write;

use moneta_device::inspect::{Inspection, RegionReport, RegionState};
use serde_json::{Value, json};

/// Every state, in the order shown.
const STATES: [RegionState; 7] = [
    RegionState::Free,
    RegionState::Open,
    RegionState::Full,
    RegionState::Flushed,
    RegionState::Unreadable,
    RegionState::Bad,
    RegionState::Retired,
];

/// Sums over regions.
#[derive(Default)]
struct Totals {
    records: u64,
    record_bytes: u64,
    tombstones: u64,
    live: u64,
    live_bytes: u64,
    damaged: u64,
}

impl Totals {
    fn of(found: &Inspection) -> Self {
        let mut totals = Self::default();
        for region in &found.regions {
            totals.records += region.records;
            totals.record_bytes += region.record_bytes;
            totals.tombstones += region.tombstones;
            totals.live += region.live;
            totals.live_bytes += region.live_bytes;
            totals.damaged += region.damaged;
        }
        totals
    }
}

fn count(found: &Inspection, state: RegionState) -> usize {
    found.regions.iter().filter(|region| region.state == state).count()
}

/// Whether anything is damaged or cannot be read.
pub fn has_damage(found: &Inspection) -> bool {
    count(found, RegionState::Unreadable) > 0 || found.regions.iter().any(|region| region.damaged > 0)
}

/// The second in which the oldest region that counts was begun.
fn oldest(found: &Inspection) -> Option<u32> {
    let counts =
        |region: &&RegionReport| matches!(region.state, RegionState::Full | RegionState::Open | RegionState::Bad);
    found.regions.iter().filter(counts).map(|region| region.begun).min()
}

/// Whether all devices of the tier were looked at.
fn is_whole(found: &Inspection) -> bool {
    found.devices == found.tier_devices as usize
}

/// A summary; with `every_region` the table of all regions, else only of damaged and retired ones.
pub fn as_text(found: &Inspection, verified: bool, every_region: bool) -> String {
    let mut text = String::new();
    let totals = Totals::of(found);
    let stop = if found.clean_stop { "stopped cleanly, with a snapshot of its index" } else { "not stopped cleanly" };
    let _ = writeln!(text, "tier         {:016x}, {stop}", found.tier);
    let _ = writeln!(text, "devices      {} of {}", found.devices, found.tier_devices);
    if !is_whole(found) {
        text.push_str(
            "             name them all: newer versions may lie on the others, and dead records pass for live\n",
        );
    }
    let states: Vec<String> = STATES.iter().map(|state| format!("{} {}", count(found, *state), state.name())).collect();
    let region_bytes = size(found.region_bytes);
    let _ = writeln!(text, "regions      {} of {region_bytes}: {}", found.regions.len(), states.join(", "));
    let _ = writeln!(text, "records      {}, {}", totals.records, size(totals.record_bytes));
    let share = percent(totals.live_bytes, totals.record_bytes);
    let _ = writeln!(text, "live         {}, {} ({share} of the bytes)", totals.live, size(totals.live_bytes));
    let _ = writeln!(text, "tombstones   {}", totals.tombstones);
    let oldest = oldest(found).map_or_else(|| "none".into(), |second| format!("begun in Unix second {second}"));
    let _ = writeln!(text, "oldest       {oldest}");
    if found.flush_at != 0 {
        let _ = writeln!(text, "flush        due at Unix second {}", found.flush_at);
    }
    let looked_at =
        if verified { "every record was checked" } else { "of headers and footers; --verify checks every record" };
    let _ = writeln!(text, "damaged      {} ({looked_at})", totals.damaged);
    let is_bad = |state| matches!(state, RegionState::Unreadable | RegionState::Bad | RegionState::Retired);
    let damaged = |region: &&RegionReport| region.damaged > 0 || is_bad(region.state);
    let listed: Vec<&RegionReport> = found.regions.iter().filter(|region| every_region || damaged(region)).collect();
    if !listed.is_empty() {
        list(&mut text, &listed);
    }
    text
}

fn list(text: &mut String, regions: &[&RegionReport]) {
    let _ = writeln!(
        text,
        "\n{:>8} {:>6} {:>16} {:>10} {:>20} {:>10} {:>9} {:>10} {:>9} {:>6} {:>10} {:>8}",
        "REGION",
        "DEVICE",
        "OFFSET",
        "STATE",
        "SEQUENCE",
        "BEGUN",
        "RECORDS",
        "TOMBSTONES",
        "LIVE",
        "LIVE%",
        "DIES",
        "DAMAGED"
    );
    for region in regions {
        let _ = writeln!(
            text,
            "{:>8} {:>6} {:>16} {:>10} {:>20} {:>10} {:>9} {:>10} {:>9} {:>6} {:>10} {:>8}",
            region.region,
            region.device,
            region.offset,
            region.state.name(),
            region.sequence,
            region.begun,
            region.records,
            region.tombstones,
            region.live,
            percent(region.live_bytes, region.record_bytes),
            region.dies_at.map_or_else(|| "-".into(), |second| second.to_string()),
            region.damaged,
        );
    }
}

/// Everything, for programs.
///
/// # Errors
/// None that can happen: all of it is numbers and words.
pub fn as_json(found: &Inspection, verified: bool) -> anyhow::Result<String> {
    let totals = Totals::of(found);
    let states: serde_json::Map<String, Value> =
        STATES.iter().map(|state| (state.name().to_owned(), count(found, *state).into())).collect();
    let regions: Vec<Value> = found.regions.iter().map(region_json).collect();
    let page = json!({
        "tier": format!("{:016x}", found.tier),
        "devices": found.devices,
        "tier_devices": found.tier_devices,
        "whole": is_whole(found),
        "clean_stop": found.clean_stop,
        "region_bytes": found.region_bytes,
        "flushed_below": found.flushed_below,
        "flush_at": found.flush_at,
        "verified": verified,
        "states": states,
        "records": totals.records,
        "record_bytes": totals.record_bytes,
        "tombstones": totals.tombstones,
        "live": totals.live,
        "live_bytes": totals.live_bytes,
        "damaged": totals.damaged,
        "oldest": oldest(found),
        "regions": regions,
    });
    Ok(serde_json::to_string_pretty(&page)? + "\n")
}

fn region_json(region: &RegionReport) -> Value {
    json!({
        "region": region.region,
        "device": region.device,
        "offset": region.offset,
        "state": region.state.name(),
        "sequence": region.sequence,
        "begun": region.begun,
        "ended": region.ended,
        "records": region.records,
        "record_bytes": region.record_bytes,
        "tombstones": region.tombstones,
        "live": region.live,
        "live_bytes": region.live_bytes,
        "dies_at": region.dies_at,
        "damaged": region.damaged,
    })
}

/// Bytes in the largest unit of which there is at least one, to a tenth.
fn size(bytes: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} B"),
    }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.0}%", part as f64 * 100.0 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shares_are_for_people() {
        assert_eq!([0, 1023, 1024, 1536 << 20].map(size), ["0 B", "1023 B", "1.0 KiB", "1.5 GiB"]);
        assert_eq!((percent(1, 3), percent(0, 0)), ("33%".into(), "-".into()));
    }
}
