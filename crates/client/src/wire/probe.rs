//! Finding out what a server understands, by questions that change nothing.
//!
//! A server that knows no meta command answers `ERROR` to each question and goes on; one that speaks binary only hangs up at
//! the first byte of text, and is then asked anew in binary.

use super::answer::{Answer, Decoded};
use super::dialect::{Dialect, Protocol};
use super::failure::Broken;
use super::log_in::{self, LogInReply};
use super::request::{Expect, Request, Verb};
use super::tokens;
use moneta_net::Credentials;

/// A key that nothing is stored under: for questions whose answers do not matter.
pub const PROBE_KEY: &[u8] = b"moneta:probe";
/// Asks for the version and, should this be a Moneta, for wide expiration times; whether `mn` is known; whether a client may
/// choose CAS values (`E`); what is known of versions; for codes of failures. memcached looks at nothing after `version`, and
/// does not know `mv`.
const TEXT_QUESTIONS: &[u8] = b"version wide-times\r\nmn\r\nmg moneta:probe s E1\r\nmv\r\nversion error-codes\r\n";
/// Replies to these.
const TEXT_REPLIES: usize = 5;
/// How the reply to `version` ends if wide expiration times were granted to this connection.
const GRANTED: &[u8] = b" wide-times";
/// How the reply to `mv` begins if the server takes versions in the form that is written here.
const KNOWS_VERSIONS: &[u8] = b"MV 2 ";
/// What a server answers that wants nothing after `version`.
const NO_SUCH_COMMAND: &[u8] = b"ERROR";
const UNKNOWN: Broken = Broken("a reply that no memcached gives");

/// A dialogue under way.
#[derive(Debug)]
pub struct Probe {
    protocol: Option<Protocol>,
    in_binary: bool,
    binary: Option<Expect>,
    /// A log-in goes before the questions.
    logs_in: bool,
    answered: usize,
    dialect: Dialect,
    knows_meta: bool,
}

/// How far a dialogue came.
#[derive(Debug, PartialEq, Eq)]
pub enum Probed {
    /// More has to come.
    Partial,
    /// The server understands this; its replies took so many bytes.
    Dialect(Dialect, usize),
    /// The server cannot be used; in words.
    Refused(String),
    /// The server does not take the log-in; in words.
    LogInRefused(String),
}

impl Probe {
    /// A dialogue to find out (`None`), or to make sure of, a protocol. Its questions go to `out`. `in_binary`: a server
    /// hung up when asked in text.
    pub fn begin(protocol: Option<Protocol>, in_binary: bool, out: &mut Vec<u8>) -> Self {
        Self::begin_as(None, protocol, in_binary, out)
    }

    /// The same of who logs in first, if `user` is given.
    pub fn begin_as(
        user: Option<&Credentials>,
        protocol: Option<Protocol>,
        in_binary: bool,
        out: &mut Vec<u8>,
    ) -> Self {
        let in_binary = protocol == Some(Protocol::Binary) || (protocol.is_none() && in_binary);
        if let Some(user) = user {
            log_in::write(user, in_binary, out);
        }
        let binary = in_binary.then(|| {
            let noop = Request { verb: Verb::Noop, key: &[], value: &[] };
            super::binary::encode(&noop, 0, out).expect("a no-op has a form")
        });
        if !in_binary {
            out.extend_from_slice(TEXT_QUESTIONS);
        }
        let dialect = Dialect::least(protocol.unwrap_or(Protocol::Text));
        Self { protocol, in_binary, binary, logs_in: user.is_some(), answered: 0, dialect, knows_meta: false }
    }

    /// Whether it is worth asking again in binary, should the server hang up.
    pub fn may_be_binary(&self) -> bool {
        self.protocol.is_none() && !self.in_binary && self.answered == 0
    }

    /// Looks at all that the server has sent since the dialogue began.
    ///
    /// # Errors
    /// When that is nothing a memcached says.
    pub fn look(&mut self, input: &[u8]) -> Result<Probed, Broken> {
        if !self.logs_in {
            return self.look_at_answers(input);
        }
        match log_in::look(input, self.in_binary)? {
            LogInReply::Partial => Ok(Probed::Partial),
            LogInReply::Refused(why) => Ok(Probed::LogInRefused(why)),
            LogInReply::Taken(length) => Ok(match self.look_at_answers(&input[length..])? {
                Probed::Dialect(dialect, consumed) => Probed::Dialect(dialect, length + consumed),
                other => other,
            }),
        }
    }

    fn look_at_answers(&mut self, input: &[u8]) -> Result<Probed, Broken> {
        if let Some(expect) = &self.binary {
            return match super::binary::decode(input, expect, 0)? {
                Decoded::Answer { answer: Answer::Done, consumed } => {
                    Ok(Probed::Dialect(Dialect::least(Protocol::Binary), consumed))
                }
                Decoded::Partial { .. } => Ok(Probed::Partial),
                _ => Err(UNKNOWN),
            };
        }
        let mut consumed = 0;
        self.answered = 0;
        while self.answered < TEXT_REPLIES {
            let (line, length) = match tokens::line(&input[consumed..])? {
                Ok(found) => found,
                Err(_) => return Ok(Probed::Partial),
            };
            if let Some(refused) = self.note(line)? {
                return Ok(Probed::Refused(refused));
            }
            consumed += length;
            self.answered += 1;
        }
        Ok(self.conclude(consumed))
    }

    /// Notes the reply to a question; some are a refusal.
    fn note(&mut self, line: &[u8]) -> Result<Option<String>, Broken> {
        let is_error = tokens::error(line).is_some();
        match self.answered {
            0 if line.starts_with(b"VERSION ") => {
                self.dialect.wide_times = line.ends_with(GRANTED);
            }
            0 if line == NO_SUCH_COMMAND => {}
            // Too many connections, a log-in that is wanted.
            0 if is_error => return Ok(Some(tokens::readable(line))),
            1 if line == b"MN" => self.knows_meta = true,
            2 if line == b"EN" || line.starts_with(b"HD") => self.dialect.explicit_cas = true,
            3 if line.starts_with(KNOWS_VERSIONS) => self.dialect.versions = true,
            // A later form.
            3 if line.starts_with(b"MV ") => {}
            // Whether failures have codes shows in each of them.
            4 if line.starts_with(b"VERSION ") => {}
            1..=4 if is_error => {}
            _ => return Err(UNKNOWN),
        }
        Ok(None)
    }

    fn conclude(&self, consumed: usize) -> Probed {
        let protocol = match (self.protocol, self.knows_meta) {
            (Some(Protocol::Text), _) | (None, false) => Protocol::Text,
            (_, true) => Protocol::Meta,
            (Some(_), false) => return Probed::Refused("it does not know the meta protocol".to_owned()),
        };
        Probed::Dialect(Dialect { protocol, ..self.dialect }, consumed)
    }
}
