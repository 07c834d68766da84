//! What each app of a proxy may do in a second.

use std::sync::Arc;

use moneta_cluster::Apps;
use moneta_server::config::Door;
use moneta_server::limits::{Allowance, Refused, Whose};
use moneta_server::node::AppLimits;

use crate::options::app::AppSettings;
use crate::options::sections::network;
use crate::options::sections::proxy::{APP_BYTES, APP_OPERATIONS};

/// The allowances of all apps of this process, in their order.
pub struct AppAllowances {
    apps: Apps,
    allowances: Vec<(Option<Allowance>, Arc<Refused>)>,
}

impl AppAllowances {
    /// What `settings` say of `apps`; `None` where no app has a limit.
    pub fn new(apps: &Apps, settings: &[AppSettings]) -> Option<Self> {
        let allowance = |app: &AppSettings| {
            let limits = network::limits(app.values.get(&APP_OPERATIONS), app.values.get(&APP_BYTES));
            let refused = Arc::<Refused>::default();
            (Allowance::new(Whose::App, limits, Arc::clone(&refused)), refused)
        };
        let allowances: Vec<_> = settings.iter().map(allowance).collect();
        let has_any = allowances.iter().any(|(allowance, _)| allowance.is_some());
        has_any.then(|| Self { apps: apps.clone(), allowances })
    }
}

impl AppLimits for AppAllowances {
    fn of(&self, door: Door, key: &[u8]) -> Option<&Allowance> {
        let (app, _) = self.apps.of(door, key)?;
        let place = self.apps.all().iter().position(|known| std::ptr::eq(known, app))?;
        self.allowances[place].0.as_ref()
    }

    fn refused(&self) -> Vec<(&str, &Refused)> {
        self.apps.all().iter().zip(&self.allowances).map(|(app, (_, refused))| (app.name(), &**refused)).collect()
    }
}
