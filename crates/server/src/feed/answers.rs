//! Answers of the feed over HTTP: those that are made, and those that were not read yet. All are in the account of what is held
//! for clients.
//!
//! Together they may hold an eighth of that account's limit, beyond which no answer is begun: the one that was not read from for
//! the longest is cut short. An answer that is made meanwhile ends with the change that it is at, and says that there is more.

use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use futures_core::Stream;
use parking_lot::Mutex;

use crate::client_memory::{ClientMemory, Kind};

/// All answers together may hold this fraction of client memory: an eighth.
const SHARE: usize = 8;
/// Time after which an answer of which nothing was read may be cut short.
const IDLE: Duration = Duration::from_secs(1);
/// Bytes that are handed to a connection at once.
const PIECE: usize = 64 << 10;

/// What has answers, and the account that they are in.
pub(crate) trait Answering: Send + Sync {
    /// The answers.
    fn answers(&self) -> &Answers;

    /// The account.
    fn memory(&self) -> &ClientMemory;
}

/// The answers of a node.
#[derive(Debug, Default)]
pub struct Answers(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    /// Of those that are made, too.
    bytes: usize,
    unread: Vec<Weak<Mutex<Unread>>>,
}

impl Answers {
    /// An answer that is begun.
    pub(crate) fn begin(node: Arc<dyn Answering>) -> Answer {
        Answer { node, held: 0 }
    }

    /// Whether another answer may be begun; cuts answers short that are not read.
    pub(crate) fn has_room(&self, memory: &ClientMemory) -> bool {
        self.relieve(memory)
    }

    /// Cuts answers short until all that are held fit; whether they do.
    fn relieve(&self, memory: &ClientMemory) -> bool {
        let most = memory.limit() / SHARE;
        while self.0.lock().bytes > most {
            // Looked at and dropped outside of the lock, which the last owner of one takes.
            let unread: Vec<_> = {
                let mut all = self.0.lock();
                all.unread.retain(|unread| unread.strong_count() > 0);
                all.unread.iter().filter_map(Weak::upgrade).collect()
            };
            let idle = unread.iter().filter_map(|unread| {
                let since = unread.lock().idle_since()?;
                (since.elapsed() >= IDLE).then_some((since, unread))
            });
            let Some((_, unread)) = idle.min_by_key(|(since, _)| *since) else { return false };
            let rest = unread.lock().cut();
            drop(rest);
        }
        true
    }
}

/// An answer that is made.
pub(crate) struct Answer {
    node: Arc<dyn Answering>,
    held: usize,
}

impl Answer {
    /// It holds so many bytes by now. False: there is no room for more.
    pub(crate) fn holds(&mut self, bytes: usize) -> bool {
        self.account(bytes);
        self.node.answers().relieve(self.node.memory())
    }

    fn account(&mut self, bytes: usize) {
        let mut all = self.node.answers().0.lock();
        all.bytes = all.bytes + bytes - self.held;
        self.node.memory().change_shared(Kind::Feed, self.held, bytes);
        self.held = bytes;
    }

    /// The answer as what is sent, which is in the account until it is read.
    pub(crate) fn into_body(mut self, bytes: Vec<u8>) -> Body {
        self.holds(bytes.capacity());
        let node = Arc::clone(&self.node);
        let unread = Arc::new(Mutex::new(Unread { rest: Some((bytes, self)), sent: 0, read: Instant::now() }));
        node.answers().0.lock().unread.push(Arc::downgrade(&unread));
        Body::from_stream(Pieces(unread))
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        self.account(0);
    }
}

/// An answer that is sent.
#[derive(Debug)]
struct Unread {
    /// `None`: it was cut short.
    rest: Option<(Vec<u8>, Answer)>,
    /// Bytes of it that were handed to the connection.
    sent: usize,
    /// When that was done last.
    read: Instant,
}

impl Unread {
    /// Since when nothing of it was read; `None`: it was cut short.
    fn idle_since(&self) -> Option<Instant> {
        self.rest.as_ref().map(|_| self.read)
    }

    fn cut(&mut self) -> Option<(Vec<u8>, Answer)> {
        tracing::debug!("an answer of the feed that is not read is cut short");
        self.rest.take()
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.held)
    }
}

/// The pieces of an answer.
struct Pieces(Arc<Mutex<Unread>>);

/// The answer was cut short.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read for too long")]
struct CutShort;

impl Stream for Pieces {
    type Item = Result<Bytes, CutShort>;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut unread = self.0.lock();
        let Unread { rest, sent, read } = &mut *unread;
        *read = Instant::now();
        let Some((bytes, _)) = rest else { return Poll::Ready(Some(Err(CutShort))) };
        // A copy: a part of the whole would keep all of it.
        let piece = &bytes[*sent..bytes.len().min(*sent + PIECE)];
        *sent += piece.len();
        Poll::Ready((!piece.is_empty()).then(|| Ok(Bytes::copy_from_slice(piece))))
    }
}
