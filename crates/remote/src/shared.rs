//! What all connections to a server have in common: its addresses, whether it is taken for dead, and numbers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use moneta_client::wire::{Dialect, Protocol};
use moneta_net::{Address, Names};
use moneta_store::Slot;
use parking_lot::Mutex;

use crate::config::RemoteConfig;
use crate::counters::RemoteCounters;
use crate::error::RemoteError;

/// The state that all connections to a server share.
pub(crate) struct ServerShared {
    pub(crate) config: RemoteConfig,
    /// Where workers have their connections.
    pub(crate) slot: Slot,
    pub(crate) counters: RemoteCounters,
    pub(crate) names: Arc<Names>,
    /// Connections in a row that failed by silence before they came up; [`DEAD`] where the server refused. One that comes up
    /// ends this.
    unreached: AtomicU32,
    /// Connections in a row that came up and then left requests without a reply. A server may be well enough to say what it
    /// is and to do no more than that, so only a reply to a request ends this.
    unanswered: AtomicU32,
    /// How often it came back: a connection that waits for its next attempt sees by it that waiting makes no more sense.
    recoveries: AtomicU64,
    said: Mutex<Said>,
    /// That it understands meta is the last it has said of itself.
    knows_meta: AtomicBool,
}

/// What is known of the server from its last words.
#[derive(Default)]
struct Said {
    dialect: Option<Dialect>,
    last_failure: Arc<str>,
}

/// A count of failures that is over any limit.
const DEAD: u32 = u32::MAX / 2;

impl ServerShared {
    pub(crate) fn new(config: RemoteConfig) -> Result<Self, RemoteError> {
        config.check()?;
        let names = match Names::new(&config.endpoint.address, Box::new(Address::resolve)) {
            Err(error) if config.may_be_unknown => {
                tracing::warn!(server = %config.endpoint.address, %error, "the host is not known yet");
                Names::unknown(&config.endpoint.address, Box::new(Address::resolve))
            }
            Err(source) => return Err(RemoteError::Unknown { address: config.endpoint.address.clone(), source }),
            Ok(names) => names,
        };
        Ok(Self::with_names(config, names))
    }

    pub(crate) fn with_names(config: RemoteConfig, names: Names) -> Self {
        Self {
            config,
            slot: Slot::draw(),
            counters: RemoteCounters::default(),
            names: Arc::new(names),
            unreached: AtomicU32::new(0),
            unanswered: AtomicU32::new(0),
            recoveries: AtomicU64::new(0),
            said: Mutex::default(),
            knows_meta: AtomicBool::new(false),
        }
    }

    /// Whether the server is taken for dead: requests then fail at once.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.unreached.load(Ordering::Relaxed) >= self.config.timeouts_max || self.hangs()
    }

    /// Whether it is taken for dead because it leaves requests unanswered, whatever it says at connecting.
    #[inline]
    pub(crate) fn hangs(&self) -> bool {
        self.unanswered.load(Ordering::Relaxed) >= self.config.timeouts_max
    }

    /// What the server was last found to understand.
    pub(crate) fn dialect(&self) -> Option<Dialect> {
        self.said.lock().dialect
    }

    /// Whether it was last found to understand meta.
    #[inline]
    pub(crate) fn knows_meta(&self) -> bool {
        self.knows_meta.load(Ordering::Relaxed)
    }

    /// Whether a server that hangs up on text may be one that speaks binary only, as far as is known. One that is taken for
    /// dead may come back as another.
    pub(crate) fn may_want_binary(&self) -> bool {
        self.is_open() || self.dialect().is_none_or(|dialect| dialect.protocol == Protocol::Binary)
    }

    /// Why it was last found to be dead.
    pub(crate) fn last_failure(&self) -> Arc<str> {
        Arc::clone(&self.said.lock().last_failure)
    }

    pub(crate) fn recoveries(&self) -> u64 {
        self.recoveries.load(Ordering::Relaxed)
    }

    /// It was silent for too long at connecting.
    pub(crate) fn note_silence(&self, reason: &Arc<str>) {
        self.note_failure(&self.unreached, 1, reason);
    }

    /// It cannot be reached, or does not behave as a server of memcached's kind.
    pub(crate) fn note_refusal(&self, reason: &Arc<str>) {
        self.note_failure(&self.unreached, DEAD, reason);
    }

    /// It said what it is, and then nothing to requests.
    pub(crate) fn note_unanswered(&self, reason: &Arc<str>) {
        self.note_failure(&self.unanswered, 1, reason);
    }

    fn note_failure(&self, failures: &AtomicU32, count: u32, reason: &Arc<str>) {
        let was_open = self.is_open();
        self.said.lock().last_failure = Arc::clone(reason);
        let add = |failures: u32| Some(failures.saturating_add(count).min(DEAD));
        let _ = failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.names.look_up_again(self.config.backoff_max);
        if !was_open && self.is_open() {
            tracing::warn!(server = %self.config.endpoint.address, %reason, "requests to the server fail until it answers again");
        }
    }

    /// A connection came up: the server understands `dialect`.
    pub(crate) fn note_dialect(&self, dialect: Dialect) {
        self.said.lock().dialect = Some(dialect);
        self.knows_meta.store(dialect.protocol == Protocol::Meta, Ordering::Relaxed);
        if self.unreached.load(Ordering::Relaxed) > 0 {
            self.forgive(u32::MAX);
        }
    }

    /// The reply to a trial came. That of a client's request is still to be seen: the next that is left without one is enough
    /// for the server to be taken for dead again.
    pub(crate) fn note_passed_trial(&self) {
        self.forgive(self.config.timeouts_max - 1);
    }

    /// The reply to a request came.
    #[inline]
    pub(crate) fn note_reply(&self) {
        if self.unreached.load(Ordering::Relaxed) | self.unanswered.load(Ordering::Relaxed) > 0 {
            self.forgive(0);
        }
    }

    /// Forgets all failures but so many connections that left requests without a reply.
    #[cold]
    fn forgive(&self, unanswered: u32) {
        let was_open = self.is_open();
        self.unreached.store(0, Ordering::Relaxed);
        self.unanswered.fetch_min(unanswered, Ordering::Relaxed);
        if self.is_open() {
            return;
        }
        self.recoveries.fetch_add(1, Ordering::Relaxed);
        if was_open {
            tracing::info!(server = %self.config.endpoint.address, "the server answers again");
        }
    }

    /// The pause after the `tries`th attempt in a row that failed, the first being 1.
    pub(crate) fn pause(&self, tries: u32) -> Duration {
        let RemoteConfig { backoff_min, backoff_max, .. } = self.config;
        let full = backoff_min.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(backoff_max);
        full.mul_f64(1.0 - fastrand::f64() / 2.0)
    }
}
