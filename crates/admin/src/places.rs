//! Places for connections. Each kind of page has places apart from the others, so that many connections of one kind leave the
//! others theirs; where all places of a kind are taken, the address with the most of them gives one up to an address with fewer.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

use crate::limits::{Limits, Places};
use crate::tally::Tally;

/// A connection in a place.
#[derive(Debug)]
struct Seated {
    address: IpAddr,
    places: Places,
    /// When it took the place: a number that grows with each that is taken.
    turn: u64,
    task: Option<AbortHandle>,
}

/// The connections in places of one kind.
#[derive(Debug, Default)]
struct Kind {
    count: usize,
    /// By address, in the order in which they took their places: turn and number. None is empty.
    of_addresses: HashMap<IpAddr, BTreeMap<u64, u64>>,
}

/// Each step looks up what it is about, however many connections there are; only where a kind is full are its addresses gone through.
#[derive(Debug, Default)]
struct PlacesState {
    next: u64,
    /// By number.
    seated: HashMap<u64, Seated>,
    kinds: HashMap<Places, Kind>,
}

/// All places of an admin side.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hall {
    state: Arc<Mutex<PlacesState>>,
    limits: Arc<Limits>,
    tally: Arc<Tally>,
}

/// A connection's place; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    hall: Hall,
    id: u64,
}

impl Hall {
    /// All free; who finds none is counted in `tally`.
    pub(crate) fn new(limits: Limits, tally: Arc<Tally>) -> Self {
        Self { tally, limits: Arc::new(limits), ..Self::default() }
    }

    /// A place for a new connection from `address`.
    pub(crate) fn arrive(&self, address: IpAddr) -> Seat {
        let address = network(address);
        let mut state = self.state.lock();
        if state.count_of(Places::Arriving, address) >= self.limits.per_address {
            self.give_up(&mut state, Places::Arriving, address);
        } else if state.count(Places::Arriving) >= self.limits.places(Places::Arriving)
            && let Some((busiest, _)) = state.busiest(Places::Arriving)
        {
            self.give_up(&mut state, Places::Arriving, busiest);
        }
        let id = state.turn();
        state.seat(id, address, Places::Arriving, None);
        Seat { hall: self.clone(), id }
    }

    /// The task of the connection `id`, to be ended when its place is given to another.
    pub(crate) fn attach(&self, id: u64, task: AbortHandle) {
        if let Some(seated) = self.state.lock().seated.get_mut(&id) {
            seated.task = Some(task);
        }
    }

    /// Ends the oldest connection of `address` in `places`.
    fn give_up(&self, state: &mut PlacesState, places: Places, address: IpAddr) {
        let oldest = state.of(places, address).and_then(|taken| taken.values().next().copied());
        if let Some(task) = oldest.and_then(|oldest| state.unseat(oldest)?.task) {
            task.abort();
        }
        self.tally.count_turned_away();
    }
}

