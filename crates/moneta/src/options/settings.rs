//! The options after they were checked against each other: what the rest of the program works with.

use std::ops::Deref;

use moneta_options::declaration::{Declaration, Section};
use moneta_options::report::{Origin, Refusal, Refused};
use moneta_options::values::Values;

use crate::options::app::{self, AppSettings};
use crate::options::contradictions;
use crate::options::listener::ExtraListener;
use crate::options::resolve::Resolved;
use crate::options::sections::tiers::{self, StackSettings};
use crate::options::sections::{access, cluster, control, flash, lmdb, memory, network, proxy, remote, rocks};

/// Everything `moneta serve` was asked for: options that fit together.
#[derive(Clone, Debug)]
pub struct Settings {
    values: Values,
    /// Further listeners, from the file.
    pub listeners: Vec<(ExtraListener, Origin)>,
    /// The tiers.
    pub stack: StackSettings,
    /// The apps of a proxy; none where this is no proxy.
    pub apps: Vec<AppSettings>,
    /// Whether they are `[[app]]` tables of the file, and not the one app that the options are about.
    pub has_app_tables: bool,
}

impl Settings {
    /// Takes what is in force, if it fits together.
    ///
    /// # Errors
    /// [`Refused`] with all options that cannot be had together.
    pub fn new(resolved: Resolved) -> Result<Self, Refused> {
        let Resolved { values, listeners, apps: tables, .. } = resolved;
        let apps = AppSettings::all(&values, &tables, &listeners);
        let is_proxy = !apps.is_empty();
        let stack = if is_proxy { StackSettings::of_proxy() } else { StackSettings::new(&values) };
        let has_common = !network::listen(&values).is_empty()
            || values.get(&network::UNIX_SOCKET).is_some()
            || listeners.iter().any(|(listener, _)| listener.app.is_none());
        let refusals = [
            network::contradictions(&values, !listeners.is_empty()),
            memory::contradictions(&values, stack.has_memory()),
            of_proxy(&values, is_proxy),
            app::contradictions(&values, &apps, !tables.is_empty(), &listeners, has_common),
            if is_proxy { Vec::new() } else { tiers::contradictions(&values) },
            cluster::contradictions(&values, &stack),
            control::contradictions(
                &values,
                &apps.iter().map(|app| app.values.get(&proxy::TOPOLOGY)).collect::<Vec<_>>(),
            ),
            access::contradictions(&values),
            contradictions::of_users(&values, values.get(&control::STATE_DIR).is_some()),
            contradictions::of_admin(&values),
            contradictions::of_tls(&values, &listeners),
        ]
        .concat();
        if refusals.is_empty() {
            Ok(Self { values, listeners, stack, apps, has_app_tables: !tables.is_empty() })
        } else {
            Err(Refused(refusals))
        }
    }

    /// Whether this process is a proxy.
    pub fn is_proxy(&self) -> bool {
        !self.apps.is_empty()
    }
}

impl Deref for Settings {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

/// Refuses options of a proxy where there is none, and those of items where there is one.
fn of_proxy(options: &Values, is_proxy: bool) -> Vec<Refusal> {
    let changed = |section: &Section| {
        section.options.iter().copied().filter(|option| options.is_changed(*option)).collect::<Vec<_>>()
    };
    if !is_proxy {
        let refuse =
            |option: &'static dyn Declaration| options.refuse(option, "given together with topology, to a proxy");
        // What registers says which app's it is, and where it is.
        let has_control = !options.get(&control::CONTROL).is_empty();
        let is_of_instance = |key: &str| has_control && [proxy::APP.key(), proxy::ZONE.key()].contains(&key);
        let of_proxy = changed(&proxy::SECTION).into_iter().filter(|option| !is_of_instance(option.about().key));
        return of_proxy.map(refuse).collect();
    }
    let sections = [&tiers::SECTION, &flash::SECTION, &rocks::SECTION, &lmdb::SECTION, &remote::SECTION];
    let own: [&dyn Declaration; 4] =
        [&cluster::CLUSTER, &cluster::FEED_MEMORY, &cluster::TOMBSTONE_MEMORY, &memory::NO_EVICT];
    let others =
        sections.into_iter().flat_map(changed).chain(own.into_iter().filter(|option| options.is_changed(*option)));
    others.map(|option| options.refuse(option, "left out of a proxy, which keeps no items")).collect()
}
