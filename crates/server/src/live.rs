//! Settings that may change while a server serves. Whoever reads one takes it as it is at that moment; connections that are open
//! go by new values, too.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use moneta_store::Door;
use parking_lot::Mutex;

use crate::client_addresses::LiveAddressLimits;
use crate::door_places::DoorPlaces;
use crate::limits::LiveLimits;
use crate::settings::NodeSettings;

/// The settings, each by itself: none of them depends on another.
#[derive(Debug)]
pub struct Live {
    max_connections: AtomicUsize,
    idle_seconds: AtomicU32,
    dump_seconds: AtomicU32,
    output_limit: AtomicUsize,
    drain_milliseconds: AtomicU32,
    login_seconds: AtomicU32,
    login_attempts: AtomicU32,
    flush: AtomicBool,
    dump: AtomicBool,
    watch: AtomicBool,
    shutdown: AtomicBool,
    hot_keys: AtomicBool,
    miss_curve: AtomicBool,
    /// Limits of each client address.
    pub addresses: Arc<LiveAddressLimits>,
    /// Those of listeners, with which of them are their own. Locked when a listener is made and when a limit changes.
    listeners: Mutex<Vec<(Arc<LiveLimits>, [bool; 2])>>,
    /// The connections through doors, which may have a limit. Locked as those.
    doors: Mutex<HashMap<Door, Arc<DoorPlaces>>>,
}

impl Live {
    /// Those of `settings`; what only a server is told, it sets at its start.
    pub(crate) fn new(settings: &NodeSettings) -> Self {
        Self {
            max_connections: AtomicUsize::new(usize::try_from(settings.max_connections).unwrap_or(usize::MAX)),
            idle_seconds: AtomicU32::new(settings.idle_timeout),
            dump_seconds: AtomicU32::new(0),
            output_limit: AtomicUsize::new(0),
            drain_milliseconds: AtomicU32::new(0),
            login_seconds: AtomicU32::new(settings.login_timeout),
            login_attempts: AtomicU32::new(settings.login_attempts),
            flush: AtomicBool::new(settings.flush_enabled),
            dump: AtomicBool::new(settings.dump_enabled),
            watch: AtomicBool::new(settings.watch_enabled),
            shutdown: AtomicBool::new(settings.shutdown_enabled),
            hot_keys: AtomicBool::new(settings.hot_keys),
            miss_curve: AtomicBool::new(settings.miss_curve),
            addresses: Arc::default(),
            listeners: Mutex::default(),
            doors: Mutex::default(),
        }
    }

    /// Most client connections at once. Those that are open stay.
    pub fn set_max_connections(&self, most: usize) {
        self.max_connections.store(most, Relaxed);
    }

    /// Operations a second of each listener that has no limit of its own; `None`: any number. A limit where there was none holds for
    /// connections that are opened from then on.
    pub fn set_operations(&self, most: Option<u64>) {
        let listeners = self.listeners.lock();
        listeners.iter().filter(|(_, [is_own, _])| !is_own).for_each(|(limits, _)| limits.set_operations(most));
    }

    /// The same of bytes.
    pub fn set_bytes(&self, most: Option<u64>) {
        let listeners = self.listeners.lock();
        listeners.iter().filter(|(_, [_, is_own])| !is_own).for_each(|(limits, _)| limits.set_bytes(most));
    }

    /// Most connections at once through all listeners of a door; 0: any number. Those that are open stay.
    pub fn set_door_connections(&self, door: Door, most: usize) {
        self.door(door).set_most(most);
    }

    /// The connections through a door.
    pub(crate) fn door(&self, door: Door) -> Arc<DoorPlaces> {
        Arc::clone(self.doors.lock().entry(door).or_default())
    }

    /// Has the limits of a listener follow; of operations and bytes, which are its own.
    pub(crate) fn follow(&self, limits: &Arc<LiveLimits>, own: [bool; 2]) {
        self.listeners.lock().push((Arc::clone(limits), own));
    }

