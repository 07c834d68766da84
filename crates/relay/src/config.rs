//! What a relay is told.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use moneta_feed::Rate;

/// What is done with a change of the other region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// It is stored here, if it is newer.
    #[default]
    Full,
    /// What is older here is deleted; no value crosses.
    Invalidate,
}

/// How far behind a relay may be and still be ready. Clones are the same.
#[derive(Clone, Debug)]
pub struct LagMax(Arc<AtomicU64>);

impl LagMax {
    /// So long.
    pub fn of(most: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(milliseconds(most))))
    }

    /// Sets it.
    pub fn set(&self, most: Duration) {
        self.0.store(milliseconds(most), Ordering::Relaxed);
    }

    /// How long it is.
    pub fn get(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

fn milliseconds(of: Duration) -> u64 {
    u64::try_from(of.as_millis()).unwrap_or(u64::MAX)
}

/// What is carried, from where, and how.
#[derive(Clone, Debug)]
pub struct RelayConfig {
    /// The app, in names of files and of the reader.
    pub app: String,
    /// The number of the region whose changes are carried: what was written in others it gets from them itself.
    pub region: u8,
    /// Folder of the file that keeps the progress. One relay of an app and a region has it at a time.
    pub folder: PathBuf,
    /// Only keys that begin so.
    pub prefix: Vec<u8>,
    /// What is done with a change.
    pub mode: Mode,
    /// A flush of the other region is one here, too, and a backup's rollback crosses.
    pub flush: bool,
    /// The streams are compressed.
    pub compress: bool,
    /// Bytes a second that all streams together are sent, compressed or not; 0: no bound. May be set while the relay runs.
    pub rate: Rate,
    /// Threads that write what one stream tells. At least 1.
    pub workers: usize,
    /// Largest value that is taken, in bytes. In place of a larger one, what is older here is deleted.
    pub value_max: usize,
    /// The copy that is read first; `None`: the first of the topology that answers reads.
    pub copy: Option<String>,
    /// How long a node may fail before another copy is read.
    pub patience: Duration,
    /// How far back the first start begins; later ones go on where the last one was.
    pub back: Duration,
    /// How far behind the relay may be and still be ready. May be set while the relay runs.
    pub lag_max: LagMax,
}

impl RelayConfig {
    /// How far before the moment up to which all is here a relay reads on after a start, and in another copy: longer than a write is
    /// on its way to all copies of a region, than a killed node leaves changes in RAM alone, and than hints wait for their file.
    pub const MARGIN: Duration = Duration::from_secs(90);

    /// The defaults, for an app and a region.
    pub fn new(app: impl Into<String>, region: u8, folder: PathBuf) -> Self {
        Self {
            app: app.into(),
            region,
            folder,
            prefix: Vec::new(),
            mode: Mode::Full,
            flush: false,
            compress: true,
            rate: Rate::default(),
            workers: 2,
            value_max: 64 << 20,
            copy: None,
            patience: Duration::from_secs(5),
            back: Duration::from_secs(60),
            lag_max: LagMax::of(Duration::from_secs(60)),
        }
    }
}
