//! A tier that waits, as one on a device or in another process does: now before it does what it is asked, now after.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use moneta_store::component::{self, Flush, Walk};
use moneta_store::request::Exptime;
use moneta_store::steps::read_owned;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Cursor, Cx, Key, Op, OwnedKey, Parts, Step, Store, StoreError, Version, Visit, Walked, Walking,
};
use moneta_testkit::doubles::{self, Double, Layer};
use moneta_testkit::model::ModelStore;

use crate::leaky::Leaky;

/// The model behind waits of random length.
#[derive(Clone)]
pub struct Slow {
    inner: Layer<Leaky>,
    /// How many requests in a hundred are answered at once.
    at_once: u8,
}

/// Wakes itself, and is done after that many polls.
pub struct Turns(pub u32);

impl Future for Turns {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0 == 0 {
            return Poll::Ready(());
        }
        self.0 -= 1;
        context.waker().wake_by_ref();
        // Among threads, the others get their turn.
        std::thread::yield_now();
        Poll::Pending
    }
}

impl Slow {
    /// Never answers at once.
    pub fn always(inner: ModelStore) -> Layer<Self> {
        Self::answering(inner, 0)
    }

    /// Answers every other request at once.
    pub fn mixed(inner: ModelStore) -> Layer<Self> {
        Self::answering(inner, 50)
    }

    /// Answers everything at once.
    pub fn never(inner: ModelStore) -> Layer<Self> {
        Self::answering(inner, 100)
    }

    fn answering(inner: ModelStore, at_once: u8) -> Layer<Self> {
        Layer(Self { inner: Leaky::tight(inner), at_once })
    }

    fn is_at_once(&self) -> bool {
        fastrand::u8(0..100) < self.at_once
    }
}

/// Leaves nothing under a key unless it is disarmed: for changes that are given up.
struct Forgetting {
    inner: Layer<Leaky>,
    key: OwnedKey,
    armed: bool,
}

impl Drop for Forgetting {
    fn drop(&mut self) {
        if self.armed {
            self.inner.forget(&self.key.key());
        }
    }
}

impl Double for Slow {
    type Inner = Layer<Leaky>;

    fn inner(&self) -> &Layer<Leaky> {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        if matches!(op, Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas | Op::BuriedAs) {
            return self.inner.call(cx, key, op, out);
        }
        if self.is_at_once() {
            // An item may come as the outcome even so.
            let visits = fastrand::bool();
            return if visits { self.inner.call(cx, key, op, out) } else { read_owned(&self.inner, cx, key, op) };
        }
        let perform = doubles::later(&self.inner, cx, key, op);
        let forgets = matches!(op, Op::Delete(_) | Op::Put(..));
        let mut forgetting =
            forgets.then(|| Forgetting { inner: self.inner.clone(), key: OwnedKey::of(key), armed: true });
        let before = fastrand::u32(0..3);
        let after = if before == 0 || forgets { fastrand::u32(1..3) } else { fastrand::u32(0..3) };
        Step::Wait(Box::pin(async move {
            Turns(before).await;
            let outcome = perform.await;
            Turns(after).await;
            if let Some(forgetting) = &mut forgetting {
                forgetting.armed = false;
            }
            outcome
        }))
    }

    fn parts(&self) -> Parts<'_> {
        Parts { walk: Some(self), flush: Some(self), ..self.inner.parts() }
    }
}

impl Flush for Slow {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        if self.is_at_once() {
            return component::flush(&self.inner, cx, delay);
        }
        let (inner, cx, before) = (self.inner.clone(), cx.clone(), fastrand::u32(0..3));
        let after = if before == 0 { fastrand::u32(1..3) } else { fastrand::u32(0..3) };
        Step::Wait(Box::pin(async move {
            Turns(before).await;
            let outcome = component::flush(&inner, &cx, delay).now();
            Turns(after).await;
            outcome
        }))
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, _: Floor) -> Step<()> {
        Step::Done(Err(StoreError::no_versions()))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}

impl Walk for Slow {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        if fastrand::u8(0..4) == 0 && !self.is_at_once() {
            return Walking::Wait(Box::pin(async {
                Turns(1).await;
                Ok(())
            }));
        }
        Calls::walk(&self.inner, cursor, show)
    }
}
