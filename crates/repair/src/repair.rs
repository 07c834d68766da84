//! The run of a repair.

use std::io;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;

use crate::compare::{Difference, differences, differing};
use crate::digest::{DigestError, Span, digest, list};
use crate::done::Done;
use crate::mend::{Mending, mend};
use crate::report::Report;
use crate::side::Side;

/// Items that are listed of both sides together at once, about.
const LISTED: u64 = 200_000;
/// Keys that are repaired at once.
const TOGETHER: usize = 128;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// All that both sides hold.
    Full,
    /// What was made since a moment, in milliseconds since the Unix epoch.
    Since(u64),
}

/// How a repair is run.
#[derive(Clone, Debug)]
pub struct RepairConfig {
    /// What is compared.
    pub goal: Goal,
    /// What was made less than so long ago is left out: it may be on its way.
    pub lag: Duration,
    /// In how many buckets: a power of two, at most 65,536.
    pub buckets: u32,
    /// Only keys that begin so.
    pub prefix: String,
    /// Keys that are repaired in a second, at most; 0: no bound.
    pub rate: u64,
    /// Nothing is written.
    pub only_looks: bool,
    /// What a backup's rollback wrote on one side is newer than what the other one has; false: it is its side's own, as a flush is.
    pub takes_rollbacks: bool,
    /// What one that was cut short had done, as [`Watch::keep`] was told.
    pub done: Option<Done>,
}

impl Default for RepairConfig {
    fn default() -> Self {
        Self {
            goal: Goal::Full,
            lag: Duration::from_secs(30),
            buckets: 4096,
            prefix: String::new(),
            rate: 0,
            only_looks: false,
            takes_rollbacks: true,
            done: None,
        }
    }
}

/// Who runs a repair.
pub trait Watch {
    /// Hears what it does.
    fn note(&self, text: &str);

    /// Whether it is to end. What is done is kept.
    fn should_stop(&self) -> bool;

    /// Keeps how far it is, for one that goes on; `None`: the next one begins anew.
    ///
    /// # Errors
    /// If that cannot be kept: the repair ends.
    fn keep(&self, done: Option<&Done>, report: &Report) -> io::Result<()> {
        let _ = (done, report);
        Ok(())
    }
}

/// Why a repair does not go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RepairError {
    /// A node tells no digest.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// It cannot be kept how far it is.
    #[error("how far it is cannot be kept: {0}")]
    Unkept(#[from] io::Error),
}

/// Milliseconds since the Unix epoch.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Compares two sides, and repairs what differs: the newer version wins, and what one side lacks is no difference unless it
/// remembers a delete. It may be run again and beside clients.
///
/// # Errors
/// If a node does not tell what it holds.
pub fn repair(a: &Side, b: &Side, config: &RepairConfig, watch: &dyn Watch) -> Result<Report, RepairError> {
    let mut report = Report::default();
    let lag = u64::try_from(config.lag.as_millis()).unwrap_or(u64::MAX);
    let since = match config.goal {
        Goal::Full => 0,
        Goal::Since(since) => since,
    };
    let span = Span { since, until: now().saturating_sub(lag), buckets: config.buckets, prefix: config.prefix.clone() };
    let sides = [a.name.clone(), b.name.clone()];
    let wanted = Done { sides, span, below: 0 };
    let before = config.done.clone().filter(|done| done.is_begun() && done.is_part_of(&wanted));
    // One that was cut short goes on with what it looked at. What was made since is for the next one; or for a second pass at once,
    // since the next one may look back less far than to here.
    let passes = match (before, config.goal) {
        (Some(before), Goal::Full) => vec![before],
        (before, _) => before.into_iter().chain([wanted]).collect(),
    };
    for done in passes {
        if !pass(a, b, config, watch, done, &mut report)? {
            return Ok(report);
        }
    }
    report.done = true;
    Ok(report)
}

