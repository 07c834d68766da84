//! Regions of two copies each, as their proxies write to them: at once where a copy is there, and as a hint, which may take long,
//! where it is not.

use std::sync::Arc;

use fastrand::Rng;
use moneta_feed::{Change, FeedPlace, LogSource, Wanted};
use moneta_layers::feed::Feed;
use moneta_memory::{Memory, MemoryConfig};
use moneta_relay::Mode;
use moneta_relay::apply::{Applying, Fate, begin};
use moneta_store::steps::finish;
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Component, Cx, ErrorKind, Item, ItemRef, Key, KeyHash, Origin, Store, Version};

use crate::{COPIES, KEYS, name};

fn store(region: usize, copy: usize, clock: &Arc<Clock>, salt: u64) -> Arc<dyn Store> {
    let versioning = Versioning {
        origin: Origin::new(region as u8, copy as u8),
        skew_max: 500,
        salt,
        cluster: true,
        tombstone_ttl: 3600,
        ..Versioning::default()
    };
    let config = MemoryConfig {
        limit: 16 << 20,
        item_max: 1 << 10,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(0),
        versioning,
    };
    let memory = Memory::new(&config, Arc::clone(clock)).expect("a possible configuration");
    Arc::new(Feed::new(memory, 1 << 20, Arc::clone(clock)))
}

/// A copy of a region: a node.
pub struct Copy {
    pub store: Arc<dyn Store>,
    /// Nobody reaches it. It keeps what it has.
    pub is_away: bool,
    /// The greatest version that it has had of each key, since it lost what it had.
    seen: [u64; KEYS],
}

impl Copy {
    pub fn held(&self, key: usize) -> Option<Item> {
        let name = name(key);
        let mut seen = None;
        let key = Key::new(&name, self.store.seed());
        let peek = self.store.peek(&key, &mut |item: &ItemRef<'_>| seen = Some(Item::copy(item)));
        match pollster::block_on(finish(peek)).expect("RAM answers") {
            moneta_store::Lookup::Found(item) => Some(item),
            _ => seen,
        }
    }

    pub fn end(&self) -> FeedPlace {
        self.store.parts().feed.expect("it has a feed").end()
    }

    /// What its feed tells since a place, with values.
    pub fn told_since(&self, place: FeedPlace) -> Vec<Change> {
        let wanted = Wanted { values: true, ..Wanted::default() };
        let mut log = LogSource::new(&self.store, place, wanted).expect("it has a feed");
        log.read(100, 1 << 20).expect("RAM answers");
        std::iter::from_fn(|| log.next_change().expect("RAM answers")).collect()
    }
}

/// A write that a copy did not get when the others did.
pub struct Hint {
    copy: usize,
    change: Change,
    /// When the others got it, by their clock.
    pub at: u64,
}

pub struct Region {
    pub copies: Vec<Copy>,
    pub clock: Arc<Clock>,
    pub hints: Vec<Hint>,
    /// It has lost what it had.
    pub has_lost: bool,
    number: usize,
}

/// What became of a change in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// All copies have it, or will by hints.
    Done,
    /// A copy began so lately that it is to be told again.
    Lacks,
    /// Its time has not come, or no copy is there: the same may succeed later.
    Later,
}

impl Region {
    pub fn new(number: usize, millis: u64, random: &mut Rng) -> Self {
        let clock = Arc::new(Clock::manual(0));
        clock.set_millis(millis);
        let mut region = Self { copies: Vec::new(), clock, hints: Vec::new(), has_lost: false, number };
        region.fill(random);
        region
    }

    fn fill(&mut self, random: &mut Rng) {
        let copy = |number: usize, random: &mut Rng| Copy {
            store: store(self.number, number, &self.clock, random.u64(..)),
            is_away: false,
            seen: [0; KEYS],
        };
        self.copies = (0..COPIES).map(|number| copy(number, random)).collect();
    }

    /// Loses all that it has, and what it remembers.
    pub fn lose(&mut self, random: &mut Rng) {
        self.hints.clear();
        self.has_lost = true;
        self.fill(random);
    }

    /// The copies that are there.
    pub fn there(&self) -> impl Iterator<Item = usize> {
        (0..self.copies.len()).filter(|copy| !self.copies[*copy].is_away)
    }

    /// Gives the other copies what one has taken since a place.
    pub fn spread(&mut self, home: usize, before: FeedPlace, random: &mut Rng) {
        let now = self.clock.millis();
        for mut change in self.copies[home].told_since(before) {
            if let Change::Set(set) = &mut change {
                set.as_of = Some(now);
            }
            for copy in (0..self.copies.len()).filter(|copy| *copy != home) {
                let is_late = self.copies[copy].is_away || random.u8(0..4) == 0;
                if is_late || self.put(copy, &change) == Applied::Later {
                    self.hints.push(Hint { copy, change: change.clone(), at: now });
                }
            }
        }
    }

    /// Brings a hint to its copy, if that is there.
    pub fn bring(&mut self, number: usize) {
        let hint = self.hints.swap_remove(number);
        if self.copies[hint.copy].is_away || self.put(hint.copy, &hint.change) != Applied::Done {
            self.hints.push(hint);
        }
    }

    /// When the others got the oldest write that a copy still lacks.
    pub fn lacks_since(&self, copy: usize) -> Option<u64> {
        self.hints.iter().filter(|hint| hint.copy == copy).map(|hint| hint.at).min()
    }

    /// Applies a change to all copies, as the cluster does for a relay.
    pub fn apply(&mut self, change: &Change) -> Applied {
        let there: Vec<usize> = self.there().collect();
        let mut fates: Vec<Applied> = there.iter().map(|copy| self.put(*copy, change)).collect();
        if there.is_empty() || fates.contains(&Applied::Later) {
            return Applied::Later;
        }
        let now = self.clock.millis();
        let away = (0..self.copies.len()).filter(|copy| self.copies[*copy].is_away);
        self.hints.extend(away.map(|copy| Hint { copy, change: change.clone(), at: now }).collect::<Vec<_>>());
        fates.retain(|fate| *fate == Applied::Lacks);
        fates.pop().unwrap_or(Applied::Done)
    }

    fn put(&mut self, copy: usize, change: &Change) -> Applied {
        let applying = Applying { mode: Mode::Full, flush: false, began: 0 };
        let step = begin(&self.copies[copy].store, &Cx::outside(), change, applying);
        match pollster::block_on(finish(step)) {
            Ok(Fate::Unsure) => Applied::Lacks,
            Ok(_) => Applied::Done,
            Err(error) if error.kind() == ErrorKind::ClockAhead => Applied::Later,
            Err(error) => panic!("{error}"),
        }
    }

    /// A version that fell: the copy, the key, and from what to what.
    pub fn fallen(&mut self) -> Option<(usize, usize, u64, u64)> {
        let mut fell = None;
        for (number, copy) in self.copies.iter_mut().enumerate() {
            for key in 0..KEYS {
                let Some(version) = copy.held(key).map(|item| item.meta.version().0) else { continue };
                if version < copy.seen[key] {
                    fell = Some((number, key, copy.seen[key], version));
                }
                copy.seen[key] = version.max(copy.seen[key]);
            }
        }
        fell
    }

    /// Under which version a copy has deleted a key.
    pub fn buried(&self, copy: usize, key: usize) -> Version {
        let (name, store) = (name(key), &self.copies[copy].store);
        let key = Key::new(&name, store.seed());
        Version(store.call(&Cx::outside(), &key, moneta_store::Op::BuriedAs, &mut moneta_store::Unseen).cas())
    }
}
