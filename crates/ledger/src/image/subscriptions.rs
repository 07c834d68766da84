//! Who is woken by which keys.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::watch;

/// Wakes its owner.
#[derive(Debug)]
pub struct Subscription(watch::Receiver<()>);

impl Subscription {
    /// Waits until something has changed since this was last called, or since the subscription; false when the image is gone.
    pub async fn changed(&mut self) -> bool {
        self.0.changed().await.is_ok()
    }
}

/// Subscriptions by prefix. A key wakes those of its whole self and of each part that ends with a slash, so that the cost of a change
/// does not grow with the number of subscriptions to others.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<String, watch::Sender<()>>>);

impl Subscriptions {
    pub(crate) fn add(&self, prefix: &str) -> Subscription {
        let mut all = self.0.lock();
        // Those that are gone are taken out when others come: as many as there once were is the bound.
        if !all.contains_key(prefix) {
            all.retain(|_, sender| sender.receiver_count() > 0);
        }
        Subscription(all.entry(prefix.to_owned()).or_insert_with(|| watch::Sender::new(())).subscribe())
    }

    pub(crate) fn wake(&self, keys: &[&str]) {
        let all = self.0.lock();
        let wake = |prefix: &str| {
            if let Some(sender) = all.get(prefix) {
                sender.send_replace(());
            }
        };
        if !keys.is_empty() {
            wake("");
        }
        for key in keys {
            key.match_indices('/').for_each(|(slash, _)| wake(&key[..=slash]));
            if !key.ends_with('/') {
                wake(key);
            }
        }
    }

    pub(crate) fn wake_all(&self) {
        self.0.lock().values().for_each(|sender| sender.send_replace(()));
    }
}
