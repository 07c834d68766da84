//! The client addresses that have connections, and what each may take: connections, operations and bytes.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::address::network;
use crate::limits::{Allowance, Limits, LiveLimits, Refused, Whose};
use crate::rate;

/// Limits of each client address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddressLimits {
    /// Most connections at once, at least 1; `None`: any number.
    pub connections: Option<usize>,
    /// What its connections may do together.
    pub rates: Limits,
}

/// The same as they are now.
#[derive(Debug, Default)]
pub struct LiveAddressLimits {
    /// 0: any number.
    connections: AtomicUsize,
    /// Of all addresses.
    pub rates: Arc<LiveLimits>,
}

impl LiveAddressLimits {
    /// Sets all of them.
    pub fn set(&self, limits: AddressLimits) {
        self.set_connections(limits.connections);
        self.rates.set(limits.rates);
    }

    /// Sets the limit on connections. Those that are open stay.
    pub fn set_connections(&self, most: Option<usize>) {
        self.connections.store(most.unwrap_or(0), Ordering::Relaxed);
    }

    fn connections(&self) -> Option<usize> {
        Some(self.connections.load(Ordering::Relaxed)).filter(|most| *most > 0)
    }
}

/// What the connections of one address share.
#[derive(Debug)]
struct ClientAddress {
    // Only the acceptor increments it, so its comparison with the limit holds.
    open: AtomicUsize,
    allowance: Arc<Allowance>,
}

/// A connection's place among those of its address; free again when this is dropped.
#[derive(Debug)]
pub(crate) struct AddressPermit(Arc<ClientAddress>);

impl AddressPermit {
    /// What the connections of the address may do.
    pub(crate) fn allowance(&self) -> &Arc<Allowance> {
        &self.0.allowance
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// All client addresses; the acceptor's.
#[derive(Debug)]
pub(crate) struct ClientAddresses {
    limits: Arc<LiveAddressLimits>,
    refused: Arc<Refused>,
    known: HashMap<IpAddr, Arc<ClientAddress>>,
    /// Number of addresses at which those are forgotten that have no connection and owe nothing.
    sweep_at: usize,
}

/// Fewest addresses that are looked through for what can be forgotten.
const SWEEP_MIN: usize = 1024;

impl ClientAddresses {
    /// No address has connections; what is refused is counted in `refused`.
    pub(crate) fn new(limits: Arc<LiveAddressLimits>, refused: Arc<Refused>) -> Self {
        Self { limits, refused, known: HashMap::new(), sweep_at: SWEEP_MIN }
    }

    /// Whether addresses have limits.
    pub(crate) fn are_limited(&self) -> bool {
        self.limits.connections().is_some() || self.limits.rates.are_there()
    }

    /// A place for one more connection from `address`, unless it has as many as it may; counts that.
    pub(crate) fn admit(&mut self, address: IpAddr) -> Option<AddressPermit> {
        if self.known.len() >= self.sweep_at {
            self.forget();
        }
        let (limits, refused) = (&self.limits, &self.refused);
        let new = || {
            let allowance = Allowance::new(Whose::Address, Arc::clone(&limits.rates), Arc::clone(refused));
            Arc::new(ClientAddress { open: AtomicUsize::new(0), allowance: Arc::new(allowance) })
        };
        let known = self.known.entry(network(address)).or_insert_with(new);
        if limits.connections().is_some_and(|most| known.open.load(Ordering::Relaxed) >= most) {
            refused.count_connection();
            return None;
        }
        known.open.fetch_add(1, Ordering::Relaxed);
        Some(AddressPermit(Arc::clone(known)))
    }

    /// Forgets addresses without connections, unless they have used some of their allowance just now: to come again is no way to
    /// get a new one.
    fn forget(&mut self) {
        let now = rate::now();
        self.known.retain(|_, known| known.open.load(Ordering::Relaxed) > 0 || !known.allowance.is_whole(now));
        self.sweep_at = (2 * self.known.len()).max(SWEEP_MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn live(limits: AddressLimits) -> Arc<LiveAddressLimits> {
        let live = LiveAddressLimits::default();
        live.set(limits);
        Arc::new(live)
    }

    #[test]
    fn an_address_has_so_many_connections_at_once() {
        let refused = Arc::<Refused>::default();
        let limits = AddressLimits { connections: Some(2), ..AddressLimits::default() };
        let mut addresses = ClientAddresses::new(live(limits), Arc::clone(&refused));
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let permits = [addresses.admit(one), addresses.admit(one)];
        assert!(permits.iter().all(Option::is_some) && addresses.admit(one).is_none());
        assert!(addresses.admit(other).is_some());
        drop(permits);
        assert!(addresses.admit(one).is_some());
        assert_eq!(refused.counts(), [0, 0, 1]);
    }

    #[test]
    fn addresses_that_have_left_are_forgotten_unless_they_owe_something() {
        let limits = AddressLimits { rates: Limits { operations: Some(1), bytes: None }, ..AddressLimits::default() };
        let mut addresses = ClientAddresses::new(live(limits), Arc::default());
        let debtor = addresses.admit(IpAddr::from([10, 0, 0, 1])).unwrap();
        debtor.allowance().spend(rate::now(), 3600, 0);
        drop(debtor);
        for number in 0..5 * SWEEP_MIN as u32 {
            drop(addresses.admit(IpAddr::from((number | 1 << 31).to_be_bytes())));
        }
        assert!(addresses.known.len() <= 2 * SWEEP_MIN, "{}", addresses.known.len());
        let again = addresses.admit(IpAddr::from([10, 0, 0, 1])).unwrap();
        assert!(again.allowance().refusal(rate::now()).is_some());
    }
}
