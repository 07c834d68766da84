//! What a process tells its operators over HTTP: where it is in its life, whether it is ready and why not, the metrics of its
//! parts, and a page that leads to all others. Each part says what is its own: [`Observed`], and its pages.

mod home;
mod html;
mod life;
mod metrics;
mod observed;
mod pages;
mod watched;

use std::net::SocketAddr;
use std::sync::Arc;

use life::Life;
use moneta_admin::answer::Missing;
use moneta_admin::{Admin, AdminConfig, AdminError, Places, Right, Route, Tally};

pub use metrics::metrics;
pub use observed::{About, Observed, Vitals};
pub use watched::{State, Watched};

/// The desk of a process, which answers from its making on; it ends when this is dropped.
#[derive(Debug)]
pub struct Desk {
    life: Arc<Life>,
    http: Option<Admin>,
}

impl Desk {
    /// Answers at `address`; `None`: not over HTTP at all.
    ///
    /// # Errors
    /// If the address cannot be listened on, or the system cannot start a thread.
    pub fn open(vitals: Vitals, address: Option<SocketAddr>, config: AdminConfig) -> Result<Self, AdminError> {
        let life = Arc::new(Life::new(vitals, Arc::clone(&config.tally)));
        let http = address.map(|address| {
            let missing = Arc::clone(&life);
            let missing = Missing::new(move || missing.doing().map(|doing| moneta_admin::answer::unavailable(&doing)));
            Admin::start(address, AdminConfig { missing, ..config }, routes(&life))
        });
        Ok(Self { http: http.transpose()?, life })
    }

    /// The address it listens on, with the port that the kernel picked.
    pub fn address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(Admin::address)
    }

    /// The process as the desk sees it, for what tells others of it.
    pub fn watched(&self) -> Watched {
        Watched(Arc::clone(&self.life))
    }

    /// What it counts of its own requests.
    pub fn tally(&self) -> &Tally {
        &self.life.tally
    }

    /// Tells of `part`, and shows its pages, until [`Desk::close`].
    ///
    /// # Panics
    /// If one of the pages has a path and method that is answered already.
    pub fn show(&self, part: Arc<dyn Observed>, pages: impl IntoIterator<Item = Route>) {
        self.life.add(part);
        self.add(pages);
    }

    /// Shows these pages, until [`Desk::close`].
    ///
    /// # Panics
    /// As [`Desk::show`].
    pub fn add(&self, pages: impl IntoIterator<Item = Route>) {
        if let Some(http) = &self.http {
            http.add(pages);
        }
    }

    /// Leaves `/` to another page, until [`Desk::close`]; its own page is at [`PROCESS`] from now on.
    ///
    /// # Panics
    /// As [`Desk::show`].
    pub fn give_home(&self, home: Route) {
        if let Some(http) = &self.http {
            http.retain(|path| path != HOME);
            http.add([Route::get(PROCESS, home::page, Arc::clone(&self.life)), home]);
        }
    }

    /// All parts serve: from now on the process is ready if they are.
    pub fn serve(&self) {
        self.life.serve();
    }

    /// What the parts work with is about to be closed: none of them is asked any more, and answers that go on end.
    pub fn close(&self) {
        self.life.close();
        if let Some(http) = &self.http {
            http.end_streams();
            http.retain(|path| OWN.contains(&path));
            http.add([Route::get(HOME, home::page, Arc::clone(&self.life))]);
        }
    }
}

/// The pages that are there for as long as the desk.
const OWN: [&str; 3] = ["/healthz", "/readyz", "/metrics"];
/// Where a browser comes first.
const HOME: &str = "/";
/// Where the page of the process is if that is another's.
pub const PROCESS: &str = "/process";

/// Its own pages but `/healthz`, which every admin side has.
fn routes(life: &Arc<Life>) -> [Route; 4] {
    let life = || Arc::clone(life);
    [
        Route::get("/metrics", pages::metrics, life()).in_places(Places::Metrics),
        Route::get("/readyz", pages::readyz, life()).in_places(Places::Readiness).needs(Right::None),
        Route::get(HOME, home::page, life()),
        Route::get(home::SCRIPT, home::script, ()),
    ]
}
