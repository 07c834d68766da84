//! The crash model: several threads at work on a device with a cache, and the power gone at any moment of it.
//!
//! Guards against an answer that promises what is in RAM or in a device's cache alone. Of the writes since the last sync any
//! may be lost, torn or reordered; reads, writes and syncs fail by chance, blocks go bad, and the device goes away for an hour;
//! what a restart shows is held against what each thread knew, and the next life begins with it. Some restarts meet bad blocks:
//! these must cost no more than what is on them. `make crash` lets it run for as long as one likes.

mod blocks;
mod book;
mod copies;
mod late;
mod syncs;
mod telling;
mod world;

use std::time::Duration;

use moneta_flash::Durability;
use moneta_flash::testing::Odds;

use world::{Alone, Below, Plan, live};

/// What is common to all plans.
fn plan() -> Plan {
    Plan {
        regions: 40,
        durability: Durability::Interval,
        flush_interval: Duration::from_millis(3),
        lives: 3,
        operations: 500,
        keys: 25,
        crashes: 40,
        odds: Odds { pause: Duration::from_micros(200), ..Odds::default() },
        may_miss: false,
        flushes: 0,
        stalls: 0,
        damaged: 4,
    }
}

/// Few regions, so that they are emptied.
fn tight() -> Plan {
    Plan { regions: 16, operations: 2500, may_miss: true, flushes: 3, ..plan() }
}

/// Syncs and writes fail now and then, and what failed to be synced is lost.
fn failing(forgets: bool) -> Plan {
    let odds = Odds { writes: 300, syncs: 12, forgets, ..plan().odds };
    Plan { odds, may_miss: true, operations: 800, ..plan() }
}

#[test]
fn nothing_that_was_synced_is_lost() {
    live::<Alone>(&plan());
}

#[test]
fn nothing_that_was_answered_is_lost_where_every_write_is_synced() {
    live::<Alone>(&Plan { durability: Durability::EveryWrite, ..plan() });
}

#[test]
fn nothing_that_was_synced_is_lost_below_ram() {
    live::<Below>(&plan());
}

#[test]
fn nothing_that_was_answered_is_lost_below_ram_where_every_write_is_synced() {
    live::<Below>(&Plan { durability: Durability::EveryWrite, ..plan() });
}

#[test]
fn nothing_old_comes_back_while_regions_are_emptied() {
    live::<Alone>(&tight());
    live::<Below>(&Plan { durability: Durability::EveryWrite, operations: 1200, lives: 2, ..tight() });
}

#[test]
fn nothing_old_comes_back_after_a_sync_that_failed() {
    live::<Alone>(&failing(false));
    live::<Alone>(&failing(true));
}

#[test]
fn nothing_old_comes_back_after_a_sync_that_failed_where_every_write_is_synced() {
    live::<Alone>(&Plan { durability: Durability::EveryWrite, ..failing(true) });
    live::<Below>(&Plan { durability: Durability::EveryWrite, ..failing(false) });
}

#[test]
fn nothing_old_comes_back_while_regions_are_emptied_and_syncs_fail() {
    live::<Alone>(&Plan { odds: failing(true).odds, ..tight() });
    live::<Below>(&Plan { odds: failing(false).odds, ..tight() });
}

/// Reads fail now and then. What is carried forward from regions that are emptied is lost with that, and so is the region.
fn misreading() -> Odds {
    Odds { reads: 30, ..plan().odds }
}

#[test]
fn nothing_is_lost_or_old_because_reads_fail() {
    live::<Alone>(&Plan { odds: misreading(), ..plan() });
    live::<Below>(&Plan { odds: misreading(), durability: Durability::EveryWrite, ..plan() });
}

#[test]
fn nothing_old_comes_back_while_regions_are_emptied_and_reads_fail() {
    live::<Alone>(&Plan { odds: misreading(), regions: 24, ..tight() });
    let odds = Odds { reads: 100, ..failing(true).odds };
    live::<Below>(&Plan { odds, regions: 24, operations: 1200, lives: 2, ..tight() });
}

/// Blocks go bad: no write of them succeeds any more.
fn wearing() -> Odds {
    Odds { worn: 150, ..plan().odds }
}

#[test]
fn nothing_is_lost_because_blocks_take_no_writes() {
    live::<Alone>(&Plan { odds: wearing(), ..plan() });
    live::<Alone>(&Plan { odds: wearing(), durability: Durability::EveryWrite, ..plan() });
    live::<Below>(&Plan { odds: wearing(), durability: Durability::EveryWrite, ..plan() });
}

#[test]
fn nothing_old_comes_back_while_regions_are_emptied_and_blocks_take_no_writes() {
    live::<Alone>(&Plan { odds: wearing(), durability: Durability::EveryWrite, regions: 24, ..tight() });
    let odds = Odds { worn: 150, ..failing(true).odds };
    live::<Below>(&Plan { odds, regions: 24, operations: 1200, lives: 2, ..tight() });
}

/// Now and then the device is away for an hour: longer than some items live, and than requests wait.
fn absent() -> Plan {
    Plan { stalls: 60, may_miss: true, operations: 800, ..plan() }
}

#[test]
fn nothing_old_comes_back_with_a_device_that_was_away_for_an_hour() {
    live::<Alone>(&absent());
    live::<Below>(&absent());
}

#[test]
fn nothing_old_comes_back_with_a_device_that_was_away_where_every_write_is_synced() {
    live::<Alone>(&Plan { durability: Durability::EveryWrite, ..absent() });
    live::<Below>(&Plan { durability: Durability::EveryWrite, ..absent() });
}

#[test]
fn nothing_old_comes_back_while_everything_fails_at_once() {
    let odds = Odds { reads: 100, worn: 200, ..failing(true).odds };
    live::<Alone>(&Plan { odds, stalls: 20, regions: 24, ..tight() });
    live::<Below>(&Plan { odds, stalls: 20, regions: 24, operations: 1200, lives: 2, ..tight() });
}
