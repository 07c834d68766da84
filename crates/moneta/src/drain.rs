//! Whether this proxy is drained: it serves on, and tells the control plane and health checks that clients are to go elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_options::subscribers::Subscribers;
use moneta_options::values::Values;
use moneta_process::desk::Observed;
use moneta_store::Health;

use crate::options::sections::proxy::DRAIN;

/// How the note in `/readyz` begins.
pub const NOTE: &str = "drained: ";

/// The word of the option, as it is now.
#[derive(Clone, Debug)]
pub struct Drain(Arc<AtomicBool>);

impl Drain {
    /// As the options say at the start.
    pub fn of(options: &Values) -> Self {
        Self(Arc::new(AtomicBool::new(options.get(&DRAIN))))
    }

    /// Lets a reload or a property change it.
    pub fn subscribe(&self, subscribers: &mut Subscribers) {
        let drained = Arc::clone(&self.0);
        subscribers.set(&DRAIN, move |is_drained| {
            if drained.swap(is_drained, Ordering::Relaxed) != is_drained {
                tracing::warn!(is_drained, "whether this proxy is drained has changed");
            }
        });
    }

    /// Whether it is.
    pub fn is_drained(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Observed for Drain {
    fn health(&self) -> Health {
        let is_drained = self.is_drained();
        let note = is_drained.then(|| format!("{NOTE}this proxy answers, and clients are to go to another one"));
        Health { unready: is_drained, notes: note.into_iter().collect() }
    }
}
