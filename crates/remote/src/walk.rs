//! Walks: reads the server's list of its keys on a separate thread and connection, and looks up each key it names.
//!
//! ```text
//!  server ──list──> thread ──batches of keys──> [ Keys, bounded ] ──> the walk's future ──looks──> connections of the store
//! ```
//!
//! The list alone does not tell an item's flags, marks and length, so each key is looked at, without its value, when its turn
//! has come. What is gone by then is not shown. A walk that is given up ends its thread at the next key, or when the server
//! has been silent for too long.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use moneta_background::Run;
use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::dump::Dumped;
use moneta_client::wire::{Answer, Protocol, Seen, Verb};
use moneta_store::{Cursor, ErrorKind, Key, StoreError, Walked, Walking};
use parking_lot::{Condvar, Mutex};

use crate::caller::Caller;
use crate::config::RemoteConfig;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::reads;

/// Keys that are looked at at once.
const BATCH: usize = 100;
/// Batches that the thread reads ahead.
const AHEAD: usize = 4;
/// How long a server may be silent in the middle of its list: it may have many dead items to pass over.
const SILENCE: Duration = Duration::from_secs(10);
/// Pause before a retry if the server is busy listing its keys to another client.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// What an item takes on the server beside key and value, in bytes: of the order of memcached's header.
const OVERHEAD: usize = 56;

