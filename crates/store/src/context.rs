//! Who asks a store, and on which thread.

use std::cell::Cell;
use std::rc::Rc;

use crate::reactor::{Reactor, Reactors, Slot};

/// How requests treat a cache tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// Interactive traffic: what is read or written will be wanted again soon.
    #[default]
    Online,
    /// Bulk traffic: what is read or written says nothing about what will be wanted.
    Batch,
}

/// A number that some listeners have in common, for stores that answer by where a request came in. Those without one have
/// [`Door::COMMON`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Door(pub u16);

impl Door {
    /// The door of all that have no other.
    pub const COMMON: Self = Self(0);
}

/// Clients that one address stands for, where what they take is bounded by that. Two addresses may have the same one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClientTag(pub u32);

impl ClientTag {
    /// Clients without an address, and this process itself.
    pub const NONE: Self = Self(0);
}

/// What every operation carries beside its key: the policy and the door of its listener, and the reactors of its worker.
///
/// Clones are cheap; a future that waits keeps one, with the client that asked then.
#[derive(Clone, Default)]
pub struct Cx {
    policy: Policy,
    door: Door,
    asks_statistics: bool,
    client: Cell<ClientTag>,
    reactors: Option<Rc<Reactors>>,
}

impl Cx {
    /// For a thread that is no worker: stores then do their I/O on threads of their own.
    pub fn outside() -> Self {
        Self::default()
    }

    /// For a worker, whose event loop turns `reactors`.
    pub fn of_worker(policy: Policy, reactors: &Rc<Reactors>) -> Self {
        Self { policy, reactors: Some(Rc::clone(reactors)), ..Self::default() }
    }

    /// The same under another policy.
    #[must_use]
    pub fn under(&self, policy: Policy) -> Self {
        Self { policy, ..self.clone() }
    }

    /// The same through another door.
    #[must_use]
    pub fn through(&self, door: Door) -> Self {
        Self { door, ..self.clone() }
    }

    /// The same, for a report that asks other servers what they hold, and waits for them.
    #[must_use]
    pub fn asking_statistics(&self) -> Self {
        Self { asks_statistics: true, ..self.clone() }
    }

    /// Whether a report asks other servers what they hold.
    pub fn asks_statistics(&self) -> bool {
        self.asks_statistics
    }

    /// Whose requests come next.
    #[inline]
    pub fn set_client(&self, client: ClientTag) {
        self.client.set(client);
    }

    /// Whose request this is.
    #[inline]
    pub fn client(&self) -> ClientTag {
        self.client.get()
    }

    /// Says that the request which is being started will read so many bytes; `usize::MAX`: an item of any size. For engines,
    /// before they return a step that waits: who starts many requests at once bounds them by bytes. It lies with the worker,
    /// beside the steps, so that layers between need not pass it on; the last word before a step returns counts.
    #[inline]
    pub fn will_read(&self, bytes: usize) {
        if let Some(reactors) = &self.reactors {
            reactors.to_read.set(Some(bytes));
        }
    }

    /// How many bytes the request that was just started will read, where the engine knows. For a worker that got a step that
    /// waits.
    pub fn bytes_to_read(&self) -> Option<usize> {
        self.reactors.as_ref()?.to_read.take()
    }

    /// How this request treats a cache tier.
    #[inline]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Where this request came in.
    #[inline]
    pub fn door(&self) -> Door {
        self.door
    }

    /// Whether this is a worker's thread, which must not be kept waiting.
    pub fn is_worker(&self) -> bool {
        self.reactors.is_some()
    }

    /// The worker's reactor in a component's slot; `None` on threads that have none there.
    #[inline]
    pub fn reactor<R: Reactor>(&self, slot: Slot) -> Option<Rc<R>> {
        self.reactors.as_ref()?.get(slot)
    }
}

impl std::fmt::Debug for Cx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cx").field("policy", &self.policy).field("worker", &self.reactors.is_some()).finish()
    }
}
