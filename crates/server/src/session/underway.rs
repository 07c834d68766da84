//! What a session has under way: parked requests, dumps, the feed, watchers. What they hold, and what waits for them.

use std::task::Context;

use super::progress::{Polled, Stage};
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::{Session, Worker, guard};
use crate::client_memory::{Holding, Kind};
use crate::dump::Dumped;
use crate::feed::Progress;
use crate::watch;

impl Session {
    /// Polls parked requests, dumps and watchers; appends ready replies, in order, to `output`. Parked requests are polled even
    /// without output room (`high_water` 0), since others may wait for them in the store.
    pub fn poll(&mut self, worker: &Worker, cx: &mut Context<'_>, output: &mut Vec<u8>, high_water: usize) -> Polled {
        let mut dump_can_go_on = false;
        if let Some(extras) = &mut self.extras {
            extras.parked.poll(worker, &self.peer, cx, output, high_water);
            if extras.forgotten.is_some() && self.forget_parked(worker) {
                // For what it parked.
                cx.waker().wake_by_ref();
            }
        }
        if high_water > 0
            && self.extras.as_ref().is_some_and(|extras| extras.log_in.is_some() && extras.parked.is_empty())
        {
            self.poll_log_in(worker, cx, output);
        }
        if let Some(extras) = &mut self.extras {
            if high_water == 0 {
                return Polled { receive_again: false };
            }
            if extras.parked.is_empty() {
                if let Some(dump) = &mut extras.dump {
                    let user = self.limits.as_ref().and_then(|limits| limits.logged_in.as_ref());
                    let shows = |key: &[u8]| user.is_none_or(|user| guard::may_touch(worker, &self.peer, user, key));
                    match dump.write(worker, &shows, cx, output, high_water) {
                        Dumped::All => extras.dump = None,
                        Dumped::Some => dump_can_go_on = true,
                        Dumped::Waiting => {}
                    }
                }
                if let Some(listing) = &mut extras.listing {
                    match listing.write(&worker.node, cx, output, high_water) {
                        Progress::All => extras.listing = None,
                        Progress::Some => dump_can_go_on = true,
                        Progress::Waiting => {}
                    }
                }
                if let Some(changes) = &mut extras.changes {
                    match changes.write(cx, output, high_water) {
                        Progress::All => extras.changes = None,
                        Progress::Some => dump_can_go_on = true,
                        Progress::Waiting => {}
                    }
                }
                if let Some(watcher) = &mut extras.watcher {
                    watcher.poll(cx, output, high_water);
                }
            }
            // The caller waits for this waker: wake it, so that it comes back for output that only lacked room.
            if dump_can_go_on || extras.parked.is_ready() {
                cx.waker().wake_by_ref();
            }
        }
        if let Some(extras) = self.extras.take_if(|extras| extras.is_empty()) {
            extras.keep();
        }
        Polled { receive_again: !self.is_held_up(worker, high_water) }
    }

    /// Whether replies to pipelined requests wait for those after them, to be sent with these. The caller calls
    /// [`Session::release`] and [`Session::poll`] when they have waited for long.
    #[inline]
    pub fn holds_back(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.parked.holds_back())
    }

    /// Has the next [`Session::poll`] give out what waits for replies after it.
    pub fn release(&mut self) {
        if let Some(extras) = &mut self.extras {
            extras.parked.release();
        }
    }

    /// Whether [`Session::poll`] has anything to do: a parked request, a dump, the feed or a watcher.
    pub fn is_waiting(&self) -> bool {
        self.extras.is_some()
    }

    /// Whether the idle timeout may close it. Watchers and readers of the feed are exempt.
    pub fn may_time_out(&self) -> bool {
        self.extras.as_ref().is_none_or(|extras| extras.watcher.is_none() && extras.changes.is_none())
    }

    /// Whether a dump is in progress, or the feed is sent.
    pub(crate) fn is_dumping(&self) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.dump.is_some() || extras.changes.is_some())
    }

    /// Whether parked requests or a dump have to progress before more is started.
    #[inline(always)]
    pub(super) fn is_held_up(&self, worker: &Worker, high_water: usize) -> bool {
        let Some(extras) = &self.extras else { return false };
        extras.dump.is_some()
            || extras.changes.is_some()
            || extras.listing.is_some()
            || extras.forgotten.is_some()
            || extras.log_in.is_some()
            || extras.parked.is_full(high_water, worker.node.client_memory.share())
    }

    /// Takes what a reader of the feed says while it is sent. Returns the bytes that were taken, and those with which there may
    /// be more.
    #[cold]
    pub(super) fn hear_reader(&self, input: &[u8]) -> (usize, usize) {
        let changes = self.extras.as_ref().and_then(|extras| extras.changes.as_ref());
        changes.map_or((0, 0), |changes| changes.hear(input))
    }

    /// Parks a request that writes `written` bytes.
    pub(super) fn park(&mut self, worker: &Worker, waiting: Waiting, ticket: Ticket, written: usize) {
        let read = match (worker.cx.bytes_to_read(), waiting.reads()) {
            (Some(usize::MAX), _) => worker.node.settings.item_max,
            (Some(bytes), _) => bytes,
            (None, true) => worker.counters.ledger.expected_read(),
            (None, false) => 0,
        };
        let now = worker.node.clock.millis();
        self.extras().parked.park(waiting, ticket, read + written, now);
    }

    /// Bytes held by its parked requests, if it holds nothing else.
    #[inline]
    pub(crate) fn parks_only(&self) -> Option<usize> {
        match &self.extras {
            _ if self.stage != Stage::Open => None,
            None => Some(0),
            Some(extras) => (extras.dump.is_none()
                && extras.changes.is_none()
                && extras.listing.is_none()
                && extras.watcher.is_none())
            .then(|| extras.parked.held()),
        }
    }

    /// The memory it holds, including `input` bytes of incomplete requests and `output` bytes of unsent replies.
    pub(crate) fn holding(&self, input: usize, output: usize) -> Holding {
        let mut holding = Holding::default();
        let logs_in = matches!(self.stage, Stage::New | Stage::TextLogin | Stage::SaslLogin { .. } | Stage::Barred);
        holding.add(if logs_in { Kind::Login } else { Kind::Input }, input);
        let mut output_is = Kind::Output;
        if let Some(extras) = &self.extras {
            holding.add(Kind::Parked, extras.parked.held());
            if extras.watcher.is_some() {
                holding.add(Kind::Watch, watch::QUEUE_MAX);
                output_is = Kind::Watch;
            } else if let Some(changes) = &extras.changes {
                holding.add(Kind::Feed, changes.held());
                output_is = Kind::Feed;
            } else if extras.dump.is_some() || extras.listing.is_some() {
                output_is = Kind::Dump;
            }
            if let Some(listing) = &extras.listing {
                holding.add(Kind::Dump, listing.held());
            }
        }
        holding.add(output_is, output);
        holding
    }

    /// Whether a parked request has to finish before a request on `key`, in the store's form, may start.
    pub(super) fn must_not_overtake(&self, key: &[u8], changes: bool) -> bool {
        self.extras.as_ref().is_some_and(|extras| extras.parked.stands_before(key, changes))
    }
}