/// A batch of keys, in the server's order.
type Batch = Arc<[Arc<[u8]>]>;
/// Items of a batch that are there.
type Looked = Arc<Mutex<Option<Vec<(Arc<[u8]>, Seen<'static>)>>>>;

/// A walk under way; lies in its cursor.
struct Walk {
    keys: Arc<Keys>,
    looked: Looked,
}

/// Keys on their way from the thread to the walk.
#[derive(Default)]
struct Keys {
    state: Mutex<KeysState>,
    room: Condvar,
}

#[derive(Default)]
struct KeysState {
    batches: VecDeque<Batch>,
    /// No more will come; with a reason, if that is too early.
    ended: Option<Option<Failure>>,
    given_up: bool,
    waker: Option<Waker>,
}

pub(crate) fn walk(remote: &Caller, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
    let walk: Box<Walk> = cursor.take().unwrap_or_else(|| Box::new(Walk::begin(remote.config())));
    let looked = walk.looked.lock().take();
    if let Some(looked) = looked {
        let now = remote.now();
        for (key, seen) in &looked {
            let (meta, value_bytes) = (seen.meta(now), seen.size);
            show(&Walked { key, meta, value_bytes, size: key.len() + value_bytes + OVERHEAD });
        }
        cursor.keep(walk);
        return Walking::More;
    }
    if walk.keys.are_through() {
        return Walking::End;
    }
    let looking = look(remote.clone(), Arc::clone(&walk.keys), Arc::clone(&walk.looked));
    cursor.keep(walk);
    Walking::Wait(Box::pin(looking))
}

/// Looks at the next batch of keys. They leave the queue when that is done, so that giving up half way loses none.
async fn look(remote: Caller, keys: Arc<Keys>, looked: Looked) -> Result<(), StoreError> {
    let Some(batch) = poll_fn(|context| keys.poll_first(context)).await? else { return Ok(()) };
    let seed = remote.config().seed;
    let verb = Verb::Peek { value: false };
    // All are begun before the first is waited for, and so go out together.
    let looks: Vec<Exchange> =
        batch.iter().map(|key| remote.begin(verb, &Key::new(key, seed), &[])).collect::<Result<_, _>>()?;
    let mut found = Vec::with_capacity(looks.len());
    for (key, look) in batch.iter().zip(looks) {
        match look.await? {
            Answer::Hit(mut seen) => {
                if std::mem::take(&mut seen.won)
                    && let Some(giving_back) = reads::give_back(&remote, &Key::new(key, seed), seen.cas)
                {
                    let _ = giving_back.await;
                }
                found.push((Arc::clone(key), seen));
            }
            Answer::Miss => {}
            other => return Err(remote.unexpected(other)),
        }
    }
    *looked.lock() = Some(found);
    keys.drop_first();
    Ok(())
}

impl Walk {
    fn begin(config: &RemoteConfig) -> Self {
        let keys = Arc::new(Keys::default());
        let (theirs, config) = (Arc::clone(&keys), config.clone());
        let run = move |task: &Run| {
            let ended = list(&config, &theirs).err().map(|error| failure(&config, &error));
            ended.iter().for_each(|failure| task.failed(&failure.reason));
            theirs.end(ended);
        };
        if let Err(error) = moneta_background::start("remote-walk", run) {
            keys.end(Some(Failure::unreachable(format!("cannot start a thread for a walk: {error}"))));
        }
        Self { keys, looked: Arc::default() }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        self.keys.state.lock().given_up = true;
        self.keys.room.notify_all();
    }
}

/// Reads the server's list.
fn list(config: &RemoteConfig, keys: &Keys) -> Result<(), DialogueError> {
    let unsupported = |why| Err(moneta_client::wire::Unsupported(why).into());
    if config.protocol.is_some_and(|protocol| protocol != Protocol::Meta) {
        return unsupported("items are walked over the meta protocol only");
    }
    let silence = config.request_timeout.get().max(SILENCE);
    let mut dialogue = Dialogue::open(&config.endpoint.clone().patient(silence), None, config.item_max)?;
    if dialogue.dialect().protocol != Protocol::Meta {
        return unsupported("the server does not know the meta protocol, which a walk needs");
    }
    let mut next = begin_list(&mut dialogue, keys, silence)?;
    let mut batch = Vec::with_capacity(BATCH);
    while let Some(dumped) = next {
        batch.push(Arc::from(dumped.key));
        if batch.len() == BATCH && !keys.push(std::mem::take(&mut batch)) {
            return Ok(());
        }
        next = dialogue.next_key()?;
    }
    keys.push(batch);
    Ok(())
}

/// Has the server begin its list, when it is done with those of others; the first key.
fn begin_list(dialogue: &mut Dialogue, keys: &Keys, patience: Duration) -> Result<Option<Dumped>, DialogueError> {
    let begun = Instant::now();
    loop {
        dialogue.dump()?;
        match dialogue.next_key() {
            Err(DialogueError::Busy) if begun.elapsed() < patience && !keys.state.lock().given_up => {
                std::thread::sleep(BUSY_PAUSE);
            }
            first => return first,
        }
    }
}

fn failure(config: &RemoteConfig, error: &DialogueError) -> Failure {
    let kind = match error {
        DialogueError::Unsupported(_) => ErrorKind::Unsupported,
        DialogueError::Io(error)
            if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
        {
            ErrorKind::Timeout
        }
        _ => ErrorKind::Unreachable,
    };
    Failure::new(kind, format!("the keys of {} cannot be listed: {error}", config.endpoint.address))
}

impl Keys {
    /// Hands a batch over when there is room; false if the walk was dropped.
    fn push(&self, batch: Vec<Arc<[u8]>>) -> bool {
        let waker = {
            let mut state = self.state.lock();
            while state.batches.len() >= AHEAD && !state.given_up {
                self.room.wait(&mut state);
            }
            if state.given_up {
                return false;
            }
            state.batches.push_back(batch.into());
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
        true
    }

    fn end(&self, failure: Option<Failure>) {
        let waker = {
            let mut state = self.state.lock();
            state.ended = Some(failure);
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The first batch, which stays; `None` when there are no more.
    fn poll_first(&self, context: &mut Context<'_>) -> Poll<Result<Option<Batch>, StoreError>> {
        let mut state = self.state.lock();
        if let Some(batch) = state.batches.front() {
            return Poll::Ready(Ok(Some(Arc::clone(batch))));
        }
        match &state.ended {
            Some(None) => Poll::Ready(Ok(None)),
            Some(Some(failure)) => Poll::Ready(Err(failure.clone().into())),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    fn drop_first(&self) {
        self.state.lock().batches.pop_front();
        self.room.notify_all();
    }

    fn are_through(&self) -> bool {
        let state = self.state.lock();
        state.batches.is_empty() && matches!(state.ended, Some(None))
    }
}
