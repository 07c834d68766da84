//! What each app of a proxy may do in a second.

use std::sync::Arc;

use moneta_cluster::Apps;
use moneta_options::subscribers::Subscribers;
use moneta_server::config::Door;
use moneta_server::limits::{Allowance, LiveLimits, Refused, Whose};
use moneta_server::node::{AppLimits, Node};

use crate::options::app::AppSettings;
use crate::options::sections::network;
use crate::options::sections::proxy::{APP_BYTES, APP_CONNECTIONS, APP_OPERATIONS};

/// The allowances of all apps of this process, in their order.
pub struct AppAllowances {
    apps: Apps,
    allowances: Vec<(Allowance, Arc<Refused>)>,
}

/// The limits of all apps, in their order.
pub fn limits(settings: &[AppSettings]) -> Vec<Arc<LiveLimits>> {
    let of = |app: &AppSettings| network::limits(app.values.get(&APP_OPERATIONS), app.values.get(&APP_BYTES));
    settings.iter().map(|app| LiveLimits::new(of(app))).collect()
}

impl AppAllowances {
    /// Those under `limits` of `apps`.
    pub fn new(apps: &Apps, limits: &[Arc<LiveLimits>]) -> Self {
        let allowance = |limits: &Arc<LiveLimits>| {
            let refused = Arc::<Refused>::default();
            (Allowance::new(Whose::App, Arc::clone(limits), Arc::clone(&refused)), refused)
        };
        Self { apps: apps.clone(), allowances: limits.iter().map(allowance).collect() }
    }
}

/// Lets a reload change the limits of an app, whose listeners are those of a door, if it has some of its own.
pub fn subscribe(subscribers: &mut Subscribers, limits: &Arc<LiveLimits>, door: Option<Door>, node: &Arc<Node>) {
    let (of, told) = (Arc::clone(limits), Arc::clone(node));
    subscribers.set(&APP_OPERATIONS, move |most| {
        of.set_operations((most > 0).then_some(most));
        told.app_limits_changed();
    });
    let (of, told) = (Arc::clone(limits), Arc::clone(node));
    subscribers.set(&APP_BYTES, move |most| {
        of.set_bytes((most > 0).then_some(most));
        told.app_limits_changed();
    });
    let live = Arc::clone(&node.live);
    subscribers
        .set(&APP_CONNECTIONS, move |most| door.into_iter().for_each(|door| live.set_door_connections(door, most)));
}

impl AppLimits for AppAllowances {
    fn of(&self, door: Door, key: &[u8]) -> Option<&Allowance> {
        let (app, _) = self.apps.of(door, key)?;
        let place = self.apps.all().iter().position(|known| std::ptr::eq(known, app))?;
        Some(&self.allowances[place].0)
    }

    fn are_there(&self) -> bool {
        self.allowances.iter().any(|(allowance, _)| allowance.is_limited())
    }

    fn refused(&self) -> Vec<(&str, &Refused)> {
        self.apps.all().iter().zip(&self.allowances).map(|(app, (_, refused))| (app.name(), &**refused)).collect()
    }
}
