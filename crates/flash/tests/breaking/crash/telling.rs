//! What a failure needs to be explained: the records of a key on the device, the regions, and what the device did last.

use std::fmt::Write;

use moneta_device::inspect::{RegionState, inspect};
use moneta_flash::testing::Event;

use super::super::drive::{HEAD, REGION};
use super::super::history::name;
use super::blocks::{occurrences, version_at};

/// Events of the device that are told.
const EVENTS: usize = 60;

/// The records of a key in an image, and the regions they are in, in the order in which a restart takes them.
fn places(image: &[u8], number: usize) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("image");
    std::fs::write(&path, image).expect("the image is written");
    let found = match inspect(&[path], true, |_, _| {}) {
        Ok(found) => found,
        Err(error) => return format!("the device cannot be inspected: {error}"),
    };
    let mut told = format!("records of key {number}; flushed below {}:\n", found.flushed_below);
    let mut regions: Vec<_> = found.regions.iter().collect();
    regions.sort_unstable_by_key(|region| region.sequence);
    for region in regions {
        let start = (HEAD + region.region as u64 * REGION) as usize;
        let records: Vec<String> = occurrences(image, start..start + REGION as usize, &name(number))
            // Digits after it belong to another key's name.
            .filter_map(|at| {
                let behind = &image[at + name(number).len()..];
                let version = version_at(number, behind).map_or("tombstone".into(), |version| format!("{version}"));
                (!behind.first().is_some_and(u8::is_ascii_digit) || version != "tombstone")
                    .then(|| format!("{version} at {:x}", at - start))
            })
            .collect();
        if !records.is_empty() || region.state == RegionState::Open || region.damaged > 0 {
            let (number, sequence, state) = (region.region, region.sequence, region.state.name());
            let (damaged, dies) = (region.damaged, region.dies_at);
            let _ = writeln!(
                told,
                "  region {number}, use {sequence}, {state}, {damaged} damaged, dies {dies:?}: {records:?}"
            );
        }
    }
    told
}

/// What happened to the device up to an event.
fn events(log: &[Event], upto: usize) -> String {
    let mut told = String::from("events of the device:\n");
    for (number, event) in log.iter().enumerate().take(upto + 5).skip(upto.saturating_sub(EVENTS)) {
        let what = match event {
            Event::Sync => "sync".into(),
            Event::Lost(kept) => format!("sync failed, {} pieces kept", kept.len()),
            Event::Write(offset, bytes) if *offset < HEAD => format!("superblock at {offset:x}, {} bytes", bytes.len()),
            Event::Write(offset, bytes) => {
                let (region, within) = ((offset - HEAD) / REGION, (offset - HEAD) % REGION);
                format!("region {region} at {within:x}, {:x} bytes", bytes.len())
            }
        };
        let _ = writeln!(told, "  {number}: {what}");
    }
    told
}

/// A crash that is looked at.
pub struct Crash<'c> {
    /// How many events of the device were through.
    pub moment: usize,
    /// Writes of these that may be lost.
    pub unsynced: usize,
    pub log: &'c [Event],
    /// What it left.
    pub image: &'c [u8],
}

impl Crash<'_> {
    /// Which crash it was.
    pub fn what(&self) -> String {
        format!(
            "after a crash behind {} of {} events, {} of them not synced",
            self.moment,
            self.log.len(),
            self.unsynced
        )
    }

    /// What there is to know of a key that shows what it may not show.
    pub fn tell(&self, number: usize) -> String {
        format!("{}\n{}", places(self.image, number), events(self.log, self.moment))
    }
}
