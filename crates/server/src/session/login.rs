//! Logging in: the text way (`-Y`), where the first command is a `set` whose value is user and password, and SASL PLAIN. Where
//! clients have to be users (`--users`), both ways are open, and a password is checked apart: the client waits as for a store.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use moneta_audit::Event;
use moneta_protocol::command::{BinaryStyle, SaslStep};
use moneta_protocol::encode;
use moneta_protocol::status::Status;
use moneta_users::{Checked, LoggedIn, SlowAnswer};

use super::{After, Received, Session, Stage, Worker};
use crate::auth::{AuthMode, LoginId};
use crate::rate;

/// Most bytes of a line, and of user and password together: a client that has not logged in gets no more memory.
const LOGIN_MAX: usize = 2048;

/// Seconds between the last allowed failure and the close: a delay against guessing, at the cost of an occupied connection.
const BARRED_SECONDS: u32 = 2;

/// The log-in state of a connection that needs one.
#[derive(Debug)]
pub(super) struct Login {
    /// Unix second since which the client has to log in, or is barred.
    since: u32,
    failures: u32,
    /// The log-in, if there is one.
    id: Option<LoginId>,
}

/// Why a connection is closed because of its log-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// It failed too often.
    Failures,
    /// It did not come in time.
    Timeout,
    /// Its user is gone, or has another password.
    Removed,
}

/// The error of a failed text log-in, in memcached's words.
const UNAUTHENTICATED: &str = "CLIENT_ERROR unauthenticated";
const BAD_TERMINATION: &str = "CLIENT_ERROR bad command line termination";
const BAD_FORMAT: &str = "CLIENT_ERROR bad authentication token format";
const FAILURE: &str = "CLIENT_ERROR authentication failure";
/// The error of one that was not tried.
const TOO_MANY: &str = "CLIENT_ERROR too many failed log-ins from this address, try again later";

/// The error of one that everybody on the way can read.
const IN_CLEAR: &str = "CLIENT_ERROR log-ins take TLS here";
/// The error of one for which there is no room.
const BUSY: &str = "CLIENT_ERROR too many log-ins at once, try again later";

/// What a user and a secret come to.
enum Outcome {
    /// They are right, as a password of `-Y` and `-S`.
    Known(LoginId),
    /// They are right, as those of a user.
    User(LoggedIn),
    /// They are wrong.
    Wrong,
    /// The client's address has failed to log in too often lately, or too many log-ins wait: they were not looked at.
    Untried(&'static str),
    /// They are being checked.
    Slow(SlowAnswer),
}

/// A log-in whose password is being checked.
pub(super) struct Pending {
    answer: SlowAnswer,
    /// How a SASL log-in is answered; `None`: it is a text one.
    sasl: Option<BinaryStyle>,
}

/// The start of the input of a client that has to log in.
enum Attempt<'a> {
    Partial { needed: usize },
    TooLong,
    Refused { why: &'static str, consumed: usize },
    Credentials { user: &'a [u8], password: &'a [u8], consumed: usize },
}

fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&byte| byte == b' ').filter(|token| !token.is_empty())
}

/// The length that `set KEY FLAGS EXPTIME LENGTH` announces; the key and the other numbers may be anything.
fn announced_length(line: &[u8]) -> Option<usize> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut tokens = tokens(line);
    if tokens.next()? != b"set" {
        return None;
    }
    std::str::from_utf8(tokens.nth(3)?).ok()?.parse().ok()
}

fn attempt(input: &[u8]) -> Attempt<'_> {
    let Some(end) = input.iter().take(LOGIN_MAX + 1).position(|&byte| byte == b'\n') else {
        return if input.len() > LOGIN_MAX { Attempt::TooLong } else { Attempt::Partial { needed: input.len() + 1 } };
    };
    let line = end + 1;
    let Some(length) = announced_length(&input[..end]) else {
        return Attempt::Refused { why: UNAUTHENTICATED, consumed: line };
    };
    if length > LOGIN_MAX {
        return Attempt::TooLong;
    }
    let consumed = line + length + 2;
    let Some(block) = input.get(line..consumed) else {
        return Attempt::Partial { needed: consumed };
    };
    let Some(block) = block.strip_suffix(b"\r\n") else {
        return Attempt::Refused { why: BAD_TERMINATION, consumed };
    };
    let mut tokens = tokens(block);
    match (tokens.next(), tokens.next()) {
        (Some(user), Some(password)) => Attempt::Credentials { user, password, consumed },
        _ => Attempt::Refused { why: BAD_FORMAT, consumed },
    }
}