    /// Seconds after which an idle connection is closed, where its listener says nothing else; below one never. Workers see it at
    /// their next turn: [`moneta_process::phases::Phases::wake_all`] makes them turn.
    pub fn set_idle_timeout(&self, timeout: Duration) {
        self.idle_seconds.store(if timeout.is_zero() { 0 } else { whole_seconds(timeout) }, Relaxed);
    }

    /// How long a client may take nothing of its dump, in whole seconds, at least one.
    pub fn set_dump_timeout(&self, timeout: Duration) {
        self.dump_seconds.store(whole_seconds(timeout), Relaxed);
    }

    /// Unsent bytes at which a connection's requests are no longer executed, where its listener says nothing else; at least 1.
    pub fn set_output_limit(&self, bytes: usize) {
        self.output_limit.store(bytes, Relaxed);
    }

    /// How long draining may take, once it begins.
    pub fn set_drain_timeout(&self, timeout: Duration) {
        self.drain_milliseconds.store(milliseconds(timeout), Relaxed);
    }

    /// How long a log-in may take, in whole seconds; zero: any time.
    pub fn set_login_timeout(&self, timeout: Duration) {
        self.login_seconds.store(u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX), Relaxed);
    }

    /// Log-ins that a connection may fail, at least 1.
    pub fn set_login_attempts(&self, most: u32) {
        self.login_attempts.store(most, Relaxed);
    }

    /// Whether `flush_all` is answered.
    pub fn set_flush(&self, is_answered: bool) {
        self.flush.store(is_answered, Relaxed);
    }

    /// Whether keys may be listed and the feed be read.
    pub fn set_dump(&self, is_answered: bool) {
        self.dump.store(is_answered, Relaxed);
    }

    /// Whether `watch` is answered.
    pub fn set_watch(&self, is_answered: bool) {
        self.watch.store(is_answered, Relaxed);
    }

    /// Whether `shutdown` is answered.
    pub fn set_shutdown(&self, is_answered: bool) {
        self.shutdown.store(is_answered, Relaxed);
    }

    pub(crate) fn set_hot_keys(&self, are_found: bool) {
        self.hot_keys.store(are_found, Relaxed);
    }

    pub(crate) fn finds_hot_keys(&self) -> bool {
        self.hot_keys.load(Relaxed)
    }

    pub(crate) fn set_miss_curve(&self, is_kept: bool) {
        self.miss_curve.store(is_kept, Relaxed);
    }

    pub(crate) fn keeps_miss_curve(&self) -> bool {
        self.miss_curve.load(Relaxed)
    }

    pub(crate) fn max_connections(&self) -> usize {
        self.max_connections.load(Relaxed)
    }

    /// 0: never.
    pub(crate) fn idle_seconds(&self) -> u32 {
        self.idle_seconds.load(Relaxed)
    }

    pub(crate) fn dump_seconds(&self) -> u32 {
        self.dump_seconds.load(Relaxed)
    }

    pub(crate) fn output_limit(&self) -> usize {
        self.output_limit.load(Relaxed)
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_milliseconds.load(Relaxed).into())
    }

    /// 0: any time.
    pub(crate) fn login_seconds(&self) -> u32 {
        self.login_seconds.load(Relaxed)
    }

    pub(crate) fn login_attempts(&self) -> u32 {
        self.login_attempts.load(Relaxed)
    }

    pub(crate) fn answers_flush(&self) -> bool {
        self.flush.load(Relaxed)
    }

    pub(crate) fn answers_dump(&self) -> bool {
        self.dump.load(Relaxed)
    }

    pub(crate) fn answers_watch(&self) -> bool {
        self.watch.load(Relaxed)
    }

    pub(crate) fn answers_shutdown(&self) -> bool {
        self.shutdown.load(Relaxed)
    }
}

/// Idle times are kept in seconds; a timeout below one second would close every connection.
pub(crate) fn whole_seconds(timeout: Duration) -> u32 {
    u32::try_from(timeout.as_secs()).unwrap_or(u32::MAX).max(1)
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}
