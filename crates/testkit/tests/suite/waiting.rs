//! A store that answers nothing at once: every request waits for one poll, as one that reads from a device does.

use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

use moneta_store::component::{self, Flush};
use moneta_store::request::Exptime;
use moneta_store::steps::read_owned;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{Component, Cx, Key, Op, Parts, Step, Store, StoreError, Version, Visit};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::model::ModelStore;

/// The model behind a wait.
pub struct Waiting {
    inner: ModelStore,
    /// Wakers that [`Waiting::turn`] calls; `None` if each future calls its waker at once.
    parked: Option<Arc<Mutex<Vec<Waker>>>>,
}

impl Waiting {
    /// Wakes its futures by itself.
    pub fn waking(inner: ModelStore) -> Layer<Self> {
        Layer(Self { inner, parked: None })
    }

    /// Wakes its futures when its loop is turned.
    pub fn polled(inner: ModelStore) -> Layer<Self> {
        Layer(Self { inner, parked: Some(Arc::default()) })
    }

    /// Turns the loop: wakes what is parked.
    pub fn turn(&self) {
        let parked = self.parked.as_ref().expect("only a polled store has a loop");
        let parked = std::mem::take(&mut *parked.lock().unwrap());
        assert!(!parked.is_empty(), "the loop was turned with nothing parked");
        parked.into_iter().for_each(Waker::wake);
    }

    /// An answer that is there at the second poll.
    fn later<T: 'static>(&self, answer: Step<T>) -> Step<T> {
        let mut answer = Some(answer.now());
        let parked = self.parked.clone();
        let mut waited = false;
        Step::Wait(Box::pin(std::future::poll_fn(move |context| {
            if waited {
                return Poll::Ready(answer.take().expect("polled after its end"));
            }
            waited = true;
            match &parked {
                None => context.waker().wake_by_ref(),
                Some(parked) => parked.lock().unwrap().push(context.waker().clone()),
            }
            Poll::Pending
        })))
    }
}

impl Double for Waiting {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match op {
            Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas | Op::BuriedAs => self.inner.call(cx, key, op, out),
            _ => self.later(read_owned(&self.inner, cx, key, op)),
        }
    }

    fn parts(&self) -> Parts<'_> {
        Parts { flush: Some(self), ..self.inner.parts() }
    }
}

impl Flush for Waiting {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        self.later(component::flush(&self.inner, cx, delay))
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
