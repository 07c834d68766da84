//! Regions that are emptied while a sync of another thread fails.
//!
//! Guards against a wipe that is lost without a word: the kernel reports a failed sync once, so the sync after the wipe
//! succeeds, and a crash brings back what the index has let go of, deleted or not.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{FlashConfig, Media};
use moneta_store::Clock;
use parking_lot::{Condvar, Mutex};

use super::drive::{HEAD, REGION, START, config, delete, device_bytes, get, numbers, open, set, wait};

const BLOCK: u64 = 4096;
/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device that loses the first wipe of a region: a sync fails between it and the next sync.
struct Losing {
    memory: Arc<MemoryMedia>,
    state: Mutex<WipesState>,
    changed: Condvar,
}

#[derive(Default)]
struct WipesState {
    /// What the ends of the region held before the wipe.
    before: Vec<(u64, Vec<u8>)>,
    is_lost: bool,
}

impl Losing {
    fn wait_until(&self, what: &str, reached: impl Fn(&WipesState) -> bool) {
        let mut state = self.state.lock();
        let late = self.changed.wait_while_for(&mut state, |state| !reached(state), PATIENCE).timed_out();
        assert!(!late, "waited for nothing: {what}");
    }

    fn is_wiped(&self) -> bool {
        self.state.lock().before.len() == 2
    }
}

impl Media for Losing {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let within = offset.checked_sub(HEAD).map(|offset| offset % REGION);
        let first = within == Some(0) && bytes[..64].iter().all(|byte| *byte == 0);
        let is_second = |begun: &WipesState| begun.before.len() == 1 && begun.before[0].0 + REGION - BLOCK == offset;
        if self.is_wiped() || !(first || is_second(&self.state.lock())) {
            return self.memory.write_at(bytes, offset);
        }
        let before = self.memory.image()[offset as usize..][..bytes.len()].to_vec();
        self.memory.write_at(bytes, offset)?;
        self.state.lock().before.push((offset, before));
        self.changed.notify_all();
        if self.is_wiped() {
            self.wait_until("another thread syncs", |state| state.is_lost);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.state.lock();
        if state.before.len() < 2 || state.is_lost {
            return Ok(());
        }
        self.memory.tamper(|image| {
            state.before.iter().for_each(|(at, bytes)| image[*at as usize..][..bytes.len()].copy_from_slice(bytes));
        });
        state.is_lost = true;
        self.changed.notify_all();
        Err(rustix::io::Errno::IO.into())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn what_was_deleted_stays_so_where_another_thread_s_sync_lost_the_wipe_of_its_region() {
    let memory = MemoryMedia::new(device_bytes(16));
    let media = Arc::new(Losing { memory: Arc::clone(&memory), state: Mutex::default(), changed: Condvar::new() });
    let clock = Arc::new(Clock::manual(START));
    let config = FlashConfig { carry_percent: 0, ..config() };
    let flash = open(Arc::clone(&media) as _, &config, &clock);
    let name = |number: u32| format!("key {number}").into_bytes();
    // Each key once, so that no change is missed while the tier is off.
    let mut names = (0..).map(name);
    let mut store = || set(&flash, &names.next().expect("numbers"), &[7; 30_000], 0).expect("there is room");
    while numbers(&flash).regions_free > 3 {
        store();
    }
    media.wait_until("a region is wiped", |state| state.before.len() == 2);
    // Something to sync.
    store();
    wait(flash.sync()).expect_err("the sync fails");
    assert!(media.state.lock().is_lost);
    let began = std::time::Instant::now();
    while wait(flash.sync()).is_err() || numbers(&flash).regions_emptied == 0 {
        assert!(began.elapsed() < PATIENCE, "waited for nothing: the region is emptied");
        std::thread::sleep(Duration::from_millis(2));
    }
    // The eight keys of the first region.
    (0..8).for_each(|number| {
        delete(&flash, &name(number)).expect("a delete");
    });
    wait(flash.sync()).expect("a sync");
    flash.crash();
    let flash = open(MemoryMedia::of(memory.image()), &config, &clock);
    let back: Vec<u32> = (0..8).filter(|number| get(&flash, &name(*number)).expect("a get").is_some()).collect();
    assert!(back.is_empty(), "deleted keys show again: {back:?}");
}
