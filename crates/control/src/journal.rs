//! What readers of an environment's feed are told: the last value of each item, in the order of revisions.
//!
//! ```text
//!  place (revision, number)   3.0   5.0        9.0   9.1
//!                             put   put   ...  put   delete   <── a reader that has been told up to here waits
//! ```
//! An item that is put again moves to the end, so what was overwritten is not told, and a reader that is slow costs one place. A
//! line is encoded when it is put. Items of an app are in a list of its own, so its readers neither look at others' nor are woken for
//! them; items of no app are for all. A delete stays until [`DELETES_MAX`] came after it; readers from before begin anew.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch;

/// Deletes that are kept.
const DELETES_MAX: usize = 10_000;
/// Lines above this are handed over as they are, not copied.
const SHARED_FROM: usize = 8 << 10;

/// A kind of item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Records of instances.
    Instances,
    /// Topologies.
    Topologies,
    /// Properties.
    Properties,
    /// Instances that are away.
    Away,
    /// Jobs, in short.
    Jobs,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Instances, Self::Topologies, Self::Properties, Self::Away, Self::Jobs];

    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Instances => "instances",
            Self::Topologies => "topologies",
            Self::Properties => "properties",
            Self::Away => "away",
            Self::Jobs => "jobs",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What a reader wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The kinds.
    pub kinds: Vec<Kind>,
    /// One app alone, and what is of none.
    pub app: Option<Arc<str>>,
}

/// Where a line stands: revision and number within it.
pub type Place = (u64, u32);

#[derive(Clone, Debug)]
struct Line {
    kind: Kind,
    text: Bytes,
}

#[derive(Debug)]
struct List {
    lines: BTreeMap<Place, Line>,
    /// Wakes readers; its value says nothing.
    wake: watch::Sender<()>,
}

impl Default for List {
    fn default() -> Self {
        Self { lines: BTreeMap::new(), wake: watch::Sender::new(()) }
    }
}

/// The lines of an environment.
#[derive(Debug, Default)]
pub struct Journal {
    /// Where the last line of an item is.
    places: HashMap<(Kind, String), Place>,
    /// All lines, for those who want all apps.
    all: List,
    /// Those of no app.
    shared: BTreeMap<Place, Line>,
    of_apps: HashMap<Arc<str>, List>,
    /// Deletes in their order, each with its item and app.
    deletes: VecDeque<(Place, Kind, String, Option<Arc<str>>)>,
    /// Deletes up to here may be missing.
    forgotten: u64,
    last: Place,
}

impl Journal {
    /// One that knows no delete up to a revision.
    pub fn new(forgotten: u64) -> Self {
        Self { forgotten, ..Self::default() }
    }

    /// Tells a value: JSON on one line.
    pub fn put(&mut self, revision: u64, kind: Kind, key: &str, app: Option<&Arc<str>>, value: &str) {
        let key_text = serde_json::Value::from(key);
        let kind_name = kind.name();
        let text = format!(
            "{{\"put\":{{\"kind\":\"{kind_name}\",\"key\":{key_text},\"revision\":{revision},\"value\":{value}}}}}\n"
        );
        self.tell(revision, kind, key, app, text.into());
    }

    /// Tells that an item is gone; one that was not there is not told of.
    pub fn delete(&mut self, revision: u64, kind: Kind, key: &str, app: Option<&Arc<str>>) {
        if !self.places.contains_key(&(kind, key.to_owned())) {
            return;
        }
        let key_text = serde_json::Value::from(key);
        let kind_name = kind.name();
        let text = format!("{{\"delete\":{{\"kind\":\"{kind_name}\",\"key\":{key_text},\"revision\":{revision}}}}}\n");
        let place = self.tell(revision, kind, key, app, text.into());
        self.deletes.push_back((place, kind, key.to_owned(), app.cloned()));
        while self.deletes.len() > DELETES_MAX {
            self.forget_delete();
        }
    }

    fn forget_delete(&mut self) {
        let Some((place, kind, key, app)) = self.deletes.pop_front() else { return };
        let item = (kind, key);
        // It may have been put again since.
        if self.places.get(&item) == Some(&place) {
            self.places.remove(&item);
            self.remove(place, app.as_ref());
            self.forgotten = self.forgotten.max(place.0);
        }
    }

