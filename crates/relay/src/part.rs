//! A share that is carried, and how far it is.

use std::time::Duration;

use moneta_store::Clock;

use crate::config::RelayConfig;
use crate::progress::{Kept, Progress, ProgressError};
use crate::share::Share;

/// How long another relay of the same progress, which is about to end, may take for that.
const ENDING: Duration = Duration::from_secs(5);

/// A share that is carried, and how far it is.
pub(crate) struct Part {
    pub(crate) share: Share,
    pub(crate) kept: Kept,
    /// `None`: it is kept by the one who keeps its lease.
    pub(crate) progress: Option<Progress>,
    /// No progress was kept before.
    pub(crate) is_first: bool,
    /// A gap that ends by then is none.
    pub(crate) needed_at_least: u64,
    /// On the nodes here up to then, whatever becomes of this process.
    pub(crate) settled: u64,
}

impl Part {
    /// A share whose progress is kept in a file.
    ///
    /// # Errors
    /// If it cannot be kept, or another relay keeps it.
    pub(crate) fn of_file(share: Share, config: &RelayConfig, clock: &Clock) -> Result<Self, ProgressError> {
        let progress = Progress::open(config.folder.join(name_of(config, share)), ENDING)?;
        let kept = progress.written().clone();
        Ok(Self::begin(share, kept, Some(progress), config, clock))
    }

    /// One whose progress another one keeps, all of it here up to `whole`; 0: it begins.
    pub(crate) fn of_lease(share: Share, whole: u64, config: &RelayConfig, clock: &Clock) -> Self {
        let kept = if whole > 0 { Kept::until(whole) } else { Kept::default() };
        Self::begin(share, kept, None, config, clock)
    }

    fn begin(share: Share, kept: Kept, progress: Option<Progress>, config: &RelayConfig, clock: &Clock) -> Self {
        clock.refresh();
        let now = clock.millis();
        let back = u64::try_from(config.back.as_millis()).unwrap_or(u64::MAX);
        // The first start: nothing was promised of what was before it, and what is missing from before it is no gap.
        let is_first = kept == Kept::default();
        let mut kept = kept;
        if is_first {
            kept.whole = now.saturating_sub(back).max(1);
        }
        Self { share, settled: kept.whole, kept, progress, is_first, needed_at_least: if is_first { now } else { 0 } }
    }
}

/// The name of the file of progress.
fn name_of(config: &RelayConfig, share: Share) -> String {
    let share = if share.is_all() { String::new() } else { format!(".share-{}-of-{}", share.number, share.of) };
    format!("{}.from-{}{share}.json", file_name(&config.app), config.region)
}

/// The name of an app as a part of a file's name.
fn file_name(app: &str) -> String {
    app.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_of_any_name_has_a_file() {
        assert_eq!(file_name("a/../b c"), "a_.._b_c");
    }
}
