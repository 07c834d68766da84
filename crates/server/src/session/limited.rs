//! Requests of a connection whose listener, address or app may do only so much in a second, or whose client has to be a user.

use std::sync::Arc;

use moneta_protocol::command::{Command, Keys, Style};
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;
use moneta_store::ErrorCode;
use moneta_users::LoggedIn;

use super::{After, Flow, Session, Worker};
use crate::limits::Allowance;
use crate::node::AppLimits;
use crate::rate;

/// The limits that a connection is under.
#[derive(Debug, Default)]
pub(crate) struct SessionLimits {
    /// Its listener's and its address's.
    pub(crate) own: Vec<Arc<Allowance>>,
    /// The user, where the client has to be one and has logged in.
    pub(super) logged_in: Option<LoggedIn>,
    /// How the last `get` goes on.
    get: Get,
    /// Bytes of refusals in the output, which cost nothing: who is refused could else never pay what it owes.
    free: usize,
}

/// Whether keys of a `get` are still to come. A reply that has begun is not refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Get {
    /// None are.
    #[default]
    Over,
    /// Some that were counted already: it gave way to other connections.
    Counted,
    /// Some of a line that was too long to be read at once.
    Uncounted,
}

impl SessionLimits {
    /// Limits of the connection itself.
    pub(crate) fn of(own: Vec<Arc<Allowance>>) -> Self {
        Self { own, ..Self::default() }
    }

    /// Replies of so many bytes were made.
    #[cold]
    pub(crate) fn replied(&mut self, bytes: usize) {
        let counted = bytes.saturating_sub(std::mem::take(&mut self.free));
        let now = rate::now();
        self.own.iter().for_each(|allowance| allowance.spend(now, 0, counted as u64));
    }
}

/// The keys of a command and how it is answered; `None` for commands that are obeyed whatever their connection has done: the end,
/// a log-in, and what tells the client how far its requests are answered.
pub(super) fn asked<'a>(command: &Command<'a>) -> Option<(Keys<'a>, Style<'a>)> {
    let none = Keys::Line(&[]);
    Some(match *command {
        Command::Get { keys, style, .. } => (keys, style),
        Command::Set { key, style, .. }
        | Command::Delete { key, style, .. }
        | Command::PutNewer { key, style, .. }
        | Command::Bury { key, style, .. }
        | Command::Arithmetic { key, style, .. }
        | Command::MetaDebug { key, style } => (Keys::One(key), style),
        Command::Floor { style, .. }
        | Command::Versions(style)
        | Command::FlushAll { style, .. }
        | Command::Version(style)
        | Command::RefreshCerts(style)
        | Command::Verbosity { style, .. }
        | Command::Stats { style, .. }
        | Command::CacheMemlimit { style, .. }
        | Command::LruCrawler { style, .. }
        | Command::Lru { style, .. }
        | Command::Slabs { style, .. } => (none, style),
        Command::Watch { .. } | Command::Changes { .. } | Command::Shutdown { .. } => {
            (none, Style::Text(Default::default()))
        }
        // What a cluster needs from its nodes.
        Command::Board { .. } => return None,
        Command::Noop(_) | Command::Grant(_) | Command::Quit(_) | Command::Sasl { .. } => return None,
    })
}

impl Session {
    /// Puts the connection under limits of its own.
    pub(crate) fn limit(&mut self, limits: SessionLimits) {
        self.limits = Some(Box::new(limits));
    }

    /// Puts a connection that is under no limits under those of apps, if any app has one by now.
    #[inline]
    pub(super) fn comes_under_limits(&mut self, worker: &Worker) -> bool {
        let are_there = worker.node.app_limits().is_some();
        if are_there {
            self.limit(SessionLimits::default());
        }
        are_there
    }

    /// The limits it is under.
    #[inline]
    pub(crate) fn limits(&mut self) -> Option<&mut SessionLimits> {
        self.limits.as_deref_mut()
    }

    /// Refuses `command`, which takes `length` bytes, if its user may not give it, or its connection or app has done too much lately;
    /// else counts it.
    #[cold]
    pub(super) fn refuse_limited(
        &mut self,
        worker: &Worker,
        command: &Command<'_>,
        length: usize,
        output: &mut Vec<u8>,
    ) -> Option<Flow> {
        if let Some(refused) = self.refuse_without_right(worker, command, output) {
            return Some(refused);
        }
        let has_limits = worker.node.app_limits().is_some() || !self.limits.as_ref()?.own.is_empty();
        if has_limits { self.refuse_over_limit(worker, command, length, output) } else { None }
    }

    /// Whether keys of a `get` are still to come.
    pub(super) fn is_amid_get(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.get != Get::Over)
    }

    #[cold]
    fn refuse_over_limit(
        &mut self,
        worker: &Worker,
        command: &Command<'_>,
        length: usize,
        output: &mut Vec<u8>,
    ) -> Option<Flow> {
        let (keys, style) = asked(command)?;
        let (now, door) = (rate::now(), self.peer.door);
        let apps = worker.node.app_limits();
        let limits = self.limits.as_deref_mut()?;
        let each_key = || {
            let mut keys = keys;
            std::iter::from_fn(move || keys.split_first())
        };
        if limits.get == Get::Counted {
            return None;
        }
        if limits.get == Get::Over {
            let of_apps = || apps.and_then(|apps| each_key().find_map(|key| apps.of(door, key)?.refusal(now)));
            let refusal = limits.own.iter().find_map(|allowance| allowance.refusal(now)).or_else(of_apps);
            if let Some(refusal) = refusal {
                let out = self.out(output);
                let before = out.len();
                encode::reply(&style, &[], Reply::Failed { code: Some(ErrorCode::OverLimit), why: refusal }, 0, out);
                let free = out.len() - before;
                if let Some(limits) = self.limits() {
                    limits.free += free;
                }
                // The rest of a line that is longer than what is read at once would be taken for a command.
                let goes_on = matches!(style, Style::Text(style) if style.more);
                return Some(if goes_on { Flow::Close(After::CloseWhenFlushed) } else { Flow::Next });
            }
        }
        let operations = each_key().count().max(1);
        limits.own.iter().for_each(|allowance| allowance.spend(now, operations as u64, length as u64));
        if let Some(apps) = apps {
            let share = (length / operations) as u64;
            let of_apps = each_key().filter_map(|key| apps.of(door, key));
            of_apps.for_each(|allowance| allowance.spend(now, 1, share));
        }
        None
    }

    /// After a command of a connection under limits: whether more keys of it are to come.
    pub(super) fn note_get(&mut self, command: &Command<'_>, flow: &Flow) {
        let more = matches!(command, Command::Get { style: Style::Text(style), .. } if style.more);
        if let Some(limits) = self.limits() {
            limits.get = match flow {
                Flow::Paused { .. } | Flow::Held { .. } => Get::Counted,
                _ if more => Get::Uncounted,
                _ => Get::Over,
            };
        }
    }
}

/// A value of `size` bytes was read through an app.
#[cold]
pub(super) fn spend_of_app(apps: &dyn AppLimits, door: crate::node::Door, key: &[u8], size: usize) {
    if let Some(allowance) = apps.of(door, key) {
        allowance.spend(rate::now(), 0, size as u64);
    }
}
