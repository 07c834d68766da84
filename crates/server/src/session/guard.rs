//! Connections whose clients have to be users: which one it is, and the one place where its rights are asked for.

use moneta_audit::Event;
use moneta_protocol::command::{Command, Keys, Style};
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;
use moneta_protocol::status::Status;
use moneta_users::{LoggedIn, Right, Rights};

use super::key::stored_key;
use super::needs::{Needs, Scope, needs};
use super::{After, Flow, Session, Worker};
use crate::node::Peer;

/// The line that refuses for want of a right.
fn line(right: Right) -> &'static str {
    match right {
        Right::Read => "CLIENT_ERROR not allowed: read",
        Right::Write => "CLIENT_ERROR not allowed: write",
        Right::Flush => "CLIENT_ERROR not allowed: flush",
        Right::List => "CLIENT_ERROR not allowed: list",
        Right::Replicate => "CLIENT_ERROR not allowed: replicate",
        Right::Stats => "CLIENT_ERROR not allowed: stats",
        Right::Operate => "CLIENT_ERROR not allowed: operate",
    }
}

/// Whether `user` may touch a key, in the store's form, that comes from `peer`.
#[inline]
pub(super) fn may_touch(worker: &Worker, peer: &Peer, logged_in: &LoggedIn, key: &[u8]) -> bool {
    logged_in.user().keys().have(key, || worker.node.app(peer.door, key))
}

/// Whether the user may touch all keys that there are at the door of `peer`.
fn may_touch_all(worker: &Worker, peer: &Peer, logged_in: &LoggedIn) -> bool {
    let keys = logged_in.user().keys();
    if keys.are_all() {
        return true;
    }
    let apps = worker.node.apps_behind(peer.door);
    !apps.is_empty() && apps.into_iter().all(|app| keys.have_all_of(app))
}

impl Session {
    /// The user, if the client has logged in as one.
    pub(super) fn logged_in(&self) -> Option<&LoggedIn> {
        self.limits.as_ref()?.logged_in.as_ref()
    }

    /// Whether the client has to be a user.
    pub(super) fn is_guarded(&self) -> bool {
        self.peer.guarded_as.is_some()
    }

    /// Begins a connection whose client has to be a user: by its certificate it may be one already. Else it has to log in.
    #[cold]
    pub(super) fn begin_guarded(&mut self, worker: &Worker) {
        if self.limits.is_none() {
            self.limit(Default::default());
        }
        let Some(users) = &worker.node.users else { return };
        match self.peer.certificate.as_ref().map(|names| users.by_certificate(names)) {
            Some(Ok(logged_in)) => {
                if self.admit(logged_in) {
                    return;
                }
                tracing::warn!(connection = self.peer.id, "the certificate is of a user who may not use this listener");
            }
            Some(Err(why)) => tracing::info!(connection = self.peer.id, %why, "the certificate logs nobody in"),
            None => {}
        }
        self.login(worker);
    }

    /// Takes a log-in, if its user may use the listener.
    pub(super) fn admit(&mut self, logged_in: LoggedIn) -> bool {
        let Some(listener) = &self.peer.guarded_as else { return false };
        if !logged_in.user().may_use(listener) {
            return false;
        }
        self.peer.user = Some(logged_in.user().name().into());
        self.limits.get_or_insert_default().logged_in = Some(logged_in);
        true
    }

    /// Forgets the log-in.
    pub(super) fn log_out(&mut self) {
        self.peer.user = None;
        if let Some(limits) = self.limits() {
            limits.logged_in = None;
        }
    }

    /// Has the rights of the log-in as users are now. False: it is none any more. Called once a batch.
    #[inline]
    pub(super) fn renew(&mut self, worker: &Worker) -> bool {
        let (Some(users), Some(logged_in)) = (&worker.node.users, self.logged_in()) else { return true };
        logged_in.generation() == users.generation() || self.renew_now(worker)
    }

    #[cold]
    fn renew_now(&mut self, worker: &Worker) -> bool {
        let (Some(users), Some(logged_in)) = (&worker.node.users, self.logged_in()) else { return true };
        let renewed = users.renew(logged_in);
        self.log_out();
        renewed.is_some_and(|renewed| self.admit(renewed))
    }

    /// Whether the client has logged in as a user who may replicate all keys that there are.
    pub(super) fn may_replicate_all(&self, worker: &Worker) -> bool {
        self.logged_in().is_some_and(|logged_in| {
            logged_in.user().rights().has(Right::Replicate) && may_touch_all(worker, &self.peer, logged_in)
        })
    }

