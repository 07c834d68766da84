//! Ports for processes that are started again on the same ones.

use moneta_net::ports::{self, Claimed};
use parking_lot::Mutex;

/// A port of 127.0.0.1 that stays this test's until its program ends: no other test takes it, no `moneta cluster up`, and no
/// outgoing connection.
///
/// # Panics
/// If there is none.
pub fn steady_port() -> u16 {
    static CLAIMED: Mutex<Vec<Claimed>> = Mutex::new(Vec::new());
    let claimed = ports::claim(1).unwrap_or_else(|error| panic!("{error}"));
    let port = claimed.ports[0];
    CLAIMED.lock().push(claimed);
    port
}
