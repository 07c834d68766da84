//! The relay as an instance of its app at the control plane here, so that others see how far it is.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use moneta_link::{Control, Identity, Instance, Registration, Report, Status, of_registration};
use moneta_options::values::Values;
use moneta_process::desk::{Desk, Observed, State};
use moneta_relay::Relay;
use moneta_store::Health;
use moneta_store::metric::Sample;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::options::of_relay::{REGION, REGION_NAME, SHARE, SHARES, TO};
use crate::options::sections::proxy::{APP, ZONE};

/// How often it renews, in seconds: what it tells is how far it is.
const RENEW_EVERY_S: u64 = 2;
/// How long the end of the registration may take.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(15);

/// A relay that is registered.
pub struct Registered(Mutex<Option<Registration>>);

impl Registered {
    /// Registers it as `identity`, and renews that.
    ///
    /// # Errors
    /// If the system has no thread for it.
    pub fn start(
        options: &Values,
        control: Arc<Control>,
        identity: &Identity,
        desk: &Desk,
        relay: &Arc<Relay>,
    ) -> anyhow::Result<Arc<Self>> {
        let mut record = Map::new();
        record.insert("v".into(), 1.into());
        record.insert("kind".into(), "other".into());
        record.insert("version".into(), env!("CARGO_PKG_VERSION").into());
        record.insert("renew_every_s".into(), RENEW_EVERY_S.into());
        let leased = options.get(&SHARES);
        // How many relays have a part of the keys, by leases or by hand.
        let of = if leased > 1 { leased } else { options.get(&SHARE).of };
        let is_writer = options.get(&TO).is_none();
        let relay_of = json!({ "from": options.get(&REGION), "shares": leased, "of": of, "into_topic": is_writer });
        record.insert("relay".into(), relay_of);
        for (name, value) in [("zone", options.get(&ZONE)), ("region", options.get(&REGION_NAME))] {
            record.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        if let Some(admin) = desk.address() {
            record.insert("addresses".into(), json!({ "admin": admin.to_string() }));
        }
        let app = options.get(&APP).unwrap_or_default();
        let instance = Instance { app, id: identity.id().to_owned(), record };
        let (watched, mut was_ready) = (desk.watched(), false);
        let status = move || {
            was_ready |= watched.state() == State::Ready;
            match watched.state() {
                State::Leaving => Status::OutOfService,
                State::Ready => Status::Up,
                State::Starting | State::Unready if was_ready => Status::Down,
                State::Starting | State::Unready => Status::Starting,
            }
        };
        let relay = Arc::clone(relay);
        let report =
            move || Report { vitals: Map::from_iter([("relay".to_owned(), relay.vitals())]), ..Report::default() };
        let registration = Registration::start(control, instance, status, report).context("no thread registers it")?;
        Ok(Arc::new(Self(Mutex::new(Some(registration)))))
    }

    /// Takes it off the list.
    pub fn leave(&self) {
        if let Some(registration) = self.0.lock().take() {
            registration.leave();
        }
    }
}

impl Observed for Registered {
    fn samples(&self) -> Vec<Sample> {
        self.0.lock().iter().flat_map(of_registration).collect()
    }

    /// That it is not registered makes it unfit for nothing.
    fn health(&self) -> Health {
        let failure = self.0.lock().as_ref().and_then(|registration| registration.standing().failure);
        let note = failure.map(|why| format!("not registered with the control plane, or not renewed there: {why}"));
        Health { unready: false, notes: note.into_iter().collect() }
    }

    fn facts(&self) -> Map<String, Value> {
        let is_registered = self.0.lock().as_ref().is_some_and(|registration| registration.standing().is_registered);
        Map::from_iter([("registered".to_owned(), is_registered.into())])
    }
}
