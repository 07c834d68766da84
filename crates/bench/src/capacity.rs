//! How many items of one kind a server holds before it evicts the first, and how much memory it uses then.

use std::io::{Read, Write};
use std::sync::Arc;

use serde::Serialize;

use moneta_net::Stream;

use crate::address::{Address, Subject};
use crate::control::Control;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::keys::{Key, KeySpace, KeyText, shortest_length};
use crate::operation::Operation;
use crate::process::{Memory, Process};
use crate::value::Values;
use crate::wire::{Answer, Command, Expected, Protocol};
use crate::workload::Workload;

/// Items stored between two looks at the server's statistics: the resolution of the result.
const CHUNK_ITEMS: u64 = 1000;
/// Bytes sent together at most, so that neither side's buffers fill up.
const CHUNK_BYTES: usize = 1 << 20;
/// Items after which the search gives up: no server tested on one machine holds more.
const MOST_ITEMS: u64 = 1 << 32;
const RECEIVE: usize = 64 * 1024;

/// What was found.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Capacity {
    /// The most items the server reported while it had evicted none.
    pub items: u64,
    /// Bytes of keys and values in those items.
    pub payload: u64,
    /// The server's memory at that point, when its process can be seen.
    pub memory: Option<Memory>,
}

/// Stores new items until the server evicts one or refuses one.
///
/// # Errors
/// What goes wrong on the connection; [`BenchError::Protocol`] when the server does not report `evictions` and `curr_items`.
pub fn run(workload: &Arc<Workload>, address: &Address, server: Option<Process>) -> Result<Capacity> {
    if workload.key_length < shortest_length(MOST_ITEMS) {
        let reason = format!("a capacity test needs at least {} bytes", shortest_length(MOST_ITEMS));
        return Err(BenchError::option("key-size", workload.key_length, reason));
    }
    let mut control = Control::connect(address)?;
    let mut filler = Filler::new(Arc::clone(workload), address)?;
    let mut items = 0;
    loop {
        interrupt::check()?;
        let refused = filler.store_chunk()?;
        let evicted = control.count("evictions")? > 0;
        if !evicted {
            items = control.count("curr_items")?;
        }
        if evicted || refused || filler.next >= MOST_ITEMS {
            break;
        }
    }
    let payload = filler.payload_of(items);
    Ok(Capacity { items, payload, memory: server.map(Process::memory).transpose()? })
}

struct Filler {
    workload: Arc<Workload>,
    address: Address,
    stream: Stream,
    values: Values,
    key_text: KeyText,
    send: Vec<u8>,
    receive: Vec<u8>,
    next: u64,
}

impl Filler {
    fn new(workload: Arc<Workload>, address: &Address) -> Result<Self> {
        Ok(Self {
            stream: address.connect()?,
            address: address.clone(),
            values: Values::new(workload.seed),
            key_text: KeyText::new(workload.key_length),
            send: Vec::with_capacity(CHUNK_BYTES),
            receive: Vec::with_capacity(RECEIVE),
            next: 0,
            workload,
        })
    }

    /// Stores the next chunk; true when the server refused an item.
    fn store_chunk(&mut self) -> Result<bool> {
        self.send.clear();
        let mut sent = 0;
        while sent < CHUNK_ITEMS && (sent == 0 || self.send.len() < CHUNK_BYTES) {
            let key = Key { space: KeySpace::Value, number: self.next };
            self.queue(key);
            self.next += 1;
            sent += 1;
        }
        self.stream.write_all(&self.send).map_err(|error| self.address.failed(error))?;
        self.receive_statuses(sent)
    }

    fn queue(&mut self, key: Key) {
        let (operation, protocol) = (Operation::Set, Protocol::Text);
        let (value_length, ttl) = (self.workload.value_length(operation, key, 0), self.workload.ttl(key, 0));
        let text = self.key_text.write(key);
        protocol.begin(&mut self.send, Command { operation, key: text, ttl, value_length });
        self.workload.append_value(&self.values, &mut self.send, operation, key, 0);
        protocol.end_value(&mut self.send);
    }

    fn receive_statuses(&mut self, count: u64) -> Result<bool> {
        self.receive.clear();
        let (mut start, mut answered, mut refused) = (0, 0, false);
        while answered < count {
            let parsed = Protocol::Text.parse(&self.receive[start..], Expected::Status);
            match parsed.map_err(|reason| self.address.violated(reason))? {
                Some(reply) => {
                    refused |= matches!(reply.answer, Answer::Failed(_));
                    start += reply.length;
                    answered += 1;
                }
                None => self.read_more()?,
            }
        }
        Ok(refused)
    }

    fn read_more(&mut self) -> Result<()> {
        let filled = self.receive.len();
        self.receive.resize(filled + RECEIVE, 0);
        let count = self.stream.read(&mut self.receive[filled..]).map_err(|error| self.address.failed(error))?;
        self.receive.truncate(filled + count);
        if count == 0 { Err(self.address.failed(std::io::ErrorKind::UnexpectedEof.into())) } else { Ok(()) }
    }

    fn payload_of(&self, items: u64) -> u64 {
        let size =
            |number| self.workload.value_length(Operation::Set, Key { space: KeySpace::Value, number }, 0) as u64;
        (0..items).map(size).sum::<u64>() + items * self.workload.key_length as u64
    }
}
