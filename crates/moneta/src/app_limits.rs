//! What each app of a proxy may do in a second.

use std::sync::Arc;

use moneta_cluster::Apps;
use moneta_options::declaration::Opt;
use moneta_options::kinds::Kind;
use moneta_options::subscribers::{Effect, Subscribers};
use moneta_server::config::Door;
use moneta_server::limits::{Allowance, LiveLimits, Refused, Whose};
use moneta_server::node::AppLimits;

use crate::options::app::AppSettings;
use crate::options::sections::network;
use crate::options::sections::proxy::{APP_BYTES, APP_OPERATIONS};

/// The allowances of all apps of this process, in their order.
pub struct AppAllowances {
    apps: Apps,
    allowances: Vec<(Allowance, Arc<Refused>)>,
}

/// The limits of all apps, in their order; none where no app has one at the start: then requests are not counted.
pub fn limits(settings: &[AppSettings]) -> Vec<Arc<LiveLimits>> {
    let of = |app: &AppSettings| network::limits(app.values.get(&APP_OPERATIONS), app.values.get(&APP_BYTES));
    let all: Vec<_> = settings.iter().map(|app| LiveLimits::new(of(app))).collect();
    if all.iter().any(|limits| limits.are_there()) { all } else { Vec::new() }
}

impl AppAllowances {
    /// Those under `limits` of `apps`; `None` where there are none.
    pub fn new(apps: &Apps, limits: &[Arc<LiveLimits>]) -> Option<Self> {
        let allowance = |limits: &Arc<LiveLimits>| {
            let refused = Arc::<Refused>::default();
            (Allowance::new(Whose::App, Arc::clone(limits), Arc::clone(&refused)), refused)
        };
        let allowances: Vec<_> = limits.iter().map(allowance).collect();
        (!allowances.is_empty()).then(|| Self { apps: apps.clone(), allowances })
    }
}

/// Lets a reload change the limits of an app. Where no app had one at the start, a first one takes a restart.
pub fn subscribe(subscribers: &mut Subscribers, limits: Option<&Arc<LiveLimits>>) {
    follow(subscribers, &APP_OPERATIONS, limits, LiveLimits::set_operations);
    follow(subscribers, &APP_BYTES, limits, LiveLimits::set_bytes);
}

fn follow<K: Kind<Value = u64>>(
    subscribers: &mut Subscribers,
    option: &'static Opt<K>,
    limits: Option<&Arc<LiveLimits>>,
    set: fn(&LiveLimits, Option<u64>),
) {
    let limits = limits.cloned();
    subscribers.on(option, move |change| {
        let to = (change.to > 0).then_some(change.to);
        Ok(match &limits {
            _ if change.from == change.to => Effect::None,
            Some(limits) => {
                let limits = Arc::clone(limits);
                Effect::now(move || set(&limits, to))
            }
            None => Effect::AfterRestart,
        })
    });
}

impl AppLimits for AppAllowances {
    fn of(&self, door: Door, key: &[u8]) -> Option<&Allowance> {
        let (app, _) = self.apps.of(door, key)?;
        let place = self.apps.all().iter().position(|known| std::ptr::eq(known, app))?;
        Some(&self.allowances[place].0)
    }

    fn refused(&self) -> Vec<(&str, &Refused)> {
        self.apps.all().iter().zip(&self.allowances).map(|(app, (_, refused))| (app.name(), &**refused)).collect()
    }
}
