//! The feed of an environment, as its readers get it.
//!
//! ```text
//!  begin INCARNATION:REV    what is not told up to the next `at` is gone
//!  put ... put ... delete   last values in the order of revisions
//!  at INCARNATION:REV       all up to there was told; again every five seconds
//! ```
//! A reader is a place in the journal, which is the same at each member that shares the ledger: nothing is kept for one that does
//! not read but what its connection has taken. It begins anew
//! where its place is of another incarnation, or from before what the journal reaches. It ends where this process falls out of step.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use moneta_ledger::Cursor;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::control::Control;
use crate::error::Refusal;
use crate::journal::{Place, Wanted};

/// The most bytes of one piece, but for a line that is longer.
const PIECE: usize = 16 << 10;

/// How long a reader may wait that was told more by another member: then its place is of a later state of the ledger than there is.
const AHEAD: Duration = Duration::from_secs(2);

/// A reader.
struct Reader {
    control: Arc<Control>,
    environment: String,
    wanted: Wanted,
    /// Where it is: the incarnation and the place.
    at: Cursor,
    place: Place,
    /// Whether it is to be told to begin.
    begins: bool,
    /// Whether it was told where it is since it was told anything else.
    is_told_at: bool,
    told: Instant,
    woken: Option<watch::Receiver<()>>,
    ready: Vec<Bytes>,
    /// Whether it was told more by another member than this one knows.
    is_ahead: bool,
}

impl Control {
    /// The feed of an environment, from a cursor if that can still be had.
    ///
    /// # Errors
    /// 503 if this process is not in step; 409 if there is no room for the environment.
    pub fn feed(
        self: &Arc<Self>,
        environment: &str,
        wanted: Wanted,
        from: Option<Cursor>,
    ) -> Result<impl Stream<Item = Bytes> + Send + 'static + use<>, Refusal> {
        crate::names::check("an environment", environment)?;
        {
            let mut state = self.state_in_step()?;
            state.open(environment)?;
        }
        let reader = Reader {
            control: Arc::clone(self),
            environment: environment.to_owned(),
            wanted,
            at: from.unwrap_or_default(),
            place: (from.map_or(0, |cursor| cursor.revision.0), u32::MAX),
            begins: from.is_none(),
            is_told_at: false,
            told: Instant::now(),
            woken: None,
            ready: Vec::new(),
            is_ahead: false,
        };
        self.shared.readers.fetch_add(1, Ordering::Relaxed);
        Ok(futures_util::stream::unfold(reader, |mut reader| async move {
            let piece = reader.next().await?;
            Some((piece, reader))
        }))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.control.shared.readers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Reader {
    /// The next piece; `None`: it is over.
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            if !self.ready.is_empty() {
                return Some(self.ready.remove(0));
            }
            if !self.look()? {
                self.wait().await;
            }
        }
    }

    /// Takes what there is; false: nothing. `None`: this process is not in step.
    fn look(&mut self) -> Option<bool> {
        let mut state = self.control.shared.state();
        if !state.is_in_step {
            return None;
        }
        let now = state.at;
        let of = state.open(&self.environment).ok()?;
        // What another member has told may be on its way to this one.
        self.is_ahead = self.at.incarnation == now.incarnation && self.place.0 > now.revision.0;
        if self.is_ahead && self.told.elapsed() < AHEAD {
            return Some(false);
        }
        let is_foreign = self.at.incarnation != now.incarnation || self.is_ahead;
        if self.begins || is_foreign || !of.journal.reaches(self.known()) {
            (self.at, self.begins, self.is_told_at) = (now, false, false);
            self.place = (0, 0);
            self.woken = None;
            self.ready.push(format!("{{\"begin\":\"{now}\"}}\n").into());
        }
        // Before it looks, so that what comes later wakes it.
        if self.woken.as_ref().is_none_or(|woken| woken.has_changed().is_err()) {
            self.woken = Some(of.journal.listen(self.wanted.app.as_ref()));
        }
        if let Some(woken) = &mut self.woken {
            woken.mark_unchanged();
        }
        let is_end = of.journal.read(&self.wanted, &mut self.place, PIECE, &mut self.ready);
        if !is_end {
            return Some(true);
        }
        // It has all up to now, whether any of that was its own.
        let has_news = !self.ready.is_empty();
        self.place = (now.revision.0, u32::MAX);
        self.at = now;
        if has_news || !self.is_told_at || self.told.elapsed() >= self.control.at_every {
            self.ready.push(format!("{{\"at\":\"{now}\"}}\n").into());
            (self.told, self.is_told_at) = (Instant::now(), true);
        }
        Some(!self.ready.is_empty())
    }

    /// Up to which revision it needs no delete: that of its begin, or as far as it was told.
    fn known(&self) -> u64 {
        let (revision, number) = self.place;
        let told = if number == u32::MAX { revision } else { revision.saturating_sub(1) };
        told.max(self.at.revision.0)
    }

    async fn wait(&mut self) {
        if self.is_ahead {
            return sleep(AHEAD / 40).await;
        }
        let until = self.told + self.control.at_every;
        match &mut self.woken {
            // An error: the journal was replaced.
            Some(woken) => drop(timeout_at(until, woken.changed()).await),
            None => sleep_until(until.min(Instant::now() + Duration::from_secs(1))).await,
        }
    }
}

/// Lines as server-sent events.
pub(crate) fn as_events(lines: &Bytes) -> Bytes {
    let mut events = Vec::with_capacity(lines.len() + 64);
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        events.extend_from_slice(b"data: ");
        events.extend_from_slice(line);
        events.extend_from_slice(b"\n\n");
    }
    events.into()
}