impl PlacesState {
    /// A number that no other has.
    fn turn(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn seat(&mut self, id: u64, address: IpAddr, places: Places, task: Option<AbortHandle>) {
        let turn = self.turn();
        let kind = self.kinds.entry(places).or_default();
        kind.count += 1;
        kind.of_addresses.entry(address).or_default().insert(turn, id);
        self.seated.insert(id, Seated { address, places, turn, task });
    }

    fn unseat(&mut self, id: u64) -> Option<Seated> {
        let seated = self.seated.remove(&id)?;
        let kind = self.kinds.get_mut(&seated.places)?;
        kind.count -= 1;
        let taken = kind.of_addresses.get_mut(&seated.address)?;
        taken.remove(&seated.turn);
        if taken.is_empty() {
            kind.of_addresses.remove(&seated.address);
        }
        Some(seated)
    }

    fn of(&self, places: Places, address: IpAddr) -> Option<&BTreeMap<u64, u64>> {
        self.kinds.get(&places)?.of_addresses.get(&address)
    }

    fn count(&self, places: Places) -> usize {
        self.kinds.get(&places).map_or(0, |kind| kind.count)
    }

    fn count_of(&self, places: Places, address: IpAddr) -> usize {
        self.of(places, address).map_or(0, BTreeMap::len)
    }

    /// The address with the most of these places, and how many it has; of several the one that has had its oldest for longest.
    fn busiest(&self, places: Places) -> Option<(IpAddr, usize)> {
        let all = self.kinds.get(&places)?.of_addresses.iter();
        let most = all.max_by_key(|(_, taken)| (taken.len(), Reverse(taken.keys().next().copied())));
        most.map(|(address, taken)| (*address, taken.len()))
    }
}

impl Seat {
    /// The connection's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Moves to one of `places`; false if its address has as many of them as it may, or if these are taken, and no address has more
    /// of them than this one would have.
    pub(crate) fn take(&self, places: Places) -> bool {
        let mut state = self.hall.state.lock();
        let Some(address) = state.seated.get(&self.id).map(|seated| seated.address) else { return false };
        let ours = state.count_of(places, address);
        if ours >= self.hall.limits.per_address {
            self.hall.tally.count_turned_away();
            return false;
        }
        if state.count(places) >= self.hall.limits.places(places) {
            match state.busiest(places) {
                Some((busiest, most)) if ours + 1 < most => self.hall.give_up(&mut state, places, busiest),
                _ => {
                    self.hall.tally.count_turned_away();
                    return false;
                }
            }
        }
        if let Some(Seated { task, .. }) = state.unseat(self.id) {
            state.seat(self.id, address, places, task);
        }
        true
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.hall.state.lock().unseat(self.id);
    }
}

/// What counts as one address: an IPv4 address, or the network of an IPv6 address, 64 bits, in which a host has as many as it
/// likes.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn seats(hall: &Hall, last: u8, count: usize, places: Places) -> Vec<Seat> {
        let seat = || {
            let seat = hall.arrive(address(last));
            assert!(seat.take(places));
            seat
        };
        std::iter::repeat_with(seat).take(count).collect()
    }

    fn holds(hall: &Hall, seat: &Seat) -> bool {
        hall.state.lock().seated.contains_key(&seat.id)
    }

    #[test]
    fn an_address_with_many_places_gives_one_up_to_one_with_fewer() {
        let hall = Hall::default();
        let reader = seats(&hall, 1, 1, Places::Feed).remove(0);
        let flood = seats(&hall, 2, hall.limits.places(Places::Feed) - 1, Places::Feed);
        let one_more = hall.arrive(address(2));
        assert!(!one_more.take(Places::Feed), "its own address has the most");
        let other = hall.arrive(address(3));
        assert!(other.take(Places::Feed));
        assert!(!holds(&hall, &flood[0]) && holds(&hall, &flood[1]), "the oldest of the busiest address has left");
        assert!(holds(&hall, &reader) && holds(&hall, &other));
        assert_eq!(hall.tally.turned_away(), 2);
        // Each kind has its own.
        assert!(one_more.take(Places::Readiness));
    }

    #[test]
    fn who_arrives_always_gets_a_place_and_costs_the_busiest_one() {
        let hall = Hall::default();
        let slow = hall.arrive(address(1));
        let flood: Vec<Seat> = (0..3 * hall.limits.places(Places::Arriving)).map(|_| hall.arrive(address(2))).collect();
        assert!(holds(&hall, &slow));
        assert_eq!(flood.iter().filter(|seat| holds(&hall, seat)).count(), hall.limits.places(Places::Arriving) - 1);
        drop((slow, flood));
        let state = hall.state.lock();
        assert!(
            state.seated.is_empty() && state.kinds.values().all(|kind| kind.count == 0 && kind.of_addresses.is_empty())
        );
    }

    #[test]
    fn an_address_has_so_many_places_of_a_kind_and_no_more() {
        let limits = Limits { per_address: 2, ..Limits::default() };
        let hall = Hall::new(limits, Arc::default());
        let of_one = seats(&hall, 1, 2, Places::Streams);
        let third = hall.arrive(address(1));
        assert!(!third.take(Places::Streams), "its address has two");
        assert!(third.take(Places::Feed), "each kind has its own");
        let _of_another = seats(&hall, 2, 2, Places::Streams);
        drop(of_one);
        seats(&hall, 1, 1, Places::Streams);
        // Those that arrive take the places of the oldest of their own address.
        let arriving: Vec<Seat> = (0..3).map(|_| hall.arrive(address(3))).collect();
        assert_eq!(arriving.iter().map(|seat| holds(&hall, seat)).collect::<Vec<_>>(), [false, true, true]);
    }

    #[test]
    fn a_network_of_the_sixth_version_is_one_address() {
        let read = |text: &str| network(text.parse().unwrap());
        assert_eq!(read("2001:db8::1"), read("2001:db8::ffff:1:2:3"));
        assert_ne!(read("2001:db8::1"), read("2001:db8:0:1::1"));
        assert_eq!(read("::ffff:10.0.0.1"), address(1));
    }
}
