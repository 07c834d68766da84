//! Reads of several keys: those that begin on one node go there together, and what that does not answer goes on key by key.
//!
//! As long as each node asked first answers well, answers are shown in the order of the keys as they come, from where they lie.
//! From the first one on that has to go on to another node, what comes is copied, so that no read waits for one before it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use moneta_store::request::Retrieve;
use moneta_store::{
    Item, ItemRef, Key, Lookup, Outcome, OwnedKey, OwnedKeys, PendingReads, Reads, StoreError, Visit, steps,
};
use smallvec::SmallVec;

use crate::call::Call;
use crate::reads::{Ask, Looking};

/// Reads under way.
struct Several {
    call: Call,
    request: Retrieve,
    /// When they began, in milliseconds since the Unix epoch.
    began: u64,
    keys: OwnedKeys,
    /// One for each key.
    reads: Vec<ReadState>,
    /// The one whose end is told next.
    next: usize,
    /// What nodes were asked together.
    parts: SmallVec<[Part; 6]>,
    /// A read goes on by itself.
    is_apart: bool,
}

/// How far the read of a key is.
enum ReadState {
    /// Asked together with others, as one of this part.
    Together(usize),
    /// The same, of a node that is not as it should be, or lacks a write of the key.
    Doubted(Box<Looking>),
    /// Asked alone.
    Apart(Box<Looking>),
    Ended(Option<Box<Result<Lookup, StoreError>>>),
}

/// What a node was asked.
struct Part {
    node: usize,
    /// The reads, in the order in which they were asked.
    reads: SmallVec<[u32; 8]>,
    /// How many of them were answered.
    answered: usize,
    pending: PendingReads,
}

/// Shows an item, if the node that has it lacks no newer write of its key.
struct Judge<'a> {
    call: &'a Call,
    node: usize,
    key: Key<'a>,
    began: u64,
    out: &'a mut dyn Visit,
    /// What is not to be believed.
    outdated: Option<Item>,
}

impl Visit for Judge<'_> {
    #[inline]
    fn item(&mut self, item: &ItemRef<'_>) {
        if self.call.believes(self.node, &self.key, item.meta.version(), self.began) {
            self.out.item(item);
        } else {
            self.outdated = Some(Item::copy(item));
        }
    }
}