    fn tell(&mut self, revision: u64, kind: Kind, key: &str, app: Option<&Arc<str>>, text: Bytes) -> Place {
        let place = if revision == self.last.0 { (revision, self.last.1 + 1) } else { (revision, 0) };
        self.last = place;
        if let Some(before) = self.places.insert((kind, key.to_owned()), place) {
            self.remove(before, app);
        }
        let line = Line { kind, text };
        self.all.lines.insert(place, line.clone());
        self.all.wake.send_replace(());
        match app {
            Some(app) => {
                let list = self.of_apps.entry(Arc::clone(app)).or_default();
                list.lines.insert(place, line);
                list.wake.send_replace(());
            }
            None => {
                self.shared.insert(place, line);
                self.of_apps.values().for_each(|list| list.wake.send_replace(()));
            }
        }
        place
    }

    fn remove(&mut self, place: Place, app: Option<&Arc<str>>) {
        self.all.lines.remove(&place);
        match app {
            Some(app) => {
                if let Some(list) = self.of_apps.get_mut(app) {
                    list.lines.remove(&place);
                    if list.lines.is_empty() && list.wake.is_closed() {
                        self.of_apps.remove(app);
                    }
                }
            }
            None => drop(self.shared.remove(&place)),
        }
    }

    /// What wakes a reader.
    pub fn listen(&mut self, app: Option<&Arc<str>>) -> watch::Receiver<()> {
        match app {
            None => self.all.wake.subscribe(),
            Some(app) => {
                // Lists of apps without readers and without items.
                if self.of_apps.len() > 64 && !self.of_apps.contains_key(app) {
                    self.of_apps.retain(|_, list| !(list.lines.is_empty() && list.wake.is_closed()));
                }
                self.of_apps.entry(Arc::clone(app)).or_default().wake.subscribe()
            }
        }
    }

    /// Whether what happened after a revision is all here.
    pub fn reaches(&self, revision: u64) -> bool {
        revision >= self.forgotten
    }

    /// Lines after a place, up to about so many bytes, into `out`; `place` moves with them. True: there is no more.
    pub fn read(&self, wanted: &Wanted, place: &mut Place, most: usize, out: &mut Vec<Bytes>) -> bool {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = (Excluded(*place), Unbounded);
        let nothing = BTreeMap::new();
        let (own, shared) = match &wanted.app {
            None => (&self.all.lines, &nothing),
            Some(app) => (self.of_apps.get(app).map_or(&nothing, |list| &list.lines), &self.shared),
        };
        let (mut own, mut shared) = (own.range(from).peekable(), shared.range(from).peekable());
        let (mut copied, mut size) = (BytesMut::new(), 0);
        let is_end = loop {
            let next = match (own.peek(), shared.peek()) {
                (Some((one, _)), Some((other, _))) if other < one => shared.next(),
                (None, Some(_)) => shared.next(),
                _ => own.next(),
            };
            let Some((at, line)) = next else { break true };
            if wanted.kinds.contains(&line.kind) {
                if size > 0 && size + line.text.len() > most {
                    break false;
                }
                size += line.text.len();
                if line.text.len() >= SHARED_FROM {
                    out.extend([copied.split().freeze(), line.text.clone()]);
                } else {
                    copied.extend_from_slice(&line.text);
                }
            }
            *place = *at;
        };
        out.push(copied.freeze());
        out.retain(|bytes| !bytes.is_empty());
        is_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(name: &str) -> Option<Arc<str>> {
        Some(name.into())
    }

    fn told(journal: &Journal, wanted: &Wanted, place: &mut Place) -> String {
        let mut out = Vec::new();
        while !journal.read(wanted, place, 100, &mut out) {}
        String::from_utf8(out.concat()).unwrap()
    }

    fn keys(text: &str) -> Vec<String> {
        let key = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let (verb, of) = line.as_object().unwrap().iter().next().unwrap();
            format!("{verb} {}", of["key"].as_str().unwrap())
        };
        text.lines().map(key).collect()
    }

    const ALL: fn(Option<Arc<str>>) -> Wanted = |app| Wanted { kinds: Kind::ALL.to_vec(), app };

