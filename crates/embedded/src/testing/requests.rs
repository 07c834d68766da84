//! Requests that are waited for.

use std::time::{Duration, Instant};

use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, ItemRef, Key, Lookup, Pending, Step, Store, StoreError, Written};

/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until something holds that is done in the background.
///
/// # Panics
/// If it does not come about within minutes, on however slow a machine.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits for the end of something.
///
/// # Errors
/// As that ends.
pub fn wait<T>(pending: Pending<T>) -> Result<T, StoreError> {
    pollster::block_on(pending)
}

/// Waits for the end of a step.
///
/// # Errors
/// As that ends.
pub fn end<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => wait(pending),
    }
}

/// Stores a value that dies after so many seconds, or never with 0.
///
/// # Errors
/// If the store fails.
pub fn set(store: &impl Store, key: &str, value: &[u8], seconds: i64) -> Result<Written, StoreError> {
    let request = Write { exptime: Exptime(seconds), ..Write::default() };
    end(store.set(&Key::new(key.as_bytes(), store.seed()), value, &request))
}

/// Deletes what is under a key, if anything is.
///
/// # Panics
/// If the store fails.
pub fn delete(store: &impl Store, key: &str) {
    end(store.delete(&Key::new(key.as_bytes(), store.seed()), &Delete::default())).expect("a delete");
}

/// The value under a key.
///
/// # Panics
/// If the store fails.
pub fn get(store: &impl Store, key: &str) -> Option<Vec<u8>> {
    let key = Key::new(key.as_bytes(), store.seed());
    let mut visited = None;
    let step = store.get(&key, &Retrieve::default(), &mut |item: &ItemRef<'_>| visited = Some(item.value.to_vec()));
    match end(step).expect("a get") {
        Lookup::Found(item) => Some(item.value.into_vec()),
        Lookup::Visited => visited,
        Lookup::Miss { .. } => None,
    }
}
