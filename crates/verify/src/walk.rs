//! Listing a server's keys: `lru_crawler metadump all`, as fast as it comes, into a file.

use std::thread;
use std::time::Duration;

use moneta_client::wire::blocking::DialogueError;
use moneta_client::wire::dump::Dumped;
use moneta_store::request::KEY_MAX;

use crate::config::VerifyConfig;
use crate::error::{Side, VerifyError};
use crate::line::Line;
use crate::observer::{Observer, Phase, Progress};
use crate::spool::Spool;

/// Keys after which it is told how far the walk is, and asked whether to stop.
const TELL_EVERY: u64 = 1000;
/// Pause before a server is asked again that lists its keys to another client, or whose own crawler is at work.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// After so many pauses (30 s), another client's long walk is the likelier reason.
const BUSY_PAUSES: u32 = 150;

/// A walk that came to its end.
pub(crate) struct Walked {
    /// The keys that were chosen.
    pub(crate) spool: Spool,
    /// How many were listed.
    pub(crate) listed: u64,
    /// Of these, how many by a node where nothing looks for them: an earlier topology left them there.
    pub(crate) strays: u64,
}

/// Why a walk broke off.
enum Broken {
    Dialogue(DialogueError),
    Other(VerifyError),
}

impl From<DialogueError> for Broken {
    fn from(error: DialogueError) -> Self {
        Self::Dialogue(error)
    }
}

/// Writes down the keys of `side` that are to be compared: those of one node after the other. A walk that breaks off is begun
/// anew once.
///
/// # Errors
/// When the server gives no list, or the file cannot be written.
pub(crate) fn walk(side: Side, config: &VerifyConfig, observer: &dyn Observer) -> Result<Walked, VerifyError> {
    observer.phase(Phase::Walking(side));
    let mut line = Line::new(side, config);
    let mut failures = 0;
    loop {
        let broken = match attempt(&mut line, config, observer) {
            Ok(walked) => return Ok(walked),
            Err(Broken::Other(error)) => return Err(error),
            Err(Broken::Dialogue(error)) => error,
        };
        line.close();
        match broken {
            DialogueError::Refused(why) => return Err(line.unlisted(why)),
            error @ DialogueError::Unsupported(_) => return Err(line.unlisted(error.to_string())),
            error if failures > 0 => return Err(line.failure(error)),
            _ => failures += 1,
        }
        if observer.should_stop() {
            return Err(VerifyError::Interrupted);
        }
    }
}

/// Whether `side` lists no key at all.
///
/// # Errors
/// Those of [`walk`].
pub(crate) fn is_empty(side: Side, config: &VerifyConfig, observer: &dyn Observer) -> Result<bool, VerifyError> {
    let first = VerifyConfig { share: 1.0, first: Some(1), ..config.clone() };
    walk(side, &first, observer).map(|walked| walked.listed == 0)
}

/// Has a node begin its list, when it is done with those of others; the first key.
fn begin(line: &mut Line, node: usize, observer: &dyn Observer) -> Result<Option<Dumped>, Broken> {
    for _ in 0..BUSY_PAUSES {
        let dialogue = line.dialogue(node)?;
        dialogue.dump()?;
        match dialogue.next_key() {
            Err(DialogueError::Busy) => line.close(),
            first => return Ok(first?),
        }
        if observer.should_stop() {
            return Err(Broken::Other(VerifyError::Interrupted));
        }
        thread::sleep(BUSY_PAUSE);
    }
    Err(Broken::Dialogue(DialogueError::Busy))
}

fn attempt(line: &mut Line, config: &VerifyConfig, observer: &dyn Observer) -> Result<Walked, Broken> {
    let spooling = |error| Broken::Other(VerifyError::Spool(error));
    let mut walked = Walked { spool: Spool::new().map_err(spooling)?, listed: 0, strays: 0 };
    for node in 0..line.place().nodes().len() {
        let mut next = begin(line, node, observer)?;
        while let Some(dumped) = next {
            walked.listed += 1;
            if walked.listed.is_multiple_of(TELL_EVERY) {
                observer.progress(Progress { keys: walked.listed, ..Progress::default() });
                if observer.should_stop() {
                    return Err(Broken::Other(VerifyError::Interrupted));
                }
            }
            if line.place().node_of(&dumped.key) != node {
                walked.strays += 1;
            } else if dumped.key.len() <= KEY_MAX && config.chooses(&dumped.key) {
                walked.spool.add(&dumped.key).map_err(spooling)?;
                if config.first == Some(walked.spool.keys()) {
                    return Ok(walked);
                }
            }
            next = line.dialogue(node)?.next_key()?;
        }
    }
    Ok(walked)
}
