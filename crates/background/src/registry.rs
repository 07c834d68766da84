//! The list of tasks of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::signal::Signal;

/// All tasks of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    /// The name.
    pub name: String,
    /// How many run now.
    pub running: u64,
    /// How many were started.
    pub started: u64,
    /// Failures: ends by a panic, and what tasks told by [`Run::failed`](crate::Run::failed).
    pub failures: u64,
    /// Ends by a panic.
    pub panics: u64,
    /// What failed last.
    pub last_failure: Option<String>,
    /// When one ended last, in seconds since the Unix epoch.
    pub last_end: Option<f64>,
}

#[derive(Default)]
struct Named {
    started: u64,
    ended: u64,
    failures: u64,
    panics: u64,
    last_failure: Option<String>,
    last_end: Option<f64>,
}

#[derive(Default)]
struct Registry {
    names: BTreeMap<String, Named>,
    running: Vec<(String, Weak<Signal>)>,
}

// Held for a look at some dozens of entries: when a task begins or ends, and for each look at the list.
static REGISTRY: Mutex<Registry> = Mutex::new(Registry { names: BTreeMap::new(), running: Vec::new() });

/// How often `stop_all` looks whether all have ended.
const LOOK: Duration = Duration::from_millis(2);

/// All tasks since the start of the process, by name.
pub fn list() -> Vec<Listed> {
    let registry = REGISTRY.lock();
    let listed = registry.names.iter().map(|(name, named)| Listed {
        name: name.clone(),
        running: named.started - named.ended,
        started: named.started,
        failures: named.failures,
        panics: named.panics,
        last_failure: named.last_failure.clone(),
        last_end: named.last_end,
    });
    listed.collect()
}

/// What is wrong, a sentence each: tasks that ended by a panic, so that what they did is not done any more.
pub fn unwell() -> Vec<String> {
    let panicked = list().into_iter().filter(|listed| listed.panics > 0);
    panicked
        .map(|Listed { name, panics, .. }| format!("the task {name} panicked ({panics} times since the start)"))
        .collect()
}

/// Asks all tasks to stop, and waits for those that end within this time. The names of those that run on.
pub fn stop_all(within: Duration) -> Vec<String> {
    let until = Instant::now() + within;
    let running = || -> Vec<(String, Arc<Signal>)> {
        let registry = REGISTRY.lock();
        registry.running.iter().filter_map(|(name, signal)| Some((name.clone(), signal.upgrade()?))).collect()
    };
    running().iter().for_each(|(_, signal)| signal.stop());
    while Instant::now() < until && !running().is_empty() {
        std::thread::sleep(LOOK);
    }
    running().into_iter().map(|(name, _)| name).collect()
}

/// The name of a task without the number that tells it from others of its kind.
fn kind(name: &str) -> &str {
    match name.rsplit_once('-') {
        Some((kind, number)) if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) => kind,
        _ => name,
    }
}

/// A task begins.
pub(crate) fn begin(name: &str, signal: &Arc<Signal>) {
    let mut registry = REGISTRY.lock();
    registry.names.entry(kind(name).to_owned()).or_default().started += 1;
    registry.running.push((kind(name).to_owned(), Arc::downgrade(signal)));
}

/// A task that began, and ended as there was no thread for it: it was not started.
pub(crate) fn forget_end(name: &str) {
    if let Some(named) = REGISTRY.lock().names.get_mut(kind(name)) {
        named.started -= 1;
        named.ended -= 1;
    }
}

/// A task failed at something and goes on.
pub(crate) fn failed(name: &str, why: String) {
    if let Some(named) = REGISTRY.lock().names.get_mut(kind(name)) {
        named.failures += 1;
        named.last_failure = Some(why);
    }
}

/// A task ends.
pub(crate) fn end(name: &str, signal: &Arc<Signal>, panicked: bool) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut registry = REGISTRY.lock();
    if let Some(named) = registry.names.get_mut(kind(name)) {
        named.ended += 1;
        named.last_end = Some(now.as_secs_f64());
        if panicked {
            named.failures += 1;
            named.panics += 1;
            named.last_failure = Some("it panicked; the log has the place".to_owned());
        }
    }
    leave(&mut registry, signal);
}

fn leave(registry: &mut Registry, signal: &Arc<Signal>) {
    registry.running.retain(|(_, running)| !std::ptr::eq(running.as_ptr(), Arc::as_ptr(signal)));
}

#[cfg(test)]
mod tests {
    use super::kind;

    #[test]
    fn a_number_at_the_end_of_a_name_is_left_out() {
        assert_eq!(kind("flash-read-12"), "flash-read");
        assert_eq!(kind("cluster-time"), "cluster-time");
        assert_eq!(kind("odd-"), "odd-");
        assert_eq!(kind("7"), "7");
    }
}
