//! Host names that are looked up for a bounded time.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use moneta_background::Run;

use crate::host_port::HostPort;

/// Look-ups of a process under way at once. The system's resolver cannot be interrupted, so one that is given up goes on, on its
/// thread, until the resolver gives up, too: half a minute as a rule.
const UNDER_WAY_MAX: usize = 64;

static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// The place of a look-up that is under way.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(taken: &'a AtomicUsize) -> Option<Self> {
        let take = |taken: usize| (taken < UNDER_WAY_MAX).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok().map(|_| Self(taken))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl HostPort {
    /// The socket addresses of the host, as [`HostPort::resolve`] has them, if they are found within `patience`. Numbers take
    /// no time.
    ///
    /// # Errors
    /// When the host is not known, the name server is too slow, or 64 other look-ups are under way.
    pub fn resolve_within(&self, patience: Duration) -> io::Result<Vec<SocketAddr>> {
        if let Some(number) = self.number() {
            return Ok(vec![number]);
        }
        if self.is_unheld() {
            return self.resolve();
        }
        let place = self.clone();
        within(patience, &UNDER_WAY, move || place.resolve())
    }
}

fn within<T: Send + 'static>(
    patience: Duration,
    taken: &'static AtomicUsize,
    look_up: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let Some(place) = Place::take(taken) else {
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, "too many host names are being looked up"));
    };
    let (sender, receiver) = mpsc::channel();
    let look = move |_: &Run| {
        let found = look_up();
        drop(place);
        // Too late: the caller has stopped waiting.
        let _ = sender.send(found);
    };
    moneta_background::start("names", look)?;
    receiver.recv_timeout(patience).unwrap_or_else(|error| match error {
        RecvTimeoutError::Timeout => Err(io::Error::new(io::ErrorKind::TimedOut, "the name server is too slow")),
        RecvTimeoutError::Disconnected => Err(io::Error::other("the look-up failed")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_that_is_silent_is_given_up_in_time_and_keeps_a_place_until_it_ends() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let (ends, end) = mpsc::channel::<()>();
        let slow = within(Duration::from_millis(5), &TAKEN, move || Ok(end.recv().is_ok()));
        assert_eq!(slow.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(TAKEN.load(Ordering::Relaxed), 1);
        ends.send(()).unwrap();
        while TAKEN.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(within(Duration::from_secs(60), &TAKEN, || Ok(1)).unwrap(), 1);
    }

    #[test]
    fn look_ups_that_do_not_end_are_few() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        let places: Vec<_> = std::iter::from_fn(|| Place::take(&TAKEN)).collect();
        assert_eq!(places.len(), UNDER_WAY_MAX);
        assert_eq!(within(Duration::ZERO, &TAKEN, || Ok(1)).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(places);
        assert!(within(Duration::from_secs(60), &TAKEN, || Ok(1)).is_ok());
    }

    #[test]
    fn numbers_are_not_looked_up() {
        let found = HostPort::new("::1", 7).resolve_within(Duration::ZERO).unwrap();
        assert_eq!(found, [SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 7))]);
    }
}
