//! What counts as one client address where limits go by that.

use std::net::IpAddr;

use moneta_store::ClientTag;

/// An IPv4 address, or the network of an IPv6 address, 64 bits, in which a host has as many addresses as it likes.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        address => address,
    }
}

/// The same as a number, for stores.
pub(crate) fn client_tag(address: IpAddr) -> ClientTag {
    let number = match network(address) {
        IpAddr::V4(address) => address.to_bits(),
        // A client that has many networks gains nothing by two that fall on one number: then they share.
        IpAddr::V6(address) => (((address.to_bits() >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32,
    };
    ClientTag(number.max(1))
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
