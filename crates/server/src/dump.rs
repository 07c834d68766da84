//! Dumps (`lru_crawler metadump` and `mgdump`, `stats cachedump`): a line for every item, written in batches as the output
//! drains.

use std::task::{Context, Poll};

use moneta_store::{Cursor, Pending, Walked, Walking};

use crate::session::context::Worker;
use crate::turnstile::Turnstile;
use moneta_store::escape::{is_text_key, percent_encode};

/// The kind of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpKind {
    /// `metadump`: key and metadata.
    Metadata,
    /// `mgdump`: `mg` commands that read the keys.
    Keys,
    /// `stats cachedump`: keys with size and expiry, up to a limit; omits keys that a line of text cannot carry.
    Cache {
        /// Lines that may still follow.
        limit: u64,
    },
}

/// Batches of the store's walk in one turn: batches of expired items show nothing, and there may be any number of them in a row.
const BATCHES: usize = 16;

/// In place of a list, where the store has none: an empty one would look like a store without items.
const UNLISTED: &[u8] = b"SERVER_ERROR this store cannot list its keys\r\n";

/// A dump in progress.
pub struct Dump {
    _turnstile: Turnstile,
    kind: DumpKind,
    cursor: Cursor,
    /// The I/O that the store has to finish before it can show more.
    waiting: Option<Pending<()>>,
    begun: bool,
}

/// The progress of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dumped {
    /// The last line is out.
    All,
    /// The output is full, or other connections have their turn.
    Some,
    /// The store is not ready to show more; the waker will be called when it is.
    Waiting,
}

impl Dump {
    /// A dump that has not begun.
    pub fn new(kind: DumpKind, turnstile: Turnstile) -> Self {
        Self { _turnstile: turnstile, kind, cursor: Cursor::default(), waiting: None, begun: false }
    }

    /// Appends lines until `output` has grown past `high_water`, which one batch may exceed, or after some batches. If the store
    /// fails, the dump ends early with an error in place of its last line. Only keys that the client `shows` are listed.
    pub fn write(
        &mut self,
        worker: &Worker,
        shows: &dyn Fn(&[u8]) -> bool,
        cx: &mut Context<'_>,
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Dumped {
        let parts = worker.store.parts();
        let Some(walk) = parts.walk else {
            output.extend_from_slice(UNLISTED);
            return Dumped::All;
        };
        if !self.begun && !matches!(self.kind, DumpKind::Cache { .. }) {
            output.extend_from_slice(b"OK\r\n");
        }
        self.begun = true;
        let now = worker.node.clock.now();
        let kind = &mut self.kind;
        for _ in 0..BATCHES {
            if output.len() >= high_water {
                break;
            }
            if let Some(pending) = &mut self.waiting {
                match pending.as_mut().poll(cx) {
                    Poll::Pending => return Dumped::Waiting,
                    Poll::Ready(Ok(())) => self.waiting = None,
                    Poll::Ready(Err(error)) => {
                        output.extend_from_slice(format!("SERVER_ERROR {error}\r\n").as_bytes());
                        return Dumped::All;
                    }
                }
            }
            if *kind == (DumpKind::Cache { limit: 0 }) {
                output.extend_from_slice(b"END\r\n");
                return Dumped::All;
            }
            let mut show = |item: &Walked<'_>| match kind {
                _ if !shows(item.key) => {}
                DumpKind::Metadata => metadata_line(item, output),
                DumpKind::Keys => key_line(item, output),
                DumpKind::Cache { limit } if *limit > 0 && is_text_key(item.key) && !item.meta.expiry.is_dead(now) => {
                    *limit -= 1;
                    cache_line(item, output);
                }
                DumpKind::Cache { .. } => {}
            };
            match walk.walk(&worker.cx, &mut self.cursor, &mut show) {
                Walking::More => {}
                Walking::Wait(pending) => self.waiting = Some(pending),
                Walking::End => {
                    let end: &[u8] = if *kind == DumpKind::Keys { b"EN\r\n" } else { b"END\r\n" };
                    output.extend_from_slice(end);
                    return Dumped::All;
                }
            }
        }
        Dumped::Some
    }
}

fn metadata_line(item: &Walked<'_>, output: &mut Vec<u8>) {
    let meta = &item.meta;
    output.extend_from_slice(b"key=");
    percent_encode(item.key, output);
    let exp = if meta.expiry.0 == 0 { -1 } else { i64::from(meta.expiry.0) };
    let fetch = if meta.fetched { "yes" } else { "no" };
    let rest = format!(
        " exp={exp} la={} cas={} fetch={fetch} cls=1 size={} flags={} \n",
        meta.last_access, meta.cas, item.size, meta.flags
    );
    output.extend_from_slice(rest.as_bytes());
}

/// An expiry of 0 is none, as memcached shows it.
fn cache_line(item: &Walked<'_>, output: &mut Vec<u8>) {
    output.extend_from_slice(b"ITEM ");
    output.extend_from_slice(item.key);
    output.extend_from_slice(format!(" [{} b; {} s]\r\n", item.value_bytes, item.meta.expiry.0).as_bytes());
}

/// A key that a text line cannot carry is written in base64, as `mg` takes it with flag `b`.
fn key_line(item: &Walked<'_>, output: &mut Vec<u8>) {
    output.extend_from_slice(b"mg ");
    if is_text_key(item.key) {
        output.extend_from_slice(item.key);
    } else {
        output.extend_from_slice(moneta_protocol::base64::encode_key(item.key).as_bytes());
        output.extend_from_slice(b" b");
    }
    output.extend_from_slice(b"\r\n");
}
