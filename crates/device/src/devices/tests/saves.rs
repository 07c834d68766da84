//! Writes of superblocks that are cut short, or fail.

use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::Errno;

use super::{MIB, in_ram};
use crate::config::TierConfig;
use crate::devices::{Devices, TierState};
use crate::io::testing::{Faults, FaultyMedia, MemoryMedia, RecordingMedia};
use crate::io::{Aligned, Media};

#[test]
fn a_crash_at_any_byte_of_a_save_leaves_the_state_before_or_after() {
    let recording = RecordingMedia::new(MemoryMedia::new(6 * MIB));
    let config = in_ram();
    let on = |image: Vec<u8>| Devices::on(vec![MemoryMedia::of(image)], &config).unwrap();
    let devices = Devices::on(vec![recording.clone()], &config).unwrap().devices;
    let made = recording.events();
    let states: Vec<TierState> =
        (1..5).map(|number| TierState { flushed_below: number, ..TierState::default() }).collect();
    states.iter().for_each(|state| devices.save(state).unwrap());
    let mut cuts = 0;
    recording.each_cut(512, |cut, image| {
        let opened = on(image.to_vec());
        cuts += 1;
        if cut.events < made {
            return;
        }
        assert!(!opened.fresh, "{cut:?}");
        assert_eq!(opened.devices.tier(), devices.tier());
        // Two events a save: the write and the sync.
        let saved = (cut.events - made).div_ceil(2) as u64;
        let found = opened.devices.state().flushed_below;
        assert!(found == saved || found == saved + 1, "{cut:?}: {found}");
    });
    assert!(cuts > 4 * 8);
}

#[test]
fn a_start_cut_short_at_any_write_can_be_repeated() {
    // Two devices, of which the second is new, or has become smaller: the writes to both are cut together.
    for smaller in [false, true] {
        let (first, second) = (MemoryMedia::new(6 * MIB), MemoryMedia::new(6 * MIB));
        let config = TierConfig { start_empty: true, ..in_ram() };
        let before: Vec<Arc<dyn Media>> = match smaller {
            true => vec![first.clone(), second.clone()],
            false => vec![first.clone()],
        };
        let tier = Devices::on(before, &config).unwrap().devices.tier();
        for allowed in 0.. {
            let copies = [first.image(), second.image()].map(MemoryMedia::of);
            let mut image = copies[1].image();
            image.truncate(if smaller { 5 * MIB as usize } else { 6 * MIB as usize });
            let second = MemoryMedia::of(image);
            let budget = Budget::new(allowed);
            let limited: Vec<Arc<dyn Media>> = vec![budget.over(copies[0].clone()), budget.over(second.clone())];
            let done = Devices::on(limited, &config).is_ok();
            let opened = Devices::on(vec![copies[0].clone(), second], &config)
                .unwrap_or_else(|error| panic!("after {allowed} writes: {error}"));
            assert_eq!(opened.devices.tier() == tier, !smaller, "after {allowed} writes");
            if done {
                assert!(!opened.fresh && allowed > 2);
                break;
            }
        }
    }
}

#[test]
fn a_first_start_cut_short_at_any_write_leaves_no_tier_that_lacks_a_device() {
    let config = in_ram();
    for allowed in 0.. {
        let blank = [MemoryMedia::new(6 * MIB), MemoryMedia::new(6 * MIB)];
        let budget = Budget::new(allowed);
        let limited: Vec<Arc<dyn Media>> = blank.iter().map(|media| budget.over(media.clone())).collect();
        let done = Devices::on(limited, &config).is_ok();
        let again = Devices::on(blank.iter().map(|media| media.clone() as _).collect(), &config);
        let again = again.unwrap_or_else(|error| panic!("after {allowed} writes: {error}"));
        if done {
            assert!(!again.fresh && allowed == 4);
            break;
        }
    }
}

#[test]
fn a_save_that_one_device_fails_reaches_the_others() {
    let faulty = FaultyMedia::new(MemoryMedia::new(6 * MIB));
    let sound = MemoryMedia::new(6 * MIB);
    let config = in_ram();
    let devices = Devices::on(vec![faulty.clone(), sound.clone()], &config).unwrap().devices;
    faulty.set(Faults { writes: true, ..Faults::default() });
    assert!(devices.save(&TierState { abandoned: true, ..TierState::default() }).is_err());
    faulty.set(Faults::default());
    drop(devices);
    assert!(Devices::on(vec![faulty, sound], &config).unwrap().fresh);
}

/// A device of which another thread's sync fails between a write and the sync after it, and loses the write.
struct Raced {
    image: MemoryMedia,
    /// The device as other threads sync it, until one has.
    others: Mutex<Option<Arc<dyn Media>>>,
    /// What was there before the write.
    before: Mutex<Option<(u64, Aligned)>>,
}

impl Media for Raced {
    fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.image.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        let other = self.others.lock().take();
        let mut before = Aligned::zeroed(bytes.len());
        self.image.read_at(&mut before, offset)?;
        self.image.write_at(bytes, offset)?;
        if let Some(other) = other {
            *self.before.lock() = Some((offset, before));
            other.sync().unwrap_err();
        }
        Ok(())
    }

    fn sync(&self) -> std::io::Result<()> {
        match self.before.lock().take() {
            Some((offset, before)) => self.image.write_at(&before, offset).and(Err(Errno::IO.into())),
            None => Ok(()),
        }
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}

#[test]
fn a_save_that_another_thread_s_failed_sync_lost_has_failed() {
    let image = Arc::into_inner(MemoryMedia::new(6 * MIB)).unwrap();
    let media = Arc::new(Raced { image, others: Mutex::default(), before: Mutex::default() });
    let config = in_ram();
    let devices = Devices::on(vec![media.clone()], &config).unwrap().devices;
    let state = TierState { flushed_below: 7, ..devices.state() };
    *media.others.lock() = Some(devices.all()[0].clone());
    assert!(devices.save(&state).is_err(), "it is not on the device");
    devices.save(&state).unwrap();
    drop(devices);
    assert_eq!(Devices::on(vec![media], &config).unwrap().devices.state().flushed_below, 7);
}

/// The number of writes, over several devices, that succeed; all later ones fail.
struct Budget(std::sync::atomic::AtomicUsize);

impl Budget {
    fn new(allowed: usize) -> Arc<Self> {
        Arc::new(Self(allowed.into()))
    }

    fn over(self: &Arc<Self>, inner: Arc<MemoryMedia>) -> Arc<dyn Media> {
        Arc::new(Limited { budget: Arc::clone(self), inner })
    }
}

struct Limited {
    budget: Arc<Budget>,
    inner: Arc<MemoryMedia>,
}

impl Media for Limited {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
        use std::sync::atomic::Ordering::Relaxed;
        let left = self.budget.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| std::io::Error::other("the power is off"))?;
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<std::os::fd::RawFd> {
        None
    }
}
