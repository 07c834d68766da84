//! The start of a control plane: what runs by itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use moneta_background::runtime::{self, AsyncTask};
use moneta_ledger::{Ledger, Revision};
use tokio::sync::watch;

use crate::commits::commits;
use crate::control::{Control, ControlConfig};
use crate::shared::Shared;
use crate::{audit, belonging, compared, jobs, keeper};

/// How long tasks may take to end.
const ENDING: Duration = Duration::from_secs(5);

/// What runs by itself; it ends when this is dropped.
#[derive(Debug)]
pub struct Running {
    tasks: Vec<AsyncTask>,
}

impl Drop for Running {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.stop();
        }
        for task in self.tasks.drain(..) {
            task.join_within(ENDING);
        }
    }
}

impl Control {
    /// Follows a ledger, keeps leases, and commits from now on. Requests are refused until it is in step.
    ///
    /// # Errors
    /// If the system has no thread for the runtime.
    pub fn start(ledger: Arc<dyn Ledger>, config: &ControlConfig) -> io::Result<(Arc<Self>, Running)> {
        let shared = Arc::new(Shared::new(config.period));
        let (seen, receiver) = watch::channel(Revision(0));
        let (commits, committer) = commits(Arc::clone(&ledger), Arc::clone(&shared), receiver.clone());
        let control = Arc::new(Self::new(ledger, shared, commits, receiver, config));
        let of = || Arc::clone(&control);
        let (follows, keeps, prunes, compares, belongs, jobs) = (of(), of(), of(), of(), of(), of());
        let tasks = vec![
            runtime::spawn("control-follow", move |run| async move { follows.follow(&run, &seen).await })?,
            runtime::spawn("control-commit", move |run| async move {
                tokio::select! {
                    () = committer.run() => {}
                    () = run.stopped() => {}
                }
            })?,
            runtime::spawn("control-keep", move |run| async move { keeper::run(&keeps, &run).await })?,
            runtime::spawn("control-member", move |run| async move { belonging::run(&belongs, &run).await })?,
            runtime::spawn("control-compare", move |run| async move { compared::run(&compares, &run).await })?,
            runtime::spawn("control-prune", move |run| async move { audit::run(&prunes, &run).await })?,
            runtime::spawn("control-jobs", move |run| async move { jobs::prune::run(&jobs, &run).await })?,
        ];
        Ok((control, Running { tasks }))
    }
}
