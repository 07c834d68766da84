//! What request lines of classic text and of meta have in common.

use moneta_item::request::Exptime;

use super::dialect::Dialect;
use super::number::{line_exptime, put};

/// Whether a key can stand on a line as it is.
pub(super) fn is_plain(key: &[u8]) -> bool {
    // Without an early end: compilers make vector instructions of it.
    key.iter().fold(true, |plain, byte| plain & (*byte > b' ') & (*byte != 0x7f))
}

/// `flush_all`, at once or in a while.
pub(super) fn flush(delay: Exptime, dialect: Dialect, out: &mut Vec<u8>) {
    out.extend_from_slice(b"flush_all");
    if delay.0 > 0 {
        out.push(b' ');
        put(line_exptime(delay, dialect), out);
    }
    out.extend_from_slice(b"\r\n");
}
