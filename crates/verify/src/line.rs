//! Connections to one side: one to each of its nodes, made when it is needed.

use std::io;
use std::time::Duration;

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Protocol, Request, VALUE_LIMIT, Verb};
use moneta_net::Outward;

use crate::comparison::Sight;
use crate::config::VerifyConfig;
use crate::error::{Side, VerifyError};
use crate::place::ComparedPlace;

/// A side and at most one connection to each of its nodes.
#[derive(Debug)]
pub(crate) struct Line {
    side: Side,
    place: ComparedPlace,
    protocol: Option<Protocol>,
    timeout: Duration,
    outward: Outward,
    /// In the order of the side's nodes.
    dialogues: Vec<Option<Dialogue>>,
    /// The node that was spoken with last: the one that a failure is about.
    at: usize,
}

/// A question: the node it is for, and that it is on its way or why the node's protocol has no form for it.
#[derive(Debug)]
pub(crate) struct AskedNode {
    node: usize,
    put: Result<(), String>,
}

impl Line {
    pub(crate) fn new(side: Side, config: &VerifyConfig) -> Self {
        let place = config.place(side).clone();
        let dialogues = place.nodes().iter().map(|_| None).collect();
        Self {
            side,
            place,
            protocol: config.protocol,
            timeout: config.timeout,
            outward: config.outward.clone(),
            dialogues,
            at: 0,
        }
    }

    pub(crate) fn place(&self) -> &ComparedPlace {
        &self.place
    }

    /// The connection to a node.
    pub(crate) fn dialogue(&mut self, node: usize) -> Result<&mut Dialogue, DialogueError> {
        self.at = node;
        let dialogue = &mut self.dialogues[node];
        if dialogue.is_none() {
            let endpoint = self.outward.to(self.place.nodes()[node].clone()).patient(self.timeout);
            *dialogue = Some(Dialogue::open(&endpoint, self.protocol, VALUE_LIMIT)?);
        }
        Ok(dialogue.as_mut().expect("it is open"))
    }

    /// Ends the connections, and all that waits for an answer on them.
    pub(crate) fn close(&mut self) {
        self.dialogues.fill_with(|| None);
    }

    /// What happened, with the server's name.
    pub(crate) fn failure(&self, source: DialogueError) -> VerifyError {
        let source = match source {
            DialogueError::Io(error) => DialogueError::Io(self.readable(error)),
            other => other,
        };
        VerifyError::Server { side: self.side, address: self.address(), source }
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
        VerifyError::Unlisted { side: self.side, address: self.address(), reason }
    }

    fn address(&self) -> String {
        self.place.nodes()[self.at].to_string()
    }

    /// Adds a request to what is to be sent to the node that has its key.
    pub(crate) fn put(&mut self, request: &Request<'_>) -> Result<AskedNode, DialogueError> {
        let node = self.place.node_of(request.key);
        let put = match self.dialogue(node)?.ask(request) {
            Ok(()) => Ok(()),
            Err(DialogueError::Unsupported(why)) => Err(why.to_string()),
            Err(error) => return Err(error),
        };
        Ok(AskedNode { node, put })
    }

    /// Sends what was put.
    pub(crate) fn flush(&mut self) -> Result<(), DialogueError> {
        for (node, dialogue) in self.dialogues.iter_mut().enumerate() {
            if let Some(dialogue) = dialogue {
                self.at = node;
                dialogue.flush()?;
            }
        }
        Ok(())
    }

    /// Asks for each of the keys, with its value or only for what is known of it; sends all.
    pub(crate) fn peek(&mut self, keys: &[impl AsRef<[u8]>], value: bool) -> Result<Vec<AskedNode>, DialogueError> {
        let mut asked = Vec::with_capacity(keys.len());
        for key in keys {
            asked.push(self.put(&Request { verb: Verb::Peek { value }, key: key.as_ref(), value: &[] })?);
        }
        self.flush()?;
        Ok(asked)
    }

    /// What the server says to a question; those of one node are answered in their order.
    pub(crate) fn answer(&mut self, asked: &AskedNode) -> Result<Result<Answer<'static>, String>, DialogueError> {
        if let Err(why) = &asked.put {
            return Ok(Err(why.clone()));
        }
        match self.dialogue(asked.node)?.answer() {
            Ok(answer) => Ok(Ok(answer)),
            Err(error @ DialogueError::TooLarge) => Ok(Err(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// What the server says to a question of [`Line::peek`], in their order.
    pub(crate) fn sight(&mut self, asked: &AskedNode) -> Result<Sight, DialogueError> {
        Ok(match self.answer(asked)? {
            Ok(Answer::Hit(seen)) => Sight::Item(seen),
            Ok(Answer::Miss) => Sight::Nothing,
            Ok(answer) => Sight::Trouble(words(&answer)),
            Err(why) => Sight::Trouble(why),
        })
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
