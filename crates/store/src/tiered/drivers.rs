//! The I/O of two tiers on one thread.

use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::store::Driver;

/// Events taken at once. They only say that there is something to turn.
const EVENTS: usize = 4;

/// Two drivers as one. Their descriptors are watched by a poller, whose own descriptor is readable when one of them is.
struct Both {
    drivers: [Box<dyn Driver>; 2],
    poll: Poll,
    events: Events,
}

/// What turns both tiers' I/O, if they have any. Where no poller can be had it is nobody, and the tiers do it by other means.
pub(super) fn both(upper: Option<Box<dyn Driver>>, lower: Option<Box<dyn Driver>>) -> Option<Box<dyn Driver>> {
    match (upper, lower) {
        (Some(upper), Some(lower)) => Some(Box::new(Both::new([upper, lower]).ok()?)),
        (one, other) => one.or(other),
    }
}

impl Both {
    fn new(drivers: [Box<dyn Driver>; 2]) -> std::io::Result<Self> {
        let poll = Poll::new()?;
        for (number, driver) in drivers.iter().enumerate() {
            poll.registry().register(&mut SourceFd(&driver.descriptor()), Token(number), Interest::READABLE)?;
        }
        Ok(Self { drivers, poll, events: Events::with_capacity(EVENTS) })
    }
}

impl Driver for Both {
    fn descriptor(&self) -> RawFd {
        self.poll.as_raw_fd()
    }

    fn turn(&mut self) {
        // Takes the events, so that the next one is a change. Both are turned whatever they are: the turn also begins what
        // was asked for. A call that a signal interrupts leaves its events for the next.
        let _ = self.poll.poll(&mut self.events, Some(Duration::ZERO));
        self.drivers.iter_mut().for_each(|driver| driver.turn());
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::rc::Rc;

    use super::*;

    /// Has something to end when a byte comes.
    struct Bytes {
        stream: UnixStream,
        ended: Rc<Cell<usize>>,
    }

    impl Driver for Bytes {
        fn descriptor(&self) -> RawFd {
            self.stream.as_raw_fd()
        }

        fn turn(&mut self) {
            while self.stream.read(&mut [0]).is_ok_and(|count| count > 0) {
                self.ended.set(self.ended.get() + 1);
            }
        }
    }

    fn driver() -> (Box<dyn Driver>, UnixStream, Rc<Cell<usize>>) {
        let (stream, peer) = UnixStream::pair().expect("a pair of sockets");
        stream.set_nonblocking(true).expect("a socket");
        let ended = Rc::default();
        (Box::new(Bytes { stream, ended: Rc::clone(&ended) }), peer, ended)
    }

    #[test]
    fn either_wakes_the_thread_each_time_and_both_are_turned() {
        let (upper, mut above, ended_above) = driver();
        let (lower, mut below, ended_below) = driver();
        let mut both = both(Some(upper), Some(lower)).expect("drivers");
        let (mut outer, mut events) = (Poll::new().expect("a poller"), Events::with_capacity(4));
        let descriptor = both.descriptor();
        outer.registry().register(&mut SourceFd(&descriptor), Token(0), Interest::READABLE).expect("a descriptor");
        for round in 1..=3 {
            for (peer, ended) in [(&mut above, &ended_above), (&mut below, &ended_below)] {
                peer.write_all(b"x").expect("a byte");
                outer.poll(&mut events, Some(Duration::from_secs(60))).expect("events");
                assert!(!events.is_empty(), "nobody was woken in round {round}");
                both.turn();
                assert_eq!(ended.get(), round);
            }
        }
    }

    #[test]
    fn one_alone_is_taken_as_it_is() {
        let (one, _peer, _ended) = driver();
        let descriptor = one.descriptor();
        assert_eq!(both(None, Some(one)).map(|driver| driver.descriptor()), Some(descriptor));
        assert!(both(None, None).is_none());
    }
}
