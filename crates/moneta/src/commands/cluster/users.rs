//! Users of a cluster for trying: each knows as little as it needs. Nodes know proxies, each other and the operator; proxies know
//! the app and the operator; the control plane knows nodes, proxies and the operator. All are known by certificate; the app has a
//! secret, too.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use moneta_users::edit::{self, NewUser};
use moneta_users::{Right, secret};

use super::plan::{Plan, Process};
use super::{plan, private};

/// The user of clients.
pub const APP: &str = "app";
/// The user of the commands of `moneta cluster`, and of people.
pub const OPERATOR: &str = "operator";
/// The user of proxies on nodes.
const PROXY: &str = "proxy";
/// The user of nodes on nodes: one that comes back reads the others' feeds.
const NODE: &str = "node";

/// What a proxy asks of nodes.
const OF_PROXY: [Right; 6] = [Right::Read, Right::Write, Right::Flush, Right::List, Right::Replicate, Right::Stats];
/// What a node asks of others when it comes back: their feeds, and items that it is in doubt of.
const OF_NODE: [Right; 2] = [Right::Read, Right::Replicate];
/// What an operator does. It is no right to read or write items.
const OF_OPERATOR: [Right; 4] = [Right::Flush, Right::List, Right::Stats, Right::Operate];

/// Where the files of users of the cluster in a folder lie.
pub struct Users<'a>(pub &'a Path);

impl Users<'_> {
    /// Makes the files of a plan.
    ///
    /// # Errors
    /// If the folder cannot be written, or the system has no randomness.
    pub fn make(&self, plan: &Plan) -> anyhow::Result<()> {
        let named = |proxy: bool| {
            let processes = plan.processes.iter().filter(move |process| process.proxy == proxy);
            processes.map(|process| process.name.clone()).collect::<Vec<_>>()
        };
        let user = |name: &str, rights: &[Right], certificates: Vec<String>| NewUser {
            name: name.to_owned(),
            rights: rights.iter().copied().collect(),
            certificates,
            ..NewUser::default()
        };
        let operator = || user(OPERATOR, &OF_OPERATOR, vec![OPERATOR.to_owned()]);
        let (secret, stored) = secret::generate().context("the system has no randomness")?;
        let app = user(APP, &[Right::Read, Right::Write], vec![APP.to_owned()]);
        let of_nodes = [user(PROXY, &OF_PROXY, named(true)), user(NODE, &OF_NODE, named(false)), operator()];
        let registers = |name: &str, certificates| NewUser {
            environments: vec!["default".to_owned()],
            roles: vec!["register".to_owned()],
            apps: vec![plan::APP.to_owned()],
            ..user(name, &[], certificates)
        };
        let administers = NewUser {
            environments: vec!["*".to_owned()],
            // It works on the tasks of a roll, too.
            roles: ["register", "read", "operate", "administer"].map(str::to_owned).into(),
            ..user(OPERATOR, &[Right::Stats], vec![OPERATOR.to_owned()])
        };
        let of_control = [registers(PROXY, named(true)), registers(NODE, named(false)), administers];
        let of_proxies = [NewUser { secret: Some(stored), ..app }, operator()];
        let files = [(self.file(false), of_nodes.as_slice()), (self.file(true), &of_proxies)];
        for (file, users) in files.into_iter().chain([(self.file_of_control(), of_control.as_slice())]) {
            let text = users.iter().try_fold(String::new(), |text, user| edit::add(&text, user));
            private::write(&file, &text.map_err(|why| anyhow!("the users: {why}"))?)?;
        }
        private::write(&self.log_in(), &format!("{APP}:{secret}\n"))
    }

    /// The users of nodes or of proxies.
    fn file(&self, proxy: bool) -> PathBuf {
        self.0.join(if proxy { "users-of-proxies.toml" } else { "users-of-nodes.toml" })
    }

    fn file_of_control(&self) -> PathBuf {
        self.0.join("users-of-control.toml")
    }

    /// The options of the control plane.
    pub fn of_control(&self) -> [OsString; 2] {
        ["--users".into(), self.file_of_control().into_os_string()]
    }

    /// The app's line for `--login-file`.
    pub fn log_in(&self) -> PathBuf {
        self.0.join("app.login")
    }

    /// The options of a process.
    pub fn options(&self, process: &Process) -> [OsString; 2] {
        ["--users".into(), self.file(process.proxy).into_os_string()]
    }
}
