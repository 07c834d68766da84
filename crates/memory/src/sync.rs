//! The lock of a shard: parking_lot's, or under the feature `shuttle` one whose every step a test schedules.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::Mutex;

/// shuttle's lock with parking_lot's interface.
#[cfg(feature = "shuttle")]
pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

#[cfg(feature = "shuttle")]
impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> shuttle::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a panic under the lock fails the test anyway")
    }
}