    #[test]
    fn of_values_overwritten_meanwhile_only_the_last_is_told() {
        let mut journal = Journal::new(0);
        let one = app("one");
        for revision in 1..=50 {
            journal.put(revision, Kind::Topologies, "one", one.as_ref(), &revision.to_string());
        }
        let mut place = (0, 0);
        let text = told(&journal, &ALL(None), &mut place);
        assert_eq!(text, "{\"put\":{\"kind\":\"topologies\",\"key\":\"one\",\"revision\":50,\"value\":50}}\n");
        assert_eq!((place, told(&journal, &ALL(None), &mut place)), ((50, 0), String::new()));
        journal.delete(51, Kind::Topologies, "one", one.as_ref());
        journal.delete(51, Kind::Topologies, "other", one.as_ref());
        assert_eq!(keys(&told(&journal, &ALL(None), &mut place)), ["delete one"]);
    }

    #[test]
    fn readers_of_an_app_are_told_and_woken_for_its_own_and_what_is_everybody_s() {
        let mut journal = Journal::new(0);
        let mut of_one = journal.listen(app("one").as_ref());
        journal.put(1, Kind::Instances, "one/i", app("one").as_ref(), "1");
        assert!(of_one.has_changed().unwrap());
        of_one.mark_unchanged();
        journal.put(2, Kind::Instances, "two/i", app("two").as_ref(), "1");
        assert!(!of_one.has_changed().unwrap(), "another app's is none of its business");
        journal.put(2, Kind::Properties, "global/x", None, "1");
        assert!(of_one.has_changed().unwrap());
        journal.put(3, Kind::Topologies, "one", app("one").as_ref(), "1");
        let of = |wanted: &Wanted| keys(&told(&journal, wanted, &mut (0, 0)));
        assert_eq!(of(&ALL(app("one"))), ["put one/i", "put global/x", "put one"]);
        assert_eq!(of(&ALL(app("none"))), ["put global/x"]);
        assert_eq!(of(&ALL(None)).len(), 4);
        let topologies = Wanted { kinds: vec![Kind::Topologies], app: None };
        assert_eq!(of(&topologies), ["put one"]);
    }

    #[test]
    fn deletes_are_bounded_and_readers_from_before_begin_anew() {
        let mut journal = Journal::new(5);
        assert!(!journal.reaches(4) && journal.reaches(5));
        let count = DELETES_MAX as u64 + 10;
        for number in 0..count {
            let key = format!("a/{number}");
            journal.put(10 + 2 * number, Kind::Instances, &key, app("a").as_ref(), "1");
            journal.delete(11 + 2 * number, Kind::Instances, &key, app("a").as_ref());
        }
        assert_eq!(journal.all.lines.len(), DELETES_MAX);
        assert_eq!(journal.places.len(), DELETES_MAX);
        assert!(!journal.reaches(28) && journal.reaches(29));
        // What was put again after its delete stays.
        let mut journal = Journal::new(0);
        journal.put(1, Kind::Instances, "a/x", app("a").as_ref(), "1");
        for revision in 1..=DELETES_MAX as u64 + 5 {
            journal.delete(2 * revision, Kind::Instances, "a/x", app("a").as_ref());
            journal.put(2 * revision + 1, Kind::Instances, "a/x", app("a").as_ref(), "2");
        }
        assert_eq!(keys(&told(&journal, &ALL(None), &mut (0, 0))), ["put a/x"]);
        assert!(journal.reaches(0));
    }

    #[test]
    fn lists_of_apps_that_were_asked_for_once_do_not_add_up() {
        let mut journal = Journal::new(0);
        for number in 0..10_000 {
            drop(journal.listen(app(&format!("x{number}")).as_ref()));
        }
        assert!(journal.of_apps.len() < 100);
    }

    #[test]
    fn a_long_line_is_handed_over_and_not_copied() {
        let mut journal = Journal::new(0);
        let long = format!("\"{}\"", "x".repeat(SHARED_FROM));
        journal.put(1, Kind::Topologies, "a", app("a").as_ref(), "1");
        journal.put(2, Kind::Topologies, "b", app("b").as_ref(), &long);
        let read = || {
            let mut out = Vec::new();
            assert!(journal.read(&ALL(None), &mut (0, 0), 1 << 20, &mut out));
            out
        };
        let (one, other) = (read(), read());
        assert_eq!((one.len(), one[1].as_ptr()), (2, other[1].as_ptr()));
    }
}
