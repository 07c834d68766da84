//! What does the store's I/O on a worker's thread, as part of the worker's event loop; nothing where a store has no need
//! of it.
//!
//! The loop turns it before it sleeps, to begin what requests asked for, and after, to end what is done: then looks into
//! its mailbox, where the wakes of a turn are. The descriptor is watched for changes: a turn leaves nothing that was done
//! when it began, and what is done later is a change.

use std::os::fd::RawFd;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use moneta_store::{Driver, Store};

/// Token of the driver's descriptor; connections count from 0.
pub(crate) const DRIVER: Token = Token(usize::MAX - 1);

/// Turns of connections between two of the driver. Fewer keep devices busier, and each costs a system call; measured with 64
/// connections reading from an SSD, 4 and 8 gave about a third more reads a second than none.
const TURNS: u32 = 4;

/// The store's driver, if it has one.
pub(crate) struct Driven {
    driver: Option<Box<dyn Driver>>,
    /// Turns of connections so far.
    turns: u32,
}

impl Driven {
    /// Asks `store` for the calling thread's driver and has `registry` watch it.
    pub(crate) fn new<S: Store>(store: &S, registry: &Registry) -> Self {
        Self { driver: store.driver().filter(|driver| watch(driver.as_ref(), registry)), turns: 0 }
    }

    /// A connection had its turn. Now and then what connections asked for is begun at once, so that devices do not idle while
    /// the worker goes through the others.
    #[inline]
    pub(crate) fn after_connection(&mut self) {
        if let Some(driver) = &mut self.driver {
            self.turns = self.turns.wrapping_add(1);
            if self.turns.is_multiple_of(TURNS) {
                driver.turn();
            }
        }
    }

    /// Begins and ends I/O; true if anyone may have been woken by that.
    #[inline]
    pub(crate) fn turn(&mut self) -> bool {
        match &mut self.driver {
            Some(driver) => {
                driver.turn();
                true
            }
            None => false,
        }
    }
}

/// False if that cannot be: then the store does its I/O by other means.
fn watch(driver: &dyn Driver, registry: &Registry) -> bool {
    let descriptor: RawFd = driver.descriptor();
    registry
        .register(&mut SourceFd(&descriptor), DRIVER, Interest::READABLE)
        .inspect_err(|error| tracing::warn!(%error, "the store's I/O cannot be waited for: it uses threads"))
        .is_ok()
}