impl Call {
    /// Begins plain reads of several keys.
    pub(crate) fn look_several(&self, keys: &[Key<'_>], request: &Retrieve) -> PendingReads {
        let began = self.begin_reads(keys.len());
        let mut several = Several {
            call: self.clone(),
            request: *request,
            began,
            keys: OwnedKeys::of(keys),
            reads: Vec::with_capacity(keys.len()),
            next: 0,
            parts: SmallVec::new(),
            is_apart: false,
        };
        let mut groups: SmallVec<[(usize, SmallVec<[u32; 8]>); 6]> = SmallVec::new();
        for (read, key) in keys.iter().enumerate() {
            let node = match self.well_near_node(key, began) {
                Some(node) => {
                    several.reads.push(ReadState::Together(0));
                    node
                }
                None => {
                    let mut looking = Box::new(self.clone().prepare(OwnedKey::of(key), Ask::Read(*request), began));
                    let node = looking.next_node();
                    several.reads.push(ReadState::Doubted(looking));
                    let Some(node) = node else {
                        several.leave(read);
                        continue;
                    };
                    node
                }
            };
            match groups.iter_mut().find(|(other, _)| *other == node) {
                Some((_, reads)) => reads.push(read as u32),
                None => groups.push((node, SmallVec::from_slice(&[read as u32]))),
            }
        }
        for (node, reads) in groups {
            let asked: SmallVec<[Key<'_>; 16]> = reads.iter().map(|&read| keys[read as usize]).collect();
            match self.begin_several(node, &asked, request) {
                Some(pending) => several.add(Part { node, reads, answered: 0, pending }),
                None => reads.iter().for_each(|&read| several.ask_alone(read as usize, node)),
            }
        }
        Box::pin(several)
    }
}

impl Several {
    fn add(&mut self, part: Part) {
        for &read in &part.reads {
            if let ReadState::Together(of) = &mut self.reads[read as usize] {
                *of = self.parts.len();
            }
        }
        self.parts.push(part);
    }

    /// The read as one by itself, which has asked this node.
    fn alone(&self, read: usize, node: usize) -> Box<Looking> {
        let key = OwnedKey::of(&self.keys.key(read));
        let mut looking = self.call.clone().prepare(key, Ask::Read(self.request), self.began);
        looking.has_asked(node);
        Box::new(looking)
    }

    /// Asks a node for one key alone.
    fn ask_alone(&mut self, read: usize, node: usize) {
        if let ReadState::Together(_) = self.reads[read] {
            self.reads[read] = ReadState::Doubted(self.alone(read, node));
        }
        if let ReadState::Doubted(looking) = &mut self.reads[read] {
            looking.ask_alone(node);
        }
        self.leave(read);
    }

    /// The read goes on by itself.
    fn leave(&mut self, read: usize) {
        self.is_apart = true;
        self.reads[read] = match std::mem::replace(&mut self.reads[read], ReadState::Ended(None)) {
            ReadState::Doubted(looking) => ReadState::Apart(looking),
            other => other,
        };
    }

    /// Goes on with what a part has said of a read: how that ends, if this ends it.
    fn hear(
        &mut self,
        read: usize,
        node: usize,
        said: Result<Lookup, StoreError>,
    ) -> Option<Result<Lookup, StoreError>> {
        if let ReadState::Together(_) = self.reads[read] {
            let key = self.keys.key(read);
            let ends = match &said {
                Ok(Lookup::Found(item)) => self.call.believes(node, &key, item.meta.version(), self.began),
                Ok(Lookup::Miss { .. }) => self.call.believes_miss(node, &key),
                _ => false,
            };
            if ends {
                return Some(self.call.took(node, said));
            }
        }
        let mut looking = match std::mem::replace(&mut self.reads[read], ReadState::Ended(None)) {
            ReadState::Doubted(looking) => looking,
            _ => self.alone(read, node),
        };
        let ended = looking.hear(said).inspect(|ended| looking.count(ended));
        if ended.is_none() {
            self.reads[read] = ReadState::Doubted(looking);
            self.leave(read);
        }
        ended
    }

    /// Shows what the node of the next read has said. `None`: it has to go on.
    #[inline]
    fn show(
        &mut self,
        part: usize,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let Self { call, began, keys, next, parts, .. } = self;
        let (part, key) = (&mut parts[part], keys.key(*next));
        let mut judge = Judge { call, node: part.node, key, began: *began, out, outdated: None };
        let said = ready!(part.pending.as_mut().poll_next(context, &mut judge)).expect("an end for each key");
        part.answered += 1;
        let (node, outdated) = (part.node, judge.outdated);
        match (said, outdated) {
            (Ok(Lookup::Visited), None) => Poll::Ready(Some(call.took(node, Ok(Lookup::Visited)))),
            (_, Some(item)) => Poll::Ready(self.hear(self.next, node, Ok(Lookup::Found(item)))),
            (said, None) => Poll::Ready(self.hear(self.next, node, said)),
        }
    }

    /// Takes what nodes have said, and goes on with reads that go from node to node.
    fn drive(&mut self, context: &mut Context<'_>) {
        for part in 0..self.parts.len() {
            loop {
                let Part { node, reads, answered, pending } = &mut self.parts[part];
                let Some(&read) = reads.get(*answered) else { break };
                let Poll::Ready(said) = steps::poll_owned(pending, context) else { break };
                *answered += 1;
                let (read, node) = (read as usize, *node);
                if let Some(ended) = self.hear(read, node, said.expect("an end for each key")) {
                    self.reads[read] = ReadState::Ended(Some(Box::new(ended)));
                }
            }
        }
        for state in &mut self.reads[self.next..] {
            if let ReadState::Apart(looking) = state
                && let Poll::Ready(ended) = Pin::new(&mut **looking).poll(context)
            {
                *state = ReadState::Ended(Some(Box::new(ended.map(Outcome::lookup))));
            }
        }
    }
}

impl Reads for Several {
    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        out: &mut dyn Visit,
    ) -> Poll<Option<Result<Lookup, StoreError>>> {
        let this = &mut *self;
        let Some(state) = this.reads.get(this.next) else { return Poll::Ready(None) };
        if let ReadState::Together(part) = *state {
            match this.show(part, context, out) {
                Poll::Ready(Some(ended)) => {
                    this.next += 1;
                    return Poll::Ready(Some(ended));
                }
                Poll::Pending if !this.is_apart => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => {}
            }
        }
        this.drive(context);
        match &mut this.reads[this.next] {
            ReadState::Ended(ended) => {
                this.next += 1;
                Poll::Ready(ended.take().map(|ended| *ended))
            }
            _ => Poll::Pending,
        }
    }
}
