//! The second stage of a walk: requests for the listed items, many ahead of their answers.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::SyncSender;
use std::thread::sleep;
use std::time::Duration;

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Request, Seen, Verb};
use moneta_feed::{Change, Set};
use moneta_item::Expiry;
use moneta_net::Endpoint;

use crate::moment::{millis, seconds};
use crate::queue::{Listed, Queue, Reader, Taken};
use crate::watch::{Counted, Counters};
use crate::which::Which;

/// Requests that wait for an answer at once.
const AHEAD: usize = 256;
/// Bytes of their keys: less than what sockets hold, so that neither side waits for the other to read.
const AHEAD_BYTES: usize = 32 << 10;
/// Items that are handed on at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 256 << 10;
/// How long a key is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// Connections in a row that may break without an answer.
const FAILURES: u32 = 5;
/// Pause before another one.
const PAUSE: Duration = Duration::from_secs(1);
/// Seconds by which the end of life that a list tells may differ from what is left to live by our clock: each rounds by itself.
const ROUNDING: u32 = 2;

/// Items, or why there are no more of them.
pub(crate) type Batch = Result<Vec<Change>, String>;

/// Asks for the items of the queue's keys.
pub(crate) struct Values<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) which: &'a Which,
    pub(crate) value_max: usize,
    pub(crate) counters: &'a Counters,
    pub(crate) into: SyncSender<Batch>,
}

/// What was asked for and not answered.
struct Asked {
    listed: Listed,
    /// Milliseconds since the Unix epoch.
    at: u64,
}

/// The receiver is gone.
struct Gone;

impl Values<'_> {
    /// Hands on the items of all keys, or why not.
    pub(crate) fn fetch(self, queue: &Queue) {
        if let Err(why) = self.try_fetch(queue) {
            // A receiver that is gone does not want to know.
            let _ = self.into.send(Err(why));
        }
    }

    fn try_fetch(&self, queue: &Queue) -> Result<(), String> {
        let mut keys = Reader::new(queue);
        let mut asked: VecDeque<Asked> = VecDeque::with_capacity(AHEAD);
        let mut dialogue: Option<Dialogue> = None;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let (mut is_end, mut failures) = (false, 0);
        loop {
            let answered = self.turn(&mut keys, &mut asked, &mut dialogue, &mut is_end);
            match answered {
                Ok(Some(change)) => {
                    failures = 0;
                    bytes += change.size();
                    batch.push(change);
                }
                Ok(None) => {}
                Err(Trouble::Keys(error)) => return Err(error.to_string()),
                Err(Trouble::Server(error)) => {
                    failures += 1;
                    if failures > FAILURES || matches!(error, DialogueError::LogIn(_)) {
                        return Err(format!("its values: {error}"));
                    }
                    dialogue = None;
                    sleep(PAUSE);
                }
            }
            if batch.len() >= BATCH || bytes >= BATCH_BYTES || asked.is_empty() && !batch.is_empty() {
                bytes = 0;
                if self.hand_on(std::mem::take(&mut batch)).is_err() {
                    return Ok(());
                }
            }
            if asked.is_empty() && is_end || queue.is_dropped() {
                return Ok(());
            }
        }
    }

    fn hand_on(&self, batch: Vec<Change>) -> Result<(), Gone> {
        self.into.send(Ok(batch)).map_err(|_| Gone)
    }

    /// Sees that enough is asked, and takes an answer; `None`: there was none, or it is of no use.
    fn turn(
        &self,
        keys: &mut Reader<'_>,
        asked: &mut VecDeque<Asked>,
        open: &mut Option<Dialogue>,
        is_end: &mut bool,
    ) -> Result<Option<Change>, Trouble> {
        if open.is_none() {
            let dialogue = open.insert(Dialogue::open(self.endpoint, None, self.value_max)?);
            // What was asked for on a connection that broke.
            for Asked { listed, at } in asked.iter_mut() {
                *at = millis();
                dialogue.ask(&peek(&listed.key))?;
            }
        }
        let Some(dialogue) = open else { return Ok(None) };
        if asked.len() <= AHEAD / 2 && !*is_end {
            self.ask(keys, asked, dialogue, is_end)?;
        }
        if asked.is_empty() {
            return Ok(None);
        }
        let answer = dialogue.answer();
        if let Err(error) = &answer
            && !matches!(error, DialogueError::TooLarge)
        {
            return answer.map(|_| None).map_err(Trouble::Server);
        }
        let Some(Asked { listed, at }) = asked.pop_front() else { return Ok(None) };
        Ok(match answer {
            Ok(Answer::Hit(seen)) => self.item(listed, seen, at),
            Ok(Answer::Miss) => self.none(Counted::Vanished),
            Ok(_) => self.none(Counted::Refused),
            Err(_) => self.none(Counted::TooLarge),
        })
    }

    fn ask(
        &self,
        keys: &mut Reader<'_>,
        asked: &mut VecDeque<Asked>,
        dialogue: &mut Dialogue,
        is_end: &mut bool,
    ) -> Result<(), Trouble> {
        let mut bytes: usize = asked.iter().map(|asked| asked.listed.key.len()).sum();
        while asked.len() < AHEAD && bytes < AHEAD_BYTES {
            let patience = if asked.is_empty() { PATIENCE } else { Duration::ZERO };
            match keys.take(patience)? {
                Taken::Key(listed) => match dialogue.ask(&peek(&listed.key)) {
                    Ok(()) => {
                        bytes += listed.key.len();
                        asked.push_back(Asked { listed, at: millis() });
                    }
                    // The server's protocol has no form for this key.
                    Err(DialogueError::Unsupported(_)) => self.counters.add(Counted::Refused),
                    Err(error) => return Err(error.into()),
                },
                Taken::Nothing => break,
                Taken::End => {
                    *is_end = true;
                    break;
                }
            }
        }
        dialogue.flush().map_err(|error| Trouble::Server(error.into()))
    }

    fn none(&self, why: Counted) -> Option<Change> {
        self.counters.add(why);
        None
    }

    fn item(&self, listed: Listed, seen: Seen<'_>, at: u64) -> Option<Change> {
        let now = seconds();
        let mut meta = seen.meta(now);
        if seen.expiry.is_none() {
            let differs = match (meta.expiry, listed.expiry) {
                (Expiry(0), 0) => false,
                (Expiry(0), _) | (_, 0) => true,
                (Expiry(left), told) => left.abs_diff(told) > ROUNDING,
            };
            // One that differs was given since the key was listed.
            if seen.ttl.is_none() || !differs {
                meta.expiry = Expiry(listed.expiry);
            }
        }
        if meta.expiry.is_dead(now) {
            return self.none(Counted::Vanished);
        }
        if !self.which.lives_on(meta.expiry.0) {
            return self.none(Counted::ShortLived);
        }
        let value = seen.value.into_owned().into();
        Some(Change::Set(Set { key: listed.key.into(), meta, value: Some(value), as_of: Some(at) }))
    }
}

fn peek(key: &[u8]) -> Request<'_> {
    Request { verb: Verb::Peek { value: true }, key, value: &[] }
}

/// Why a turn gave nothing.
enum Trouble {
    Keys(io::Error),
    Server(DialogueError),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Keys(error)
    }
}

impl From<DialogueError> for Trouble {
    fn from(error: DialogueError) -> Self {
        Self::Server(error)
    }
}
