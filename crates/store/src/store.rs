//! The one interface of everything that answers cache operations.

use std::sync::Arc;

use moneta_item::request::Retrieve;
use moneta_item::{Key, KeyHash};

use crate::component::{Component, Health, Parts, Report};
use crate::context::Cx;
use crate::op::Op;
use crate::outcome::{PendingReads, Step};
use crate::reactor::Reactors;
use crate::visit::Visit;

/// Anything that answers cache operations: an engine, a tiered pair, a remote server, a whole cluster.
///
/// Workers share one store; an operation that can be answered from RAM is answered before the call returns, one that has to
/// wait comes back as a future ([`Step::Wait`]). Every operation on one key is atomic.
///
/// A store below another one may fail any operation, and any of its futures may be dropped before its end. In either case:
/// from the moment an [`Op::Put`] or an [`Op::Delete`] has failed or was dropped, reads never again show what the key had
/// before, nor what was to be stored, not even if the command takes effect only later, in a process or a buffer that hangs;
/// until a later put shows its own. Nor does it repeat a command by itself whose first sending may still take effect. A store
/// in this process has all that without effort: what it does, it does before it answers.
pub trait Store: Component {
    /// Answers an operation. `out` sees the item of a read that does not have to wait.
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step;

    /// The part that reads several keys together, of a store to which that is less than to read them one by one. The same for the
    /// life of the store.
    fn together(&self) -> Option<&dyn ReadSeveral>;

    /// Tells the store which keys will be read next, so that it may fetch cache lines early. Changes nothing.
    fn announce(&self, keys: &[Key<'_>]);

    /// Seed under which [`Key`]s for this store are hashed.
    fn seed(&self) -> KeyHash;
}

/// Reads several keys together.
pub trait ReadSeveral {
    /// Begins reads of several keys together. `None`: these reads are not plain ones, or it is not worth it for these keys.
    /// Nothing was begun then.
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads>;
}

impl<S: Component + ?Sized> Component for Arc<S> {
    fn parts(&self) -> Parts<'_> {
        (**self).parts()
    }

    fn attach(&self, worker: &mut Reactors) {
        (**self).attach(worker);
    }

    fn report(&self, cx: &Cx, below: Vec<Report>) -> Report {
        (**self).report(cx, below)
    }

    fn health(&self, below: Vec<Health>) -> Health {
        (**self).health(below)
    }

    fn close(&self) {
        (**self).close();
    }
}

impl<S: Store + ?Sized> Store for Arc<S> {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        (**self).call(cx, key, op, out)
    }

    #[inline]
    fn together(&self) -> Option<&dyn ReadSeveral> {
        (**self).together()
    }

    #[inline]
    fn announce(&self, keys: &[Key<'_>]) {
        (**self).announce(keys);
    }

    #[inline]
    fn seed(&self) -> KeyHash {
        (**self).seed()
    }
}
