//! A tier for tests of the feed, and its keys.

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::feed::Feed;
use moneta_store::versions::Versioning;
use moneta_store::{Clock, Component, Origin, Step};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

pub const KEYS: u32 = 300;
/// With regions of 256 KiB.
pub const TIER: u64 = 8 << 20;

pub struct Tier {
    pub config: FlashConfig,
    pub clock: Arc<Clock>,
    pub _folder: TempDir,
}

impl Tier {
    pub fn new(clock: Clock) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes: TIER }]);
        config.io = Io::Threads;
        config.io_threads = 2;
        config.region_bytes = 256 << 10;
        config.item_max = 32 << 10;
        config.flush_interval = Duration::from_millis(20);
        config.threads = 2;
        config.carry_percent = 20;
        config.versioning = Versioning { cluster: true, origin: Origin::new(1, 2), ..Versioning::default() };
        config.feed = true;
        Self { config, clock: Arc::new(clock), _folder: folder }
    }

    pub fn open(&self) -> Flash {
        Flash::open(&self.config, Arc::clone(&self.clock)).expect("the tier opens")
    }
}

pub fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(ended) => ended.expect("it does not fail"),
        Step::Wait(pending) => pollster::block_on(pending).expect("it does not fail"),
    }
}

pub fn name(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

pub fn number(key: &[u8]) -> u32 {
    std::str::from_utf8(key).expect("text")[4..].parse().expect("a number")
}

pub fn feed(flash: &Flash) -> &dyn Feed {
    flash.parts().feed.expect("it keeps a feed")
}
