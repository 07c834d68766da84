//! Keys on their way from a list to the requests for their values: in a nameless file, as many as come.
//!
//! Who reads a list must not wait: memcached keeps locks while its client does not read, so a request for an item that it is about to
//! list would wait for the list; Moneta closes a client that takes nothing of its list for a while.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that are written and read at once.
const CHUNK: usize = 64 << 10;

/// A key as a list has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) key: Vec<u8>,
    /// Unix second; 0: never.
    pub(crate) expiry: u32,
}

/// How the list goes.
#[derive(Debug)]
struct State {
    /// Bytes that are in the file.
    written: u64,
    /// The list has ended; the error: why it broke off.
    ended: Option<Result<(), String>>,
    /// There is no reader left.
    is_dropped: bool,
}

/// What both ends share.
#[derive(Debug)]
pub(crate) struct Queue {
    file: File,
    state: Mutex<State>,
    changed: Condvar,
}

impl Queue {
    /// An empty one, in the folder for temporary files (`TMPDIR`).
    pub(crate) fn new() -> io::Result<Self> {
        let state = State { written: 0, ended: None, is_dropped: false };
        Ok(Self { file: tempfile::tempfile()?, state: Mutex::new(state), changed: Condvar::new() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The list has ended, or broke off.
    pub(crate) fn end(&self, how: Result<(), String>) {
        self.state().ended.get_or_insert(how);
        self.changed.notify_all();
    }

    /// There is no reader left.
    pub(crate) fn drop_reader(&self) {
        self.state().is_dropped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.state().is_dropped
    }
}

/// The end at which keys are added.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    queue: &'a Queue,
    chunk: Vec<u8>,
    at: u64,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(queue: &'a Queue) -> Self {
        Self { queue, chunk: Vec::with_capacity(CHUNK), at: 0 }
    }

    /// Adds a key of at most 255 bytes.
    pub(crate) fn add(&mut self, listed: &Listed) -> io::Result<()> {
        let length = u8::try_from(listed.key.len()).map_err(|_| io::Error::other("the key is too long"))?;
        self.chunk.push(length);
        self.chunk.extend_from_slice(&listed.expiry.to_le_bytes());
        self.chunk.extend_from_slice(&listed.key);
        if self.chunk.len() + 300 > CHUNK { self.flush() } else { Ok(()) }
    }

    /// Hands on what was added.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.queue.file.write_all_at(&self.chunk, self.at)?;
        self.at += self.chunk.len() as u64;
        self.chunk.clear();
        self.queue.state().written = self.at;
        self.queue.changed.notify_all();
        Ok(())
    }
}

/// The end at which keys are taken.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    queue: &'a Queue,
    chunk: Vec<u8>,
    /// Bytes of the chunk that were taken.
    taken: usize,
    at: u64,
}

/// What a reader is given.
pub(crate) enum Taken {
    Key(Listed),
    /// None is there yet.
    Nothing,
    End,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(queue: &'a Queue) -> Self {
        Self { queue, chunk: Vec::new(), taken: 0, at: 0 }
    }

    /// The next key; waits for it so long at most.
    pub(crate) fn take(&mut self, patience: Duration) -> io::Result<Taken> {
        loop {
            if let Some(listed) = self.parse() {
                return Ok(Taken::Key(listed));
            }
            let state = self.queue.state();
            let is_empty = |state: &mut State| state.written == self.at && state.ended.is_none();
            let (state, _) = self
                .queue
                .changed
                .wait_timeout_while(state, patience, is_empty)
                .unwrap_or_else(PoisonError::into_inner);
            let here = state.written - self.at;
            if here == 0 {
                return match &state.ended {
                    None => Ok(Taken::Nothing),
                    Some(Ok(())) if self.taken == self.chunk.len() => Ok(Taken::End),
                    Some(Ok(())) => Err(io::Error::other("the list of keys ends within one")),
                    Some(Err(why)) => Err(io::Error::other(why.clone())),
                };
            }
            drop(state);
            self.chunk.drain(..std::mem::take(&mut self.taken));
            let (start, more) = (self.chunk.len(), usize::try_from(here).unwrap_or(CHUNK).min(CHUNK));
            self.chunk.resize(start + more, 0);
            self.queue.file.read_exact_at(&mut self.chunk[start..], self.at)?;
            self.at += more as u64;
        }
    }

    fn parse(&mut self) -> Option<Listed> {
        let rest = &self.chunk[self.taken..];
        let (&length, rest) = rest.split_first()?;
        let (expiry, rest) = rest.split_first_chunk::<4>()?;
        let key = rest.get(..usize::from(length))?.to_vec();
        self.taken += 5 + key.len();
        Some(Listed { key, expiry: u32::from_le_bytes(*expiry) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_comes_out_as_it_went_in_while_others_come() {
        let queue = Queue::new().expect("a file");
        let listed = |number: u32| Listed { key: vec![b'k'; 1 + number as usize % 250], expiry: number };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = Writer::new(&queue);
                (0..20_000).for_each(|number| writer.add(&listed(number)).expect("there is room"));
                writer.flush().expect("there is room");
                queue.end(Ok(()));
            });
            let mut reader = Reader::new(&queue);
            let mut number = 0;
            loop {
                match reader.take(Duration::from_secs(1)).expect("it is there") {
                    Taken::Key(key) => {
                        assert_eq!(key, listed(number));
                        number += 1;
                    }
                    Taken::Nothing => {}
                    Taken::End => break,
                }
            }
            assert_eq!(number, 20_000);
        });
    }

    #[test]
    fn a_list_that_broke_off_is_an_error_after_what_it_had() {
        let queue = Queue::new().expect("a file");
        let mut writer = Writer::new(&queue);
        writer.add(&Listed { key: b"a".to_vec(), expiry: 7 }).expect("there is room");
        writer.flush().expect("there is room");
        queue.end(Err("cut off".to_owned()));
        let mut reader = Reader::new(&queue);
        assert!(matches!(reader.take(Duration::ZERO), Ok(Taken::Key(_))));
        let error = reader.take(Duration::ZERO).err().expect("it broke off");
        assert_eq!(error.to_string(), "cut off");
    }
}
