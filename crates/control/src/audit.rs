//! The audit: who did what, as commits have written it down. It is read from the ledger, not from RAM, and kept for seven days.

use std::time::Duration;

use moneta_background::Run;
use moneta_ledger::Commit;
use serde_json::Value;
use tokio::time::sleep;

use crate::commits::{since_2020, unix_ms};
use crate::control::Control;
use crate::error::Refusal;
use crate::names;

/// How long records are kept, in milliseconds.
const KEPT: u64 = 7 * 86_400_000;
/// How often old ones are removed.
const EVERY: Duration = Duration::from_secs(600);
/// Records that one commit removes.
const AT_ONCE: usize = 100;
/// Digits of a time in a key that name a block of it: 10 000 000 ms, somewhat less than three hours.
const BLOCK_DIGITS: usize = 6;
const BLOCK: u64 = 10_000_000;
/// The most records of one answer.
pub const RECORDS_MAX: usize = 1_000;

impl Control {
    /// What happened in an environment, the latest first: at most so many acts, before a moment of Unix time in milliseconds.
    ///
    /// # Errors
    /// 503 if the ledger cannot be had.
    pub async fn audit(&self, environment: &str, before: u64, most: usize) -> Result<Vec<Value>, Refusal> {
        let most = most.clamp(1, RECORDS_MAX);
        let before = since_2020(before);
        let mut acts = Vec::new();
        let mut block = before / BLOCK;
        let last = block.saturating_sub(KEPT / BLOCK + 1);
        loop {
            let mut found = self.ledger.snapshot(&prefix(block)).await?.entries;
            // Within a millisecond, too, in the order in which they took effect.
            found.sort_by_key(|entry| (time(&entry.key), entry.modified));
            for entry in found.iter().rev() {
                if time(&entry.key).is_none_or(|time| time >= before) {
                    continue;
                }
                let Ok(record) = serde_json::from_slice::<Value>(&entry.value) else { continue };
                let at = record["at"].clone();
                let of = record["acts"].as_array().into_iter().flatten().rev();
                for act in of.filter(|act| act["environment"] == environment) {
                    let mut act = act.clone();
                    (act["at"], act["revision"]) = (at.clone(), entry.modified.0.into());
                    acts.push(act);
                }
                if acts.len() >= most {
                    acts.truncate(most);
                    return Ok(acts);
                }
            }
            if block == last || block == 0 {
                return Ok(acts);
            }
            block -= 1;
        }
    }
}

fn prefix(block: u64) -> String {
    format!("{}{block:0BLOCK_DIGITS$}", names::AUDIT)
}

/// The time of a record's key.
fn time(key: &str) -> Option<u64> {
    key.strip_prefix(names::AUDIT)?.split_once('-')?.0.parse().ok()
}

/// Removes old records until it is to stop.
pub(crate) async fn run(control: &Control, run: &Run) {
    // A block is looked at once more with the next turn of the clock; what is older was removed in earlier turns.
    let mut oldest = None;
    loop {
        tokio::select! {
            () = sleep(EVERY) => {}
            () = run.stopped() => return,
        }
        // One of several that share the ledger is enough.
        if control.keeps().is_none() {
            continue;
        }
        if let Err(error) = prune(control, &mut oldest).await {
            run.failed(&error);
            tracing::warn!(%error, "old records of the audit stay for now");
        }
    }
}

async fn prune(control: &Control, oldest: &mut Option<u64>) -> Result<(), Refusal> {
    let until = since_2020(unix_ms()).saturating_sub(KEPT);
    let last = until / BLOCK;
    // After a start, all that may be there: a process that was stopped for a month finds nothing older than two.
    let first = oldest.unwrap_or(last.saturating_sub(60 * 86_400_000 / BLOCK));
    for block in first..=last {
        let found = control.ledger.snapshot(&prefix(block)).await?;
        let old = found.entries.iter().map(|entry| &entry.key);
        let old: Vec<&String> = old.filter(|key| time(key).is_some_and(|time| time < until)).collect();
        for keys in old.chunks(AT_ONCE) {
            let commit = keys.iter().fold(Commit::new(), |commit, key| commit.delete(key.as_str()));
            control.ledger.commit(commit).await?;
        }
        *oldest = Some(block);
    }
    Ok(())
}
