//! Damage next to a record: in the block that is read for it.
//!
//! Guards against a record that is lost with its neighbours, and against an older version that passes for the newest when the
//! newest lies in the same block and cannot be made out any more.

use std::sync::Arc;

use moneta_flash::Flash;
use moneta_flash::testing::MemoryMedia;
use moneta_store::Clock;

use super::drive::{START, config, delete, device_bytes, get, numbers, open, set, wait};

const REGIONS: u64 = 20;

/// A tier on a device that can be tampered with.
struct Tier {
    media: Arc<MemoryMedia>,
    clock: Arc<Clock>,
    flash: Flash,
}

impl Tier {
    fn new() -> Self {
        let media = MemoryMedia::new(device_bytes(REGIONS));
        let clock = Arc::new(Clock::manual(START));
        let flash = open(Arc::clone(&media) as _, &config(), &clock);
        Self { media, clock, flash }
    }

    /// Writes on until all that was stored is read from the device.
    fn fill_region(&self) {
        for exptime in [0, 300, 7000, 80_000] {
            for number in 0..120 {
                set(&self.flash, format!("filler {exptime} {number}").as_bytes(), &[7; 5000], exptime).unwrap();
            }
        }
        wait(self.flash.sync()).unwrap();
    }

    /// Flips a bit so many bytes before the one place where `bytes` lie on the device.
    fn damage(&self, bytes: &[u8], before: usize) {
        self.media.tamper(|image| {
            let found: Vec<usize> =
                image.windows(bytes.len()).enumerate().filter(|(_, at)| *at == bytes).map(|(at, _)| at).collect();
            assert_eq!(found.len(), 1, "one copy is on the device");
            image[found[0] - before] ^= 1;
        });
    }

    /// What keys hold, read from the device, by the running tier and by one that finds them again after a crash.
    fn read(self, names: &[&str]) -> [Vec<Option<Vec<u8>>>; 2] {
        let read = |flash: &Flash| {
            let before = numbers(flash).buffer_reads;
            let shown = names.iter().map(|name| get(flash, name.as_bytes()).unwrap()).collect();
            assert_eq!(numbers(flash).buffer_reads, before, "from the device");
            shown
        };
        let running = read(&self.flash);
        // With a good trailer in each region that the keys lie in.
        wait(self.flash.sync()).unwrap();
        self.flash.crash();
        let again = open(self.media, &config(), &self.clock);
        let recovered = read(&again);
        again.crash();
        [running, recovered]
    }
}

/// What happens to a key between two sets of it.
type Between = fn(&Tier, &str);

#[test]
fn a_record_is_not_lost_with_those_behind_it_in_its_block() {
    let tier = Tier::new();
    let values = [b"value of the first".to_vec(), b"value of the second".to_vec(), b"value of the third".to_vec()];
    for (name, value) in ["one", "two", "three"].iter().zip(&values) {
        set(&tier.flash, name.as_bytes(), value, 0).unwrap();
    }
    tier.fill_region();
    tier.damage(&values[1], 0);
    let expected = vec![Some(values[0].clone()), None, Some(values[2].clone())];
    assert_eq!(tier.read(&["one", "two", "three"]), [expected.clone(), expected]);
}

#[test]
fn an_older_version_does_not_show_where_the_newest_in_its_block_is_damaged() {
    let overwrite: Between = |_, _| {};
    let delete_between: Between = |tier, name| {
        delete(&tier.flash, name.as_bytes()).unwrap();
    };
    let expire_between: Between = |tier, name| {
        tier.clock.advance(2);
        assert_eq!(get(&tier.flash, name.as_bytes()).unwrap(), None);
    };
    let betweens: [(&str, i64, Between); 3] = [
        ("overwritten", 0, overwrite),
        ("deleted and stored again", 0, delete_between),
        ("expired and stored again", 1, expire_between),
    ];
    // In the newest record's value, its key, its length and its marks.
    for damaged in [0, 1, 5, 16] {
        for (what, exptime, between) in betweens {
            let tier = Tier::new();
            set(&tier.flash, b"before", b"lies before", exptime).unwrap();
            set(&tier.flash, b"name", b"the older one", exptime).unwrap();
            between(&tier, "name");
            set(&tier.flash, b"name", b"and the newest", exptime).unwrap();
            tier.fill_region();
            tier.damage(b"and the newest", damaged);
            let [running, recovered] = tier.read(&["name"]);
            assert_eq!((running, recovered), (vec![None], vec![None]), "{what}, {damaged} before its value");
        }
    }
}
