//! The addresses of a server's name: which to try next, and when the name is looked up again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::Run;
use parking_lot::Mutex;

use crate::address::Address;

/// Finds the addresses of a name; may wait for a name server.
pub type Lookup = dyn Fn(&Address) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a server's name. A Unix socket has a name and no addresses.
pub struct Names {
    name: Address,
    look_up: Box<Lookup>,
    known: Mutex<Known>,
}

struct Known {
    addresses: Vec<SocketAddr>,
    /// Where a connection last came up.
    proven: Option<SocketAddr>,
    looked_up: Instant,
    is_looking: bool,
}

impl Known {
    fn nothing() -> Self {
        Self { addresses: Vec::new(), proven: None, looked_up: Instant::now(), is_looking: false }
    }
}

impl Names {
    /// Looks `name` up.
    ///
    /// # Errors
    /// When that fails: a name that means nothing at the start is a mistake.
    pub fn new(name: &Address, look_up: Box<Lookup>) -> io::Result<Self> {
        let addresses = look_up(name)?;
        Ok(Self { known: Mutex::new(Known { addresses, ..Known::nothing() }), name: name.clone(), look_up })
    }

    /// Nothing is known of `name`, until it is looked up again.
    pub fn unknown(name: &Address, look_up: Box<Lookup>) -> Self {
        Self { name: name.clone(), look_up, known: Mutex::new(Known::nothing()) }
    }

    /// How many places there are to try: at least one.
    pub fn places(&self) -> usize {
        self.known.lock().addresses.len().max(1)
    }

    /// The address to try, over TCP, after so many others. The first is the one that proved good last, if the name still
    /// means it.
    pub fn address(&self, passed_over: usize) -> Option<SocketAddr> {
        let Known { addresses, proven, .. } = &*self.known.lock();
        let first = addresses.iter().position(|address| Some(*address) == *proven).unwrap_or(0);
        addresses.get((first + passed_over) % addresses.len().max(1)).copied()
    }

    /// A connection came up there.
    pub fn prove(&self, address: SocketAddr) {
        self.known.lock().proven = Some(address);
    }

    /// Looks the name up again, since the server may have moved: on a new thread, since name servers may be slow. Does nothing if
    /// a look-up is in progress or began less than `pause` ago; the next failure calls this again.
    pub fn look_up_again(self: &Arc<Self>, pause: Duration) {
        if !self.is_to_be_looked_up() || !self.begin_to_look(pause) {
            return;
        }
        let names = Arc::clone(self);
        let look = move |_: &Run| names.end_looking((names.look_up)(&names.name).unwrap_or_default());
        if let Err(error) = moneta_background::start("names", look) {
            tracing::warn!(server = %self.name, %error, "cannot look the name up again");
            self.end_looking(Vec::new());
        }
    }

    fn is_to_be_looked_up(&self) -> bool {
        matches!(&self.name, Address::Tcp(place) if place.number().is_none())
    }

    fn begin_to_look(&self, pause: Duration) -> bool {
        let mut known = self.known.lock();
        let may_look = !known.is_looking && known.looked_up.elapsed() > pause;
        known.is_looking |= may_look;
        may_look
    }

    /// Takes what was found; nothing is no reason to forget what was known.
    fn end_looking(&self, found: Vec<SocketAddr>) {
        let mut known = self.known.lock();
        known.is_looking = false;
        known.looked_up = Instant::now();
        if !found.is_empty() {
            known.addresses = found;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Names whose every lookup is told of, and waits until it is told what to find.
    fn names() -> (Arc<Names>, mpsc::Receiver<()>, mpsc::Sender<Vec<SocketAddr>>) {
        let (asks, asked) = mpsc::channel();
        let (finds, found) = mpsc::channel();
        let found = Mutex::new(found);
        finds.send(vec![address(1)]).expect("it is received below");
        let look_up = move |_: &Address| {
            asks.send(()).expect("the test goes on");
            Ok(found.lock().recv().unwrap_or_default())
        };
        let names = Names::new(&Address::tcp("somewhere", 11211), Box::new(look_up)).expect("it is found");
        asked.recv().expect("it was looked up");
        (Arc::new(names), asked, finds)
    }

    fn address(port: u16) -> SocketAddr {
        ([127, 0, 0, 1], port).into()
    }

    fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !holds() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn however_often_it_is_asked_for_one_lookup_is_under_way() {
        let (names, asked, finds) = names();
        wait_until("some time passes", || !names.known.lock().looked_up.elapsed().is_zero());
        (0..10).for_each(|_| names.look_up_again(Duration::ZERO));
        asked.recv().expect("one is begun");
        finds.send(vec![address(2)]).expect("it is waited for");
        wait_until("it is over", || !names.known.lock().is_looking);
        assert_eq!(names.address(0), Some(address(2)));
        // None of the others was put off either.
        assert!(asked.try_recv().is_err());
    }

    #[test]
    fn between_lookups_there_is_a_pause() {
        let (names, asked, _finds) = names();
        names.look_up_again(Duration::from_secs(3600));
        assert!(!names.known.lock().is_looking && asked.try_recv().is_err());
    }

    #[test]
    fn a_lookup_that_finds_nothing_changes_nothing() {
        let (names, _asked, finds) = names();
        wait_until("some time passes", || !names.known.lock().looked_up.elapsed().is_zero());
        names.look_up_again(Duration::ZERO);
        finds.send(Vec::new()).expect("it is waited for");
        wait_until("it is over", || !names.known.lock().is_looking);
        assert_eq!(names.address(0), Some(address(1)));
    }

    #[test]
    fn each_address_is_tried_beginning_with_the_one_that_proved_good() {
        let look_up = |_: &Address| Ok([1, 2, 3].map(address).to_vec());
        let names = Names::new(&Address::tcp("somewhere", 11211), Box::new(look_up)).expect("it is found");
        let tried = || [0, 1, 2].map(|passed_over| names.address(passed_over).expect("there are three").port());
        assert_eq!((names.places(), tried()), (3, [1, 2, 3]));
        names.prove(address(2));
        assert_eq!(tried(), [2, 3, 1]);
        names.prove(address(4));
        assert_eq!(tried(), [1, 2, 3]);
    }

    #[test]
    fn a_host_that_was_unknown_has_an_address_once_it_is_found() {
        let (finds, found) = mpsc::channel();
        let found = Mutex::new(found);
        let look_up = move |_: &Address| Ok(found.lock().recv().unwrap_or_default());
        let names = Arc::new(Names::unknown(&Address::tcp("somewhere", 11211), Box::new(look_up)));
        for addresses in [vec![], vec![address(1)]] {
            assert_eq!((names.places(), names.address(0)), (1, None));
            wait_until("some time passes", || !names.known.lock().looked_up.elapsed().is_zero());
            names.look_up_again(Duration::ZERO);
            finds.send(addresses).expect("it is waited for");
            wait_until("it is over", || !names.known.lock().is_looking);
        }
        assert_eq!(names.address(0), Some(address(1)));
    }

    #[test]
    fn numbers_are_not_looked_up_again() {
        let look_up = |name: &Address| name.resolve();
        let names = Names::new(&Address::tcp("127.0.0.1", 11211), Box::new(look_up)).expect("it is a number");
        assert!(!names.is_to_be_looked_up());
    }
}
