//! Commands that set up memcached's slabs, LRU and crawler: `slabs`, `lru`, `lru_crawler sleep` and `tocrawl`.
//!
//! There are no slab classes here, and neither an LRU nor a crawler whose pace could be set. Scripts send these commands all the
//! same: what memcached takes is answered as memcached does and changes nothing, what it refuses is refused in its words.

use moneta_protocol::number;
use moneta_protocol::refusal::lines;

use super::words::{ERROR, words};

const REASSIGNMENT_DISABLED: &str = "CLIENT_ERROR slab reassignment disabled";
/// Longest pause of the crawler that memcached takes, in microseconds.
const SLEEP_MAX: u32 = 1_000_000;
/// Most that memcached's hot and warm LRU may take together, in percent.
const LRU_SHARE_MAX: u32 = 80;

/// `slabs`. Nothing can be moved between classes; moving automatically can only be off.
pub(super) fn slabs(arguments: &[u8]) -> &'static str {
    let mut words = words(arguments);
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(b"reassign"), Some(_), Some(_), None) => REASSIGNMENT_DISABLED,
        (Some(b"automove"), Some(b"ratio" | b"freeratio"), ratio, None) => {
            if ratio.is_some_and(|ratio| factor(ratio).is_some()) { "OK" } else { ERROR }
        }
        (Some(b"automove"), Some(b"window"), window, None) => harmless(window),
        (Some(b"automove"), Some(level), ..) => match number::unsigned_32(level) {
            Some(0) => "OK",
            Some(1 | 2) => REASSIGNMENT_DISABLED,
            Some(_) => ERROR,
            None => lines::BAD_FORMAT,
        },
        _ => ERROR,
    }
}

/// `lru tune HOT WARM HOT_AGE WARM_AGE`, `lru mode flat|segmented`, `lru temp_ttl SECONDS`.
pub(super) fn lru(arguments: &[u8]) -> &'static str {
    let mut words = words(arguments);
    match (words.next(), words.next(), words.next(), words.next(), words.next()) {
        (Some(b"tune"), Some(hot), Some(warm), Some(hot_age), Some(warm_age)) => {
            let shares = (number::unsigned_32(hot), number::unsigned_32(warm));
            let ((Some(hot), Some(warm)), Some(hot_age), Some(warm_age)) = (shares, factor(hot_age), factor(warm_age))
            else {
                return ERROR;
            };
            if hot.saturating_add(warm) > LRU_SHARE_MAX {
                "ERROR hot and warm pcts must not exceed 80"
            } else if hot_age <= 0.0 || warm_age <= 0.0 {
                "ERROR hot/warm age factors must be greater than 0"
            } else {
                "OK"
            }
        }
        (Some(b"mode"), Some(b"flat" | b"segmented"), ..) => "OK",
        (Some(b"temp_ttl"), Some(seconds), ..) if number::exptime(seconds, false).is_some() => "OK",
        _ => ERROR,
    }
}

/// `lru_crawler sleep MICROSECONDS`.
pub(super) fn crawler_sleep(microseconds: &[u8]) -> &'static str {
    match number::unsigned_32(microseconds) {
        None => lines::BAD_FORMAT,
        Some(0..=SLEEP_MAX) => "OK",
        Some(_) => "CLIENT_ERROR sleep must be one second or less",
    }
}

/// `lru_crawler tocrawl ITEMS`.
pub(super) fn crawler_batch(items: &[u8]) -> &'static str {
    harmless(Some(items))
}

fn harmless(number: Option<&[u8]>) -> &'static str {
    if number.and_then(number::unsigned_32).is_some() { "OK" } else { lines::BAD_FORMAT }
}

fn factor(word: &[u8]) -> Option<f64> {
    std::str::from_utf8(word).ok()?.parse().ok().filter(|factor: &f64| factor.is_finite())
}
