//! Logging in: the text way (`-Y`), where the first command is a `set` whose value is user and password, and SASL PLAIN.

use moneta_protocol::command::{BinaryStyle, SaslStep};
use moneta_protocol::encode;
use moneta_protocol::status::Status;

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

/// The client's address has failed to log in too often lately.
struct HasToWait;

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
    /// Takes log-in attempts until one succeeds; leaves the input behind it for the next call.
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
            if output.len() >= high_water || attempts_left == 0 || self.is_barred() {
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
                    let checked = self.check(worker, user, password);
                    if let Ok(Some(id)) = checked {
                        output.extend_from_slice(b"STORED\r\n");
                        self.stage = Stage::Open;
                        self.login(worker).id = Some(id);
                        let needed = usize::from(consumed == input.len());
                        return Some(Received { consumed, needed, after: After::Continue });
                    }
                    self.login_failed(worker);
                    if checked.is_err() { TOO_MANY } else { FAILURE }
                }
            };
            output.extend_from_slice(answer.as_bytes());
            output.extend_from_slice(b"\r\n");
        }
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
        if worker.node.authenticator.mode() != AuthMode::Sasl {
            return encode::binary_error(style, Status::UnknownCommand, self.out(output));
        }
        if step == SaslStep::List {
            return encode::binary_packet(style, Status::Ok, &[], &[], b"PLAIN", 0, self.out(output));
        }
        let may_go_on = step == SaslStep::Auth || self.stage == (Stage::SaslLogin { started: true });
        let known = may_go_on && mechanism == b"PLAIN";
        if known && step == SaslStep::Auth && data.is_empty() {
            self.require_login(worker, true);
            return encode::binary_packet(style, Status::AuthContinue, &[], &[], &[], 0, self.out(output));
        }
        worker.counters.auth_cmds.bump();
        let check = |(user, password): (&[u8], &[u8])| self.check(worker, user, password).unwrap_or(None);
        let accepted = plain_credentials(data).filter(|_| known).and_then(check);
        if let Some(id) = accepted {
            self.stage = Stage::Open;
            self.login(worker).id = Some(id);
            self.decoder.require_login(false);
            encode::binary_packet(style, Status::Ok, &[], &[], b"Authenticated", 0, self.out(output));
        } else {
            self.require_login(worker, false);
            self.login_failed(worker);
            encode::binary_error(style, Status::AuthError, self.out(output));
        }
    }

    /// The log-in of `user`, if that is its password. Fails where the client's address has failed too often lately: then nothing
    /// is looked at.
    fn check(&self, worker: &Worker, user: &[u8], password: &[u8]) -> Result<Option<LoginId>, HasToWait> {
        let node = &worker.node;
        // Who may use a Unix socket is decided by its permissions.
        let Some(address) = self.peer.address.map(|address| address.ip()) else {
            return Ok(node.authenticator.check(user, password));
        };
        let now = rate::now();
        if !node.login_failures.admits(address, now) {
            return Err(HasToWait);
        }
        let checked = node.authenticator.check(user, password);
        if checked.is_none() {
            node.login_failures.note(address, now);
        }
        Ok(checked)
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
        let address = self.peer.address.map_or_else(|| "a Unix socket".to_owned(), |address| address.to_string());
        tracing::warn!(connection = self.peer.id, address, "log-in failed");
    }

    /// Logs the client out: a new attempt revokes the old log-in until it succeeds.
    fn require_login(&mut self, worker: &Worker, started: bool) {
        if self.stage == Stage::Open {
            let now = worker.node.clock.now();
            let login = self.login(worker);
            (login.since, login.id) = (now, None);
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
    pub fn overdue(&self, worker: &Worker, reloaded: bool) -> Option<Overdue> {
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
