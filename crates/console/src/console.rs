//! What the pages of a console work with.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use moneta_admin::{FairTurn, Role, Turn};
use moneta_background::runtime::{self, AsyncTask};
use moneta_control::history::History;
use moneta_control::{Control, Who};
use moneta_net::Outward;
use moneta_users::Users;

use crate::nodes::Nodes;
use crate::ring::Shares;
use crate::series::Series;
use crate::sessions::Sessions;

/// What a console stands on.
pub struct ConsoleConfig {
    /// The fleet.
    pub control: Arc<Control>,
    /// What it was like; `None`: nothing tells.
    pub history: Option<Arc<History>>,
    /// How nodes are reached.
    pub outward: Outward,
    /// Who may log in; `None`: there are no users, and who reaches the process may do everything.
    pub users: Option<Arc<Users>>,
    /// Who is logged in; the guard of the listener asks the same.
    pub sessions: Arc<Sessions>,
    /// Who may do what.
    pub permits: Arc<dyn Permits>,
    /// Whether cookies go over TLS alone.
    pub is_protected: bool,
    /// Whether secrets may come from other machines: over TLS, or because that is allowed.
    pub takes_secrets_from_afar: bool,
}

/// Who may do what, for pages that have more for some.
pub trait Permits: Send + Sync {
    /// Whether a client has a role in an environment.
    fn has(&self, who: &Who, environment: &str, role: Role) -> bool;
}

/// A console.
pub struct Console {
    pub(crate) control: Arc<Control>,
    pub(crate) history: Option<Arc<History>>,
    pub(crate) nodes: Nodes,
    pub(crate) users: Option<Arc<Users>>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) permits: Arc<dyn Permits>,
    pub(crate) is_protected: bool,
    pub(crate) takes_secrets_from_afar: bool,
    pub(crate) series: Arc<Series>,
    pub(crate) shares: Arc<Shares>,
    /// Admits a few at a time that compute rings, read history or check a password.
    pub(crate) apart: Turn,
    /// Admits one query at a time.
    pub(crate) queries: FairTurn,
}

impl std::fmt::Debug for Console {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Console").finish_non_exhaustive()
    }
}

/// How often the numbers of the fleet are taken for its charts.
const SAMPLE_EVERY: Duration = Duration::from_secs(10);

/// What takes long is done on so many helper threads at once.
const APART: usize = 4;

impl Console {
    /// A console, and the task that takes numbers for its charts, until that is stopped.
    ///
    /// # Errors
    /// If the system has no thread.
    pub fn start(config: ConsoleConfig) -> io::Result<(Arc<Self>, AsyncTask)> {
        let ConsoleConfig {
            control,
            history,
            outward,
            users,
            sessions,
            permits,
            is_protected,
            takes_secrets_from_afar,
        } = config;
        let series = Arc::<Series>::default();
        let (sampled, of) = (Arc::clone(&series), Arc::clone(&control));
        let task = runtime::spawn("console", move |run| async move {
            loop {
                sampled.take(&of);
                tokio::select! {
                    () = tokio::time::sleep(SAMPLE_EVERY) => {}
                    () = run.stopped() => return,
                }
            }
        })?;
        let nodes = Nodes::new(outward);
        let console = Self {
            control,
            history,
            nodes,
            users,
            sessions,
            permits,
            is_protected,
            takes_secrets_from_afar,
            series,
            shares: Arc::default(),
            apart: Turn::of(APART),
            queries: FairTurn::of(1),
        };
        Ok((Arc::new(console), task))
    }
}
