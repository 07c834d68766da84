//! Begins reads of several keys that the store does together: the keys of a `get`, and pipelined `get`s. They are parked as one.

use moneta_protocol::command::{ReadVerb, Style, TextStyle};
use moneta_protocol::decoder::Shortcut;
use moneta_store::request::Retrieve;
use moneta_store::{Key, OwnedKeys};

use super::parked::REQUEST_BYTES;
use super::read::{Asked, GROUP};
use super::several::Several;
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::{Session, Worker};

impl Session {
    /// Reads keys together, if the store does that and no parked request stands before one of them.
    pub(super) fn read_together(
        &mut self,
        worker: &Worker,
        keys: &[Key<'_>],
        asked: Asked<'_>,
        pipelined: bool,
    ) -> bool {
        if keys.len() < 2 || keys.iter().any(|key| self.must_not_overtake(key.bytes, false)) {
            return false;
        }
        let together = worker.store.together();
        let reads = together.and_then(|store| store.read_several(&worker.cx, keys, asked.request));
        let Some(reads) = reads else { return false };
        let waiting = Several {
            verb: asked.verb,
            request: *asked.request,
            keys: OwnedKeys::of(keys),
            next: 0,
            reads,
            pipelined,
            written: Vec::new(),
            failure: None,
        };
        let others = (keys.len() - 1) * (REQUEST_BYTES + worker.counters.ledger.expected_read());
        self.park(worker, Waiting::Several(waiting), Ticket::new(&[], asked.style), others);
        true
    }

    /// For a store that reads together. Reads the keys of pipelined `get`s at the front of `input`, up to `most`; how many these
    /// are, and their bytes.
    #[inline(never)]
    pub(super) fn read_pipelined(&mut self, worker: &Worker, input: &[u8], most: u32) -> Option<(u32, usize)> {
        let seed = worker.store.seed();
        let mut keys = [Key { bytes: &[], hash: 0 }; GROUP];
        let (mut count, mut length) = (0, 0);
        while count < GROUP.min(most as usize)
            && let Some(Shortcut::Get { key, consumed }) = self.decoder.shortcut(&input[length..])
        {
            keys[count] = Key::new(key, seed);
            count += 1;
            length += consumed;
        }
        let style = Style::Text(TextStyle::default());
        let asked = Asked { key: &[], request: &Retrieve::BRIEF, verb: ReadVerb::Get, style: &style };
        self.read_together(worker, &keys[..count], asked, true).then_some((count as u32, length))
    }
}