/// Compares once, from the buckets on that are not done; false: it was told to end.
fn pass(
    a: &Side,
    b: &Side,
    config: &RepairConfig,
    watch: &dyn Watch,
    mut done: Done,
    report: &mut Report,
) -> Result<bool, RepairError> {
    let span = done.span.clone();
    let (in_a, in_b) = (digest(a, &span)?, digest(b, &span)?);
    report.digest_bytes += in_a.bytes + in_b.bytes;
    report.items = in_a.buckets.values().chain(in_b.buckets.values()).map(|bucket| bucket.count).sum();
    let mut all: Vec<u16> = in_a.buckets.keys().chain(in_b.buckets.keys()).copied().collect();
    all.sort_unstable();
    all.dedup();
    report.buckets = all.len() as u64;
    let differing = differing(&in_a, &in_b);
    report.buckets_differing = differing.len() as u64;
    watch.note(&format!("{} items, {} of {} buckets differ", report.items, differing.len(), all.len()));
    let left: Vec<(u16, u64)> = differing.into_iter().filter(|(bucket, _)| u32::from(*bucket) >= done.below).collect();
    let mending = Mending {
        only_looks: config.only_looks,
        floors: [in_a.floor, in_b.floor],
        takes_rollbacks: config.takes_rollbacks,
        is_full: config.goal == Goal::Full,
    };
    let mut pace = Pace { rate: config.rate, began: Instant::now(), keys: 0 };
    for group in groups(&left) {
        if watch.should_stop() {
            return Ok(false);
        }
        let ((of_a, bytes_a), (of_b, bytes_b)) = (list(a, &span, &group)?, list(b, &span, &group)?);
        report.list_bytes += bytes_a + bytes_b;
        report.listed += (of_a.len() + of_b.len()) as u64;
        let found = differences(&of_a, &of_b);
        drop((of_a, of_b));
        for together in found.chunks(TOGETHER) {
            if watch.should_stop() {
                return Ok(false);
            }
            mend_all(a, b, together, mending, report);
            pace.pass(together.len() as u64);
        }
        if let Some(last) = group.last() {
            done.below = u32::from(*last) + 1;
            watch.keep(Some(&done), report)?;
        }
    }
    watch.keep(None, report)?;
    Ok(true)
}

fn mend_all(a: &Side, b: &Side, together: &[Difference], mending: Mending, report: &mut Report) {
    let ended = pollster::block_on(join_all(together.iter().map(|difference| mend(a, b, difference, mending))));
    for mended in ended {
        report.count(mended.cause, mended.is_to_a);
        report.copied_bytes += mended.bytes;
    }
}

/// Buckets that are listed together, in their order.
fn groups(buckets: &[(u16, u64)]) -> Vec<Vec<u16>> {
    let (mut groups, mut size): (Vec<Vec<u16>>, u64) = (Vec::new(), LISTED);
    for (bucket, count) in buckets {
        if size + count > LISTED || groups.is_empty() {
            groups.push(Vec::new());
            size = 0;
        }
        size += count;
        groups.last_mut().into_iter().for_each(|group| group.push(*bucket));
    }
    groups
}

/// Keeps to the rate.
struct Pace {
    rate: u64,
    began: Instant,
    keys: u64,
}

impl Pace {
    fn pass(&mut self, keys: u64) {
        self.keys += keys;
        if self.rate > 0 {
            let due = Duration::from_secs_f64(self.keys as f64 / self.rate as f64);
            std::thread::sleep(due.saturating_sub(self.began.elapsed()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_listed_in_groups_of_bounded_size() {
        assert_eq!(groups(&[(1, 150_000), (2, 50_000), (5, 1), (9, 300_000)]), [vec![1, 2], vec![5], vec![9]]);
        assert!(groups(&[]).is_empty());
    }

    #[test]
    fn a_repair_that_was_cut_short_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("done.json");
        assert_eq!(Done::read(&path), None);
        let span = Span { since: 0, until: 9, buckets: 16, prefix: String::new() };
        let done = Done { sides: ["a".into(), "b".into()], span, below: 7 };
        done.write(&path).unwrap();
        assert_eq!(Done::read(&path), Some(done));
    }

    #[test]
    fn what_was_cut_short_is_a_part_of_what_looks_back_less_far() {
        let of = |since, prefix: &str| {
            let span = Span { since, until: since + 10, buckets: 16, prefix: prefix.to_owned() };
            Done { sides: ["a".into(), "b".into()], span, below: 0 }
        };
        for (since, wanted, is_part) in
            [(5, 5, true), (5, 6, true), (6, 5, false), (0, 0, true), (0, 5, false), (5, 0, false)]
        {
            assert_eq!(of(since, "").is_part_of(&of(wanted, "")), is_part, "{since} of {wanted}");
        }
        assert!(!of(5, "p").is_part_of(&of(5, "")));
        let other = Done { sides: ["a".into(), "c".into()], ..of(5, "") };
        assert!(!of(5, "").is_part_of(&other) && !of(5, "").is_begun() && Done { below: 1, ..other }.is_begun());
    }
}
