//! A tier on SSD for tests.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::Clock;
use moneta_store::versions::Versioning;

/// A tier on a file that loses nothing.
pub fn flash(clock: Arc<Clock>) -> Flash {
    flash_with(Versioning::default(), clock)
}

/// The same, with versions made as told.
pub fn flash_with(versioning: Versioning, clock: Arc<Clock>) -> Flash {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes: 2 << 30 }]);
    config.io = Io::Threads;
    config.io_threads = 2;
    config.region_bytes = 4 << 20;
    config.flush_interval = Duration::from_millis(20);
    config.threads = 2;
    config.versioning = versioning;
    Flash::open(&config, clock).expect("a tier")
}
