//! Regions with blocks that the device does not write, and how long they go on to count.
//!
//! Guards against what only a bad block was to hold being declared durable, or missed, when the tier forgets the block.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{FlashConfig, Media};
use moneta_store::Clock;
use parking_lot::{Condvar, Mutex};

use super::bad_blocks::Bad;
use super::drive::{HEAD, REGION, START, config, device_bytes, get, numbers, open, set, wait};

const BLOCK: u64 = 4096;
/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "waited for nothing: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A device whose first sync of records after a failed write waits for the test.
struct Gate {
    bad: Arc<Bad>,
    state: Mutex<DeviceState>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum DeviceState {
    #[default]
    Sound,
    /// A write failed.
    Failed,
    /// The next sync is that of a superblock.
    Superblock,
    Waits,
    Open,
}

impl Gate {
    fn change(&self, state: DeviceState) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }
}

impl Media for Gate {
    fn bytes(&self) -> u64 {
        self.bad.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.bad.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.bad.write_at(bytes, offset);
        let mut state = self.state.lock();
        match *state {
            DeviceState::Sound if written.is_err() => *state = DeviceState::Failed,
            DeviceState::Failed if offset < HEAD => *state = DeviceState::Superblock,
            _ => {}
        }
        written
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        match *state {
            DeviceState::Superblock => *state = DeviceState::Failed,
            DeviceState::Failed => {
                *state = DeviceState::Waits;
                self.changed.wait_while(&mut state, |state| *state != DeviceState::Open);
            }
            DeviceState::Sound | DeviceState::Waits | DeviceState::Open => {}
        }
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

/// A block fails; its region is synced but for that, and not moved yet, when so many regions fail that it is the device, and all
/// is tried again.
#[test]
fn a_block_that_is_tried_again_is_written_although_the_rest_of_its_region_was_synced() {
    let bad = Bad::of(vec![0; device_bytes(20) as usize]);
    *bad.unwritable.lock() = vec![HEAD + BLOCK..HEAD + 2 * BLOCK];
    let media = Arc::new(Gate { bad: Arc::clone(&bad), state: Mutex::default(), changed: Condvar::new() });
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    let value = vec![7; 9000];
    set(&flash, b"key", &value, 0).expect("a set");
    std::thread::scope(|scope| {
        let sync = scope.spawn(|| wait(flash.sync()));
        until("the region is synced", || *media.state.lock() == DeviceState::Waits);
        // Five more regions: one of each group, and a full one.
        for seconds in [300, 7000, 80_000] {
            set(&flash, format!("key {seconds}").as_bytes(), b"value", seconds).expect("a set");
        }
        (0..9).for_each(|number| {
            set(&flash, format!("key {number}").as_bytes(), &[7; 30_000], 0).expect("a set");
        });
        *bad.unwritable.lock() = vec![HEAD..device_bytes(20)];
        // Asked for now, so that the next round writes the open regions too.
        let mut second = flash.sync();
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        media.change(DeviceState::Open);
        sync.join().expect("no panic").expect_err("many regions fail");
    });
    assert!(numbers(&flash).off);
    bad.unwritable.lock().clear();
    until("the tier is back", || wait(flash.sync()).is_ok());
    let shown = get(&flash, b"key").expect("a get");
    assert!(shown.as_ref() == Some(&value), "before a crash");
    flash.crash();
    let flash = open(MemoryMedia::of(bad.memory.image()), &config(), &clock);
    assert!(get(&flash, b"key").expect("a get") == Some(value), "what was synced is lost");
    flash.crash();
}

/// Three versions of a key: one that never dies, one with a short life in a region without ends, and one as short in a
/// third region. The last one hides the first alone.
#[test]
fn what_is_behind_a_region_with_bad_blocks_does_not_go_before_it() {
    let bad = Bad::of(vec![0; device_bytes(20) as usize]);
    *bad.unwritable.lock() = vec![HEAD + REGION..HEAD + REGION + BLOCK, HEAD + 2 * REGION - BLOCK..HEAD + 2 * REGION];
    let clock = Arc::new(Clock::manual(START));
    let config = FlashConfig { carry_percent: 0, ..config() };
    let flash = open(Arc::clone(&bad) as _, &config, &clock);
    set(&flash, b"key", b"first", 0).expect("a set");
    set(&flash, b"key", b"second", 300).expect("a set");
    let fill = |from: u32, seconds: i64| {
        (from..from + 8).for_each(|number| {
            set(&flash, format!("filler {number}").as_bytes(), &[7; 30_000], seconds).expect("a set");
        });
    };
    fill(0, 300);
    // The ninth one does not fit. The region goes to the device as soon as the key's shard is free.
    set(&flash, b"key", &[3; 30_000], 300).expect("a set");
    fill(10, 300);
    wait(flash.sync()).expect("a sync");
    clock.advance(400);
    for number in (20..).step_by(10) {
        if numbers(&flash).regions_emptied > 0 {
            break;
        }
        fill(number, 0);
        wait(flash.sync()).expect("a sync");
    }
    flash.crash();
    let flash = open(MemoryMedia::of(bad.memory.image()), &config, &clock);
    let shown = get(&flash, b"key").expect("a get");
    assert_eq!(shown.map(String::from_utf8), None, "an old version comes back");
    flash.crash();
}
