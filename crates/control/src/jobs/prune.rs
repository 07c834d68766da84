//! The end of jobs that ended long ago.

use std::time::Duration;

use moneta_background::Run;
use moneta_ledger::Compare;
use tokio::time::sleep;

use crate::commits::{Act, Draft, Who, unix_ms};
use crate::control::Control;
use crate::error::Refusal;
use crate::names;
use crate::state::State;

/// How long jobs are kept that are over, in milliseconds.
pub const KEPT: u64 = 7 * 86_400_000;
/// How often leases are looked at.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two looks for old jobs.
const LOOK: u64 = 600;
/// Jobs that one commit removes.
const AT_ONCE: usize = 50;

/// Removes old jobs until it is to stop, and notices where this process was stopped.
pub(crate) async fn run(control: &Control, run: &Run) {
    let mut ticks = 0_u64;
    loop {
        tokio::select! {
            () = sleep(TICK) => {}
            () = run.stopped() => return,
        }
        let environments: Vec<String> = {
            let now = control.shared.now();
            let mut state = control.shared.state();
            let each = state.environments().map(|(name, of)| {
                of.jobs.tick(now);
                name.to_string()
            });
            each.collect()
        };
        ticks += 1;
        if ticks % LOOK != 1 {
            continue;
        }
        for environment in environments {
            if let Err(error) = prune(control, &environment).await {
                run.failed(&error);
                tracing::warn!(%error, "old jobs stay for now");
            }
        }
    }
}

async fn prune(control: &Control, environment: &str) -> Result<(), Refusal> {
    let of = environment.to_owned();
    let plan = move |state: &State| Ok(state.environment(&of).and_then(|jobs| removal(&of, &jobs.jobs, unix_ms())));
    control.commits.commit(Who::default(), Box::new(plan)).await
}

/// What removes jobs that have been over for long.
fn removal(environment: &str, jobs: &super::board::Jobs, now: u64) -> Option<Draft> {
    let old = jobs.ended_before(now.saturating_sub(KEPT));
    let mut draft = Draft::default();
    for (id, (revision, _)) in old.iter().take(AT_ONCE).filter_map(|id| Some((id, jobs.get(id)?))) {
        let key = names::job(environment, id);
        draft.compares.push(Compare::Modified(key.clone(), *revision));
        draft.deletes.push(key);
    }
    draft.act = Act { environment: environment.into(), what: "forget_jobs".into(), ..Act::default() };
    (!draft.deletes.is_empty()).then_some(draft)
}

#[cfg(test)]
mod tests {
    use moneta_ledger::Revision;
    use serde_json::json;

    use super::*;
    use crate::jobs::board::Jobs;
    use crate::jobs::document::Job;
    use crate::leases::Moment;

    #[test]
    fn jobs_are_kept_for_a_week_after_their_end() {
        let mut jobs = Jobs::default();
        for (id, state, since) in [("old", "done", 1), ("late", "cancelled", 2_000), ("open", "failed", 1)] {
            let job = json!({ "kind": "k", "app": "a", "state": state, "since": since, "tasks": [{ "name": "t" }] });
            let job: Job = serde_json::from_value(job).unwrap();
            jobs.put(id, Revision(7), job, Moment(1));
        }
        let removed = |now| removal("e", &jobs, now).map(|draft| draft.deletes);
        assert_eq!(removed(KEPT), None);
        assert_eq!(removed(KEPT + 1_000), Some(vec!["env/e/jobs/old".to_owned()]));
        assert_eq!(removed(KEPT + 9_000).map(|deletes| deletes.len()), Some(2));
    }
}