impl Session {
    /// Takes log-in attempts until one succeeds; leaves the input after it for the next call.
    pub(super) fn log_in_by_text(
        &mut self,
        worker: &Worker,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Option<Received> {
        let mut consumed = 0;
        let counters = &worker.counters;
        let mut attempts_left = worker.node.settings.requests_per_event;
        loop {
            let waits = self.extras.as_ref().is_some_and(|extras| extras.log_in.is_some());
            if output.len() >= high_water || attempts_left == 0 || self.is_barred() || waits {
                return Some(Received { consumed, needed: 0, after: After::Continue });
            }
            attempts_left -= 1;
            let answer = match attempt(&input[consumed..]) {
                Attempt::Partial { needed } => return Some(Received { consumed, needed, after: After::Continue }),
                Attempt::TooLong => return Some(self.close(input.len(), After::CloseNow)),
                Attempt::Refused { why, consumed: taken } => {
                    consumed += taken;
                    why
                }
                Attempt::Credentials { user, password, consumed: taken } => {
                    consumed += taken;
                    counters.auth_cmds.bump();
                    match self.check(worker, user, password) {
                        Outcome::Slow(answer) => {
                            self.extras().log_in = Some(Pending { answer, sasl: None });
                            continue;
                        }
                        outcome => self.end_text_log_in(worker, outcome, output),
                    }
                    if self.stage == Stage::Open {
                        let needed = usize::from(consumed == input.len());
                        return Some(Received { consumed, needed, after: After::Continue });
                    }
                    continue;
                }
            };
            output.extend_from_slice(answer.as_bytes());
            output.extend_from_slice(b"\r\n");
        }
    }

    /// Answers a text log-in that was checked.
    fn end_text_log_in(&mut self, worker: &Worker, outcome: Outcome, output: &mut Vec<u8>) {
        let why = if let Outcome::Untried(why) = outcome { why } else { FAILURE };
        if self.takes(worker, outcome) {
            self.stage = Stage::Open;
            return output.extend_from_slice(b"STORED\r\n");
        }
        self.login_failed(worker);
        output.extend_from_slice(why.as_bytes());
        output.extend_from_slice(b"\r\n");
    }

    /// Answers a SASL log-in that was checked.
    fn end_sasl(&mut self, worker: &Worker, outcome: Outcome, style: BinaryStyle, output: &mut Vec<u8>) {
        if self.takes(worker, outcome) {
            self.stage = Stage::Open;
            self.decoder.require_login(false);
            encode::binary_packet(style, Status::Ok, &[], &[], b"Authenticated", 0, self.out(output));
        } else {
            self.require_login(worker, false);
            self.login_failed(worker);
            encode::binary_error(style, Status::AuthError, self.out(output));
        }
    }

    /// Takes a log-in that is right.
    fn takes(&mut self, worker: &Worker, outcome: Outcome) -> bool {
        match outcome {
            Outcome::Known(id) => {
                self.login(worker).id = Some(id);
                true
            }
            Outcome::User(logged_in) => self.admit(logged_in),
            Outcome::Wrong | Outcome::Untried(_) | Outcome::Slow(_) => false,
        }
    }

    /// Ends a log-in whose password was checked apart, when it is.
    #[cold]
    pub(super) fn poll_log_in(&mut self, worker: &Worker, cx: &mut Context<'_>, output: &mut Vec<u8>) {
        let Some(extras) = &mut self.extras else { return };
        let Some(pending) = &mut extras.log_in else { return };
        let Poll::Ready(ended) = Pin::new(&mut pending.answer).poll(cx) else { return };
        let Some(Pending { sasl, .. }) = extras.log_in.take() else { return };
        if ended.is_none() {
            self.note_wrong(worker);
        }
        let outcome = ended.map_or(Outcome::Wrong, Outcome::User);
        match sasl {
            None => self.end_text_log_in(worker, outcome, output),
            Some(style) => self.end_sasl(worker, outcome, style, output),
        }
        if self.is_barred() {
            return;
        }
        // For what came after it.
        cx.waker().wake_by_ref();
    }

    /// Executes a SASL opcode.
    pub(super) fn sasl(
        &mut self,
        worker: &Worker,
        step: SaslStep,
        mechanism: &[u8],
        data: &[u8],
        style: BinaryStyle,
        output: &mut Vec<u8>,
    ) {
        if worker.node.authenticator.mode() != AuthMode::Sasl && !self.is_guarded() {
            return encode::binary_error(style, Status::UnknownCommand, self.out(output));
        }
        let offers = self.may_send_secrets(worker);
        if step == SaslStep::List {
            let mechanisms: &[u8] = if offers { b"PLAIN" } else { b"" };
            return encode::binary_packet(style, Status::Ok, &[], &[], mechanisms, 0, self.out(output));
        }
        let may_go_on = step == SaslStep::Auth || self.stage == (Stage::SaslLogin { started: true });
        let known = may_go_on && mechanism == b"PLAIN" && offers;
        if known && step == SaslStep::Auth && data.is_empty() {
            self.require_login(worker, true);
            return encode::binary_packet(style, Status::AuthContinue, &[], &[], &[], 0, self.out(output));
        }
        worker.counters.auth_cmds.bump();
        let outcome = match plain_credentials(data).filter(|_| known) {
            Some((user, password)) => self.check(worker, user, password),
            None => Outcome::Wrong,
        };
        match outcome {
            Outcome::Slow(answer) => {
                self.require_login(worker, false);
                self.extras().log_in = Some(Pending { answer, sasl: Some(style) });
            }
            outcome => self.end_sasl(worker, outcome, style, output),
        }
    }

    /// Whether a secret may come over this connection: users' secrets do not go over a network in clear, unless that is asked for.
    /// On the loopback interface there is no network. `-Y` and `-S` are as memcached's.
    fn may_send_secrets(&self, worker: &Worker) -> bool {
        let is_near = self.peer.address.is_none_or(|address| address.ip().to_canonical().is_loopback());
        !self.is_guarded() || self.peer.encrypted || is_near || worker.node.settings.login_in_clear
    }

    /// What `user` and `password` come to. Nothing is looked at where the client's address has failed too often lately.
    fn check(&self, worker: &Worker, user: &[u8], password: &[u8]) -> Outcome {
        if !self.may_send_secrets(worker) {
            return Outcome::Untried(IN_CLEAR);
        }
        let node = &worker.node;
        // Who may use a Unix socket is decided by its permissions.
        let address = self.peer.address.map(|address| address.ip());
        if address.is_some_and(|address| !node.login_failures.admits(address, rate::now())) {
            return Outcome::Untried(TOO_MANY);
        }
        let outcome = match &node.users {
            Some(users) if self.is_guarded() => match users.by_secret(user, password) {
                Checked::Right(logged_in) => Outcome::User(logged_in),
                Checked::Wrong => Outcome::Wrong,
                Checked::Slow(check) => users.check_apart(check).map_or(Outcome::Untried(BUSY), Outcome::Slow),
            },
            _ => node.authenticator.check(user, password).map_or(Outcome::Wrong, Outcome::Known),
        };
        if matches!(outcome, Outcome::Wrong) {
            self.note_wrong(worker);
        }
        outcome
    }

    /// Counts a wrong password against the client's address.
    fn note_wrong(&self, worker: &Worker) {
        if let Some(address) = self.peer.address {
            worker.node.login_failures.note(address.ip(), rate::now());
        }
    }

    /// Counts and logs a failed attempt, and bars the client after the last allowed one. Logs neither user nor password, since
    /// people confuse the two fields.
    #[cold]
    fn login_failed(&mut self, worker: &Worker) {
        worker.counters.auth_errors.bump();
        let now = worker.node.clock.now();
        let login = self.login(worker);
        login.failures += 1;
        if login.failures >= worker.node.live.login_attempts() {
            login.since = now;
            self.stage = Stage::Barred;
        }
        let address = self.client();
        tracing::warn!(connection = self.peer.id, address, "log-in failed");
        if let Some(audit) = &worker.node.audit {
            audit.note(Event::LogInFailed { from: &address });
        }
    }

    /// Logs the client out: a new attempt revokes the old log-in until it succeeds.
    fn require_login(&mut self, worker: &Worker, started: bool) {
        if self.stage == Stage::Open {
            let now = worker.node.clock.now();
            let login = self.login(worker);
            (login.since, login.id) = (now, None);
            self.log_out();
        }
        self.stage = Stage::SaslLogin { started };
        self.decoder.require_login(true);
    }

    /// The log-in state; creates one if there is none, so that the client has to log in from now on.
    pub(super) fn login(&mut self, worker: &Worker) -> &mut Login {
        let since = worker.node.clock.now();
        self.login.get_or_insert_with(|| Box::new(Login { since, failures: 0, id: None }))
    }

    /// Whether the client is barred: nothing is read from it, and it is closed soon.
    pub fn is_barred(&self) -> bool {
        self.stage == Stage::Barred
    }

    /// Whether the connection has to be closed now because of its log-in. Called about every second if clients have to log in;
    /// `reloaded`: users were replaced since the last call.
    pub fn overdue(&mut self, worker: &Worker, reloaded: bool) -> Option<Overdue> {
        let is_open = matches!(self.stage, Stage::New | Stage::Open | Stage::Watching);
        if reloaded && is_open && !(self.renew(worker) && self.may_go_on(worker)) {
            return Some(Overdue::Removed);
        }
        if is_open && self.logged_in().is_some() {
            return None;
        }
        let login = self.login.as_ref()?;
        let waited = worker.node.clock.now().saturating_sub(login.since);
        let most = worker.node.live.login_seconds();
        match self.stage {
            Stage::Barred => (waited >= BARRED_SECONDS).then_some(Overdue::Failures),
            Stage::New | Stage::TextLogin | Stage::SaslLogin { .. } => {
                (most > 0 && waited >= most).then_some(Overdue::Timeout)
            }
            _ if reloaded => {
                login.id.is_some_and(|id| !worker.node.authenticator.holds(id)).then_some(Overdue::Removed)
            }
            _ => None,
        }
    }
}

/// User and password of a PLAIN message (RFC 4616): authorization identity, NUL, user, NUL, password.
fn plain_credentials(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut parts = data.splitn(3, |&byte| byte == 0);
    let _identity = parts.next()?;
    Some((parts.next()?, parts.next()?))
}
