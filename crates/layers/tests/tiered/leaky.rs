//! An upper tier short of memory: it forgets items at any time, as one that evicts.

use moneta_store::request::{Delete, Write};
use moneta_store::{Calls, Cx, Deleted, Key, Op, Outcome, Step, Store, Visit, Written};
use moneta_testkit::doubles::{Double, Layer};
use moneta_testkit::model::ModelStore;

/// The model, of which each call may take away what it is about, before or after.
#[derive(Clone)]
pub struct Leaky {
    inner: ModelStore,
    /// One call in so many loses the item; 0: none.
    one_in: u32,
}

/// Too large for any store here.
static OVERSIZE: [u8; (1 << 20) + 1] = [0; (1 << 20) + 1];

impl Leaky {
    /// Loses nothing.
    pub fn tight(inner: ModelStore) -> Layer<Self> {
        Self::new(inner, 0)
    }

    /// Loses the item of one call in `one_in`.
    pub fn new(inner: ModelStore, one_in: u32) -> Layer<Self> {
        Layer(Self { inner, one_in })
    }

    fn leak(&self, key: &Key<'_>) {
        if self.one_in > 0 && fastrand::u32(0..self.one_in) == 0 {
            let _ = self.delete(&Cx::outside(), key, &Delete::default());
        }
    }

    /// Deletes as a real engine does: what is dead goes too. The model keeps it, so as to know that it expired, until a value
    /// that is too large drives it out.
    fn delete(&self, cx: &Cx, key: &Key<'_>, request: &Delete) -> Step {
        let deleted = self.inner.call(cx, key, Op::Delete(request), &mut moneta_store::Unseen);
        if *request == Delete::default() && matches!(deleted, Step::Done(Ok(Outcome::Deleted(Deleted::NotFound)))) {
            let driven_out = self.inner.set(key, &OVERSIZE, &Write::default()).now();
            assert_eq!(driven_out.ok(), Some(Written::TooLarge));
        }
        deleted
    }
}

impl Double for Leaky {
    type Inner = ModelStore;

    fn inner(&self) -> &ModelStore {
        &self.inner
    }

    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        match op {
            Op::Read(_) | Op::Peek | Op::Holds => {
                self.leak(key);
                self.inner.call(cx, key, op, out)
            }
            Op::Write(..) | Op::Put(..) => {
                let written = self.inner.call(cx, key, op, out);
                self.leak(key);
                written
            }
            Op::Delete(request) => {
                self.leak(key);
                self.delete(cx, key, request)
            }
            Op::Drop => {
                let _ = self.delete(cx, key, &Delete::default());
                Step::Done(Ok(Outcome::Done))
            }
            Op::Bury(_) | Op::Arithmetic(_) | Op::NoteHit | Op::NextCas | Op::BuriedAs => {
                self.inner.call(cx, key, op, out)
            }
        }
    }
}
