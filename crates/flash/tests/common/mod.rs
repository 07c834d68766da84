//! Tiers in files that go with them.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::Clock;

/// A tier of `bytes` in a folder that is gone already: its file lives as long as the tier.
pub fn tier(bytes: u64, clock: Arc<Clock>, change: impl FnOnce(&mut FlashConfig)) -> Flash {
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes }]);
    config.io = Io::Threads;
    config.io_threads = 2;
    config.region_bytes = 4 << 20;
    config.flush_interval = Duration::from_millis(20);
    config.threads = 2;
    change(&mut config);
    Flash::open(&config, clock).expect("a tier")
}