    /// Whether what is under way, a dump, the feed or a watcher, is still allowed.
    pub(super) fn may_go_on(&self, worker: &Worker) -> bool {
        let (Some(logged_in), Some(extras)) = (self.logged_in(), &self.extras) else { return true };
        let rights = logged_in.user().rights();
        let of_all = extras.changes.is_some() || extras.watcher.is_some();
        let lists = extras.dump.is_some() || extras.watcher.is_some();
        (!lists || rights.has(Right::List))
            && (extras.changes.is_none() || rights.has(Right::Replicate))
            && (!of_all || may_touch_all(worker, &self.peer, logged_in))
    }

    /// Refuses `command` if its user lacks a right that it needs, or may not touch one of its keys.
    #[cold]
    pub(super) fn refuse_without_right(
        &mut self,
        worker: &Worker,
        command: &Command<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Flow> {
        if !self.is_guarded() {
            return None;
        }
        let needs = needs(command);
        let lacks = match self.logged_in() {
            Some(logged_in) => self.lacks(worker, logged_in, needs.rights, &needs.scope, &needs.style)?,
            // What leads to a log-in: the decoder lets no other through.
            None if needs.rights == Rights::NONE => return None,
            None => Right::Read,
        };
        self.refused(worker, lacks, needs.name);
        let out = self.out(output);
        match &needs.style {
            Style::Binary(style) => encode::binary_error(*style, Status::AuthError, out),
            style => encode::reply(style, &[], Reply::Line(line(lacks)), 0, out),
        }
        // Of a line longer than what is read at once, the rest would be taken for a command, and what came before is answered.
        let is_part = self.is_amid_get() || matches!(needs.style, Style::Text(style) if style.more);
        Some(if is_part { Flow::Close(After::CloseWhenFlushed) } else { Flow::Next })
    }

    /// The right that is lacking, if one is.
    fn lacks(
        &self,
        worker: &Worker,
        logged_in: &LoggedIn,
        needed: Rights,
        scope: &Scope<'_>,
        style: &Style<'_>,
    ) -> Option<Right> {
        let user = logged_in.user();
        if let Some(right) = user.rights().lack(needed) {
            return Some(right);
        }
        let has_keys = match *scope {
            Scope::None => true,
            Scope::Keys(_) if user.keys().are_all() => true,
            // Also those of a line that gave way to others, though they were looked at: more may have come after them.
            Scope::Keys(Keys::One(key)) => {
                may_touch(worker, &self.peer, logged_in, stored_key(key, style, &mut Self::key_buffer()))
            }
            Scope::Keys(mut keys) => {
                std::iter::from_fn(|| keys.split_first()).all(|key| may_touch(worker, &self.peer, logged_in, key))
            }
            Scope::All => may_touch_all(worker, &self.peer, logged_in),
        };
        if has_keys { None } else { needed.each().next() }
    }

    /// Whether the client may change `key`, in the store's form: for what the decoder refuses and has an effect all the same.
    pub(super) fn may_change(&self, worker: &Worker, key: &[u8], by_version: bool) -> bool {
        if !self.is_guarded() {
            return true;
        }
        let right = if by_version { Right::Replicate } else { Right::Write };
        self.logged_in().is_some_and(|logged_in| {
            logged_in.user().rights().has(right) && may_touch(worker, &self.peer, logged_in, key)
        })
    }

    /// Counts and logs a refusal.
    #[cold]
    fn refused(&self, worker: &Worker, right: Right, command: &'static str) {
        worker.counters.rights_refused.bump();
        let (Some(users), Some(logged_in)) = (&worker.node.users, self.logged_in()) else { return };
        let user = logged_in.user().name();
        users.count_refusal(user, right);
        tracing::warn!(connection = self.peer.id, user, command, %right, "refused for want of a right");
    }

    /// Writes down a command that changes the process or drops all items.
    #[cold]
    pub(super) fn audit(&self, worker: &Worker, command: &Command<'_>) {
        let Needs { rights, name, .. } = needs(command);
        if !rights.has(Right::Operate) && !rights.has(Right::Flush) {
            return;
        }
        if let Some(audit) = &worker.node.audit {
            let who = self.logged_in().map(|logged_in| logged_in.user().name());
            audit.note(Event::Command { who, from: &self.client(), command: name });
        }
    }

    /// The client, for people.
    pub(super) fn client(&self) -> String {
        self.peer.address.map_or_else(|| "a Unix socket".to_owned(), |address| address.to_string())
    }
}
