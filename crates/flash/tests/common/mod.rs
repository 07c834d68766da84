//! Tiers in temporary folders.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::suite::SuiteConfig;
use moneta_store::Clock;
use tempfile::TempDir;

/// A tier whose folder goes with it.
#[derive(Clone)]
pub struct Node {
    pub flash: Flash,
    _folder: Arc<TempDir>,
}
