//! What counts as one client address where limits go by that.

use std::net::IpAddr;

/// An IPv4 address, or the network of an IPv6 address, 64 bits, in which a host has as many addresses as it likes.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_the_sixth_version_is_one_address() {
        let read = |text: &str| network(text.parse().unwrap());
        assert_eq!(read("2001:db8::1"), read("2001:db8::ffff:1:2:3"));
        assert_ne!(read("2001:db8::1"), read("2001:db8:0:1::1"));
        assert_eq!(read("::ffff:10.0.0.1"), IpAddr::from([10, 0, 0, 1]));
    }
}
