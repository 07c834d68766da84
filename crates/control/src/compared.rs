//! What is known is compared with the ledger from time to time: stores have been seen to keep changes from followers (etcd 3.4
//! deletes). Where something differs all is read anew, and readers of feeds with it. The keeper of leases also removes what the
//! ledger has forgotten to forget: revisions that no follower goes on from.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_ledger::{LedgerError, Revision};
use tokio::time::{sleep, timeout};

use crate::control::Control;
use crate::names;

/// How long following may lag.
const TOLD_WITHIN: Duration = Duration::from_secs(30);

/// How often the ledger forgets what was overwritten before the last time.
const COMPACT_EVERY: Duration = Duration::from_secs(600);

/// Compares until it is to stop.
pub(crate) async fn run(control: &Control, run: &Run) {
    let (mut before, mut compacted) = (None, Instant::now());
    loop {
        tokio::select! {
            () = sleep(control.compare_every) => {}
            () = run.stopped() => return,
        }
        let compared = async {
            for prefix in [names::ENVIRONMENTS, names::FLEET] {
                compare(control, prefix).await?;
            }
            if compacted.elapsed() >= COMPACT_EVERY {
                compacted = Instant::now();
                compact(control, &mut before).await?;
            }
            Ok::<_, LedgerError>(())
        };
        let compared = tokio::select! {
            compared = compared => compared,
            () = run.stopped() => return,
        };
        if let Err(error) = compared {
            run.failed(&error);
            tracing::warn!(%error, "what is known cannot be compared with the ledger now");
        }
    }
}

/// Compares all that begins with `prefix`.
async fn compare(control: &Control, prefix: &str) -> Result<(), LedgerError> {
    control.shared.state().keys.compare();
    let compared = differing(control, prefix).await;
    control.shared.state().keys.compared();
    let keys = compared?;
    control.shared.compared.fetch_add(1, Ordering::Relaxed);
    if !keys.is_empty() {
        control.shared.differing.fetch_add(keys.len() as u64, Ordering::Relaxed);
        let some = &keys[..keys.len().min(10)];
        tracing::error!(count = keys.len(), ?some, "keys are not as the ledger has them: all is read anew");
        control.anew.notify_one();
    }
    Ok(())
}

async fn differing(control: &Control, prefix: &str) -> Result<Vec<String>, LedgerError> {
    let snapshot = control.ledger.snapshot(prefix).await?;
    let late = || LedgerError::Unavailable { reason: "what it has is not told in time".into() };
    let mut seen = control.seen.clone();
    let is_told = timeout(TOLD_WITHIN, seen.wait_for(|seen| *seen >= snapshot.revision)).await;
    is_told.map_err(|_| late())?.map_err(|_| late())?;
    let state = control.shared.state();
    // It was read anew meanwhile: what it was made of is as new as the snapshot, or of another ledger.
    if !state.is_in_step || state.at.incarnation != snapshot.incarnation || !state.keys.is_comparing() {
        return Ok(Vec::new());
    }
    Ok(state.keys.differing(prefix, &snapshot))
}

/// Has the ledger forget what was overwritten before the last turn but one: readers and other members are told from RAM.
async fn compact(control: &Control, before: &mut Option<Revision>) -> Result<(), LedgerError> {
    let now = *control.seen.borrow();
    if let Some(before) = before.replace(now)
        && control.keeps().is_some()
    {
        control.ledger.compact(before).await?;
    }
    Ok(())
}
