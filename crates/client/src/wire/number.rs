//! Numbers as they go over the wire.

use moneta_item::request::Exptime;

use super::dialect::Dialect;

/// The latest moment that memcached understands in a line: what is beyond wraps, and the item is dead at once.
const NARROW_MAX: i64 = i32::MAX as i64;
/// An absolute time long past, for protocols that have no negative ones.
const LONG_PAST: u32 = Exptime::RELATIVE_MAX as u32 + 1;

/// Appends a number in decimal.
pub(super) fn put(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// An expiration time for a line.
pub(super) fn line_exptime(exptime: Exptime, dialect: Dialect) -> i64 {
    let Exptime(seconds) = exptime;
    match seconds {
        ..0 => -1,
        _ if dialect.wide_times => seconds.min(i64::from(u32::MAX)),
        _ => seconds.min(NARROW_MAX),
    }
}

/// An expiration time for a binary packet.
pub(super) fn packet_exptime(exptime: Exptime) -> u32 {
    match exptime.0 {
        ..0 => LONG_PAST,
        seconds => u32::try_from(seconds).unwrap_or(u32::MAX),
    }
}
