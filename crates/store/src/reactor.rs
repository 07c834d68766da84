//! The I/O of stores on a worker's thread.
//!
//! A component that does I/O draws a [`Slot`] when it is made. When a worker starts, each component of its store puts a
//! [`Reactor`] into its slot of the worker's [`Reactors`]; the worker's event loop watches and turns them. An operation finds
//! the reactor of its thread by the slot's number, through its [`crate::Cx`].

use std::any::Any;
use std::cell::Cell;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One component's I/O on one thread: what its futures wait for there is begun and ended by [`Reactor::turn`].
pub trait Reactor: Any {
    /// A descriptor that becomes readable, anew each time, when [`Reactor::turn`] has something to end: for pollers that go by
    /// changes (edge-triggered). Lives as long as the reactor.
    fn descriptor(&self) -> RawFd;

    /// Begins what was asked for since the last turn, ends what is done and wakes its waiters. Never blocks.
    fn turn(&self);

    /// The part of [`Reactor::turn`] before the thread waits for the descriptor: begins what was asked for. May end what is done.
    fn submit(&self) {
        self.turn();
    }

    /// The part of [`Reactor::turn`] after the thread has waited, which [`Reactor::submit`] follows before it waits again: ends
    /// what is done. May begin what was asked for.
    fn reap(&self) {
        self.turn();
    }

    /// Whether what was asked for gains by more that goes out with it: then the thread takes what has come meanwhile before it
    /// submits.
    fn gathers(&self) -> bool {
        false
    }

    /// Whether it is turned also between the requests of one turn of the event loop, so that a device has work early. Without,
    /// all that these requests begin goes out together, which costs a network fewer system calls.
    fn is_eager(&self) -> bool;

    /// Ends everything under way; it is not turned afterwards, and [`crate::Cx::reactor`] does not find it any more. May block.
    fn close(&self);
}

/// Where a component's reactors are found, on every worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot(usize);

impl Slot {
    /// A slot that no other component of this process has.
    pub fn draw() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The reactors of one worker.
#[derive(Default)]
pub struct Reactors {
    /// By slot.
    slots: Vec<Option<Rc<dyn Reactor>>>,
    /// In the order in which they were added.
    all: Vec<Rc<dyn Reactor>>,
    closed: Cell<bool>,
    /// Bytes that the request which was started last will read ([`crate::Cx::will_read`]).
    pub(crate) to_read: Cell<Option<usize>>,
}

impl Reactors {
    /// Puts a component's reactor into its slot.
    pub fn add(&mut self, slot: Slot, reactor: Rc<dyn Reactor>) {
        if self.slots.len() <= slot.0 {
            self.slots.resize(slot.0 + 1, None);
        }
        debug_assert!(self.slots[slot.0].is_none(), "a component is attached to a worker once");
        self.slots[slot.0] = Some(Rc::clone(&reactor));
        self.all.push(reactor);
    }

    /// The reactor in a slot, until they are closed.
    #[inline]
    pub(crate) fn get<R: Reactor>(&self, slot: Slot) -> Option<Rc<R>> {
        if self.closed.get() {
            return None;
        }
        let reactor: Rc<dyn Any> = Rc::clone(self.slots.get(slot.0)?.as_ref()?) as Rc<dyn Any>;
        reactor.downcast().ok()
    }

    /// Whether there are none to turn.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() || self.closed.get()
    }

    /// Their descriptors, for a poller; they are valid until the reactors are dropped.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> + '_ {
        self.all.iter().map(|reactor| reactor.descriptor())
    }

    /// Turns all of them, until they are closed.
    #[inline]
    pub fn turn(&self) {
        if !self.closed.get() {
            self.all.iter().for_each(|reactor| reactor.turn());
        }
    }

    /// Has all of them begin what was asked for, until they are closed.
    #[inline]
    pub fn submit(&self) {
        if !self.closed.get() {
            self.all.iter().for_each(|reactor| reactor.submit());
        }
    }

    /// Has all of them end what is done, until they are closed. [`Reactors::submit`] is to follow.
    #[inline]
    pub fn reap(&self) {
        if !self.closed.get() {
            self.all.iter().for_each(|reactor| reactor.reap());
        }
    }

    /// Whether one of them gains by more that is asked for.
    #[inline]
    pub fn gathers(&self) -> bool {
        !self.closed.get() && self.all.iter().any(|reactor| reactor.gathers())
    }

    /// Turns those that are eager, until they are closed.
    #[inline]
    pub fn turn_eager(&self) {
        if !self.closed.get() {
            self.all.iter().filter(|reactor| reactor.is_eager()).for_each(|reactor| reactor.turn());
        }
    }

    /// Ends everything under way. Operations begun later do their I/O on other threads.
    pub fn close(&self) {
        if !self.closed.replace(true) {
            self.all.iter().for_each(|reactor| reactor.close());
        }
    }
}

impl Drop for Reactors {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{Cx, Policy};

    struct Counting(Cell<usize>);

    impl Reactor for Counting {
        fn descriptor(&self) -> RawFd {
            7
        }

        fn turn(&self) {
            self.0.set(self.0.get() + 1);
        }

        fn is_eager(&self) -> bool {
            false
        }

        fn close(&self) {
            self.0.set(100);
        }
    }

    #[test]
    fn a_slot_leads_to_its_component_s_reactor_on_this_worker_until_it_closes() {
        let (first, second, other) = (Slot::draw(), Slot::draw(), Slot::draw());
        let mut reactors = Reactors::default();
        let reactor = Rc::new(Counting(Cell::new(0)));
        reactors.add(second, Rc::clone(&reactor) as Rc<dyn Reactor>);
        reactors.add(first, Rc::new(Counting(Cell::new(0))));
        let reactors = Rc::new(reactors);
        let cx = Cx::of_worker(Policy::Batch, &reactors);
        assert!(Rc::ptr_eq(&cx.reactor::<Counting>(second).expect("it is there"), &reactor));
        assert!(cx.reactor::<Counting>(other).is_none());
        assert!(Cx::outside().reactor::<Counting>(second).is_none());
        reactors.turn();
        reactors.turn_eager();
        assert_eq!(reactor.0.get(), 1);
        reactors.reap();
        assert!(reactor.0.get() == 2 && !reactors.gathers(), "a reactor that does not tell them apart");
        reactors.close();
        assert_eq!(reactor.0.get(), 100);
        assert!(cx.reactor::<Counting>(second).is_none(), "after the close it is not found");
    }
}
