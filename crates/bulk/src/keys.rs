//! The first stage of a walk: a server's list of its keys, as fast as it comes.

use std::thread::sleep;
use std::time::Duration;

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::dump::Dumped;
use moneta_item::request::KEY_MAX;
use moneta_net::Endpoint;

use crate::queue::{Listed, Queue, Writer};
use crate::watch::{Counted, Counters};
use crate::which::Which;

/// Keys after which those that came are handed on.
const HAND_ON_EVERY: u64 = 1000;
/// Pause before a server is asked again that lists its keys to another client, or whose own crawler is at work.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// After so many pauses (30 s), another client's long list is the likelier reason.
const BUSY_PAUSES: u32 = 150;

/// Puts the keys of a server into the queue, those that are wanted, and tells it how the list ended.
pub(crate) fn list(endpoint: &Endpoint, which: &Which, queue: &Queue, counters: &Counters) {
    // Else the other stage waits for ever.
    let _panicked = EndOf(queue);
    queue.end(try_list(endpoint, which, queue, counters));
}

/// Tells that the list ended, if nothing else has.
struct EndOf<'a>(&'a Queue);

impl Drop for EndOf<'_> {
    fn drop(&mut self) {
        self.0.end(Err("the thread that read its list of keys has panicked".to_owned()));
    }
}

fn try_list(endpoint: &Endpoint, which: &Which, queue: &Queue, counters: &Counters) -> Result<(), String> {
    let failed = |error: DialogueError| format!("its list of keys: {error}");
    let (mut dialogue, mut next) = begin(endpoint, queue).map_err(failed)?;
    let mut writer = Writer::new(queue);
    let spooled = |error: std::io::Error| format!("the file of keys: {error}");
    let mut count = 0u64;
    while let Some(Dumped { key, expiry, .. }) = next {
        count += 1;
        let listed = Listed { key, expiry: expiry.unwrap_or(0) };
        if listed.key.len() > KEY_MAX || !which.has_key(&listed.key) {
            counters.add(Counted::Unwanted);
        } else if !which.lives_on(listed.expiry) {
            counters.add(Counted::ShortLived);
        } else {
            writer.add(&listed).map_err(spooled)?;
        }
        if count.is_multiple_of(HAND_ON_EVERY) {
            if queue.is_dropped() {
                return Ok(());
            }
            writer.flush().map_err(spooled)?;
        }
        next = dialogue.next_key().map_err(failed)?;
    }
    writer.flush().map_err(spooled)
}

/// Has a server begin its list, when it is done with those of others: by hash, and where it does not know that, by order of use.
fn begin(endpoint: &Endpoint, queue: &Queue) -> Result<(Dialogue, Option<Dumped>), DialogueError> {
    let mut by_hash = true;
    for _ in 0..BUSY_PAUSES {
        let mut dialogue = Dialogue::open(endpoint, None, 0)?;
        if by_hash {
            dialogue.dump_by_hash()?
        } else {
            dialogue.dump()?
        };
        match dialogue.next_key() {
            Err(DialogueError::Busy) if !queue.is_dropped() => sleep(BUSY_PAUSE),
            Err(DialogueError::Refused(_)) if by_hash => by_hash = false,
            first => return Ok((dialogue, first?)),
        }
    }
    Err(DialogueError::Busy)
}
