//! Opening devices: which tiers are kept, start empty or are refused, with which message, and that a refusal changes nothing.

mod kept;
mod refused;
mod saves;

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{Devices, Opened};
use crate::config::{DeviceConfig, TierConfig};
use crate::error::TierError;

const REGION: u64 = 256 << 10;
const MIB: u64 = 1 << 20;

fn config(devices: &[(&Path, u64)]) -> TierConfig {
    let devices =
        devices.iter().map(|(path, bytes)| DeviceConfig { path: path.to_path_buf(), bytes: *bytes }).collect();
    TierConfig { devices, region_bytes: REGION as usize, region_bytes_kept: None, start_empty: false, direct: true }
}

/// Devices made by a test need no path, but a configuration must name one.
fn in_ram() -> TierConfig {
    config(&[(Path::new("in RAM"), 0)])
}

fn open(devices: &[(&Path, u64)]) -> Result<Opened, TierError> {
    Devices::open(&config(devices))
}

fn refusal(devices: &[(&Path, u64)]) -> String {
    match open(devices) {
        Ok(_) => panic!("not refused"),
        Err(error) => error.to_string(),
    }
}

/// A temporary folder and some paths in it.
fn paths<const N: usize>() -> (TempDir, [PathBuf; N]) {
    let folder = tempfile::tempdir().unwrap();
    let paths = std::array::from_fn(|number| folder.path().join(format!("device-{number}")));
    (folder, paths)
}

fn assert_says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "{sentence:?} does not say {part:?}");
    }
}

/// The identity of a tier that is kept.
fn kept(devices: &[(&Path, u64)]) -> u64 {
    let opened = open(devices).unwrap();
    assert!(!opened.fresh && opened.why_fresh.is_none());
    opened.devices.tier()
}
