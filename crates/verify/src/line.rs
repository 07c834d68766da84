//! A connection to one of the servers, made when it is needed.

use std::io;
use std::time::Duration;

use moneta_client::Address;
use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Protocol, Request, VALUE_LIMIT, Verb};

use crate::comparison::Sight;
use crate::config::VerifyConfig;
use crate::error::{Side, VerifyError};

/// A server and at most one connection to it.
#[derive(Debug)]
pub(crate) struct Line {
    side: Side,
    address: Address,
    protocol: Option<Protocol>,
    timeout: Duration,
    dialogue: Option<Dialogue>,
}

/// What became of a question: it is on its way, or the server's protocol has no form for it.
pub(crate) type Asked = Result<(), String>;

impl Line {
    pub(crate) fn new(side: Side, config: &VerifyConfig) -> Self {
        let (protocol, timeout) = (config.protocol, config.timeout);
        Self { side, address: config.address(side).clone(), protocol, timeout, dialogue: None }
    }

    /// The connection.
    pub(crate) fn dialogue(&mut self) -> Result<&mut Dialogue, DialogueError> {
        if self.dialogue.is_none() {
            self.dialogue = Some(Dialogue::open(&self.address, self.protocol, self.timeout, VALUE_LIMIT)?);
        }
        Ok(self.dialogue.as_mut().expect("it is open"))
    }

    /// Ends the connection, and all that waits for an answer on it.
    pub(crate) fn close(&mut self) {
        self.dialogue = None;
    }

    /// What happened, with the server's name.
    pub(crate) fn failure(&self, source: DialogueError) -> VerifyError {
        let source = match source {
            DialogueError::Io(error) => DialogueError::Io(self.readable(error)),
            other => other,
        };
        VerifyError::Server { side: self.side, address: self.address.to_string(), source }
    }

    /// The system's messages for a socket's timeout and its end are not helpful.
    fn readable(&self, error: io::Error) -> io::Error {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(io::ErrorKind::TimedOut, format!("it said nothing for {:?}", self.timeout))
            }
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "it closed the connection"),
            _ => error,
        }
    }

    /// The error of a server that has no list of keys.
    pub(crate) fn unlisted(&self, reason: String) -> VerifyError {
        VerifyError::Unlisted { side: self.side, address: self.address.to_string(), reason }
    }

    /// Asks for each of the keys, with its value or only for what is known of it; sends all.
    pub(crate) fn peek(&mut self, keys: &[impl AsRef<[u8]>], value: bool) -> Result<Vec<Asked>, DialogueError> {
        let dialogue = self.dialogue()?;
        let mut asked = Vec::with_capacity(keys.len());
        for key in keys {
            let request = Request { verb: Verb::Peek { value }, key: key.as_ref(), value: &[] };
            asked.push(put(dialogue, &request)?);
        }
        dialogue.flush()?;
        Ok(asked)
    }

    /// What the server says to the oldest question of [`Line::peek`] that has no answer yet.
    pub(crate) fn sight(&mut self, asked: &Asked) -> Result<Sight, DialogueError> {
        if let Err(why) = asked {
            return Ok(Sight::Trouble(why.clone()));
        }
        Ok(match self.dialogue()?.answer() {
            Ok(Answer::Hit(seen)) => Sight::Item(seen),
            Ok(Answer::Miss) => Sight::Nothing,
            Ok(answer) => Sight::Trouble(words(&answer)),
            Err(error @ DialogueError::TooLarge) => Sight::Trouble(error.to_string()),
            Err(error) => return Err(error),
        })
    }
}

/// Adds a request to the batch of `dialogue`.
pub(crate) fn put(dialogue: &mut Dialogue, request: &Request<'_>) -> Result<Asked, DialogueError> {
    match dialogue.ask(request) {
        Ok(()) => Ok(Ok(())),
        Err(DialogueError::Unsupported(why)) => Ok(Err(why.to_string())),
        Err(error) => Err(error),
    }
}

/// An answer that is not one of those that were hoped for.
pub(crate) fn words(answer: &Answer) -> String {
    match answer {
        Answer::Refused(_, words) if words.is_empty() => "the server does not know the command".to_owned(),
        Answer::Refused(_, words) => words.clone(),
        Answer::TooLarge => "the value is larger than the server takes".to_owned(),
        Answer::OutOfMemory => "the server has no room".to_owned(),
        other => format!("unexpected answer {other:?}"),
    }
}
