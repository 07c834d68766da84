//! What a feed has told, and by which rules that is believed.
//!
//! A feed begins with `begin`, all items, and `at`; from then on each change is a `put` or a `delete`, and `at` says every few
//! seconds that all is told. What is not told between `begin` and the next `at` is gone. So a feed that breaks off on its way to
//! the first `at` changes nothing: a list that is not whole is never taken for one.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Most items of a feed.
const ITEMS_MAX: usize = 200_000;
/// Most bytes of the lines that told them, together.
const BYTES_MAX: usize = 128 << 20;
/// Longest cursor, in bytes.
const CURSOR_MAX: usize = 200;

/// One thing that the control plane knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Grows with each change.
    pub revision: u64,
    /// What it is.
    pub value: Value,
    /// Bytes of the line that told it.
    bytes: usize,
}

/// Everything that a feed has told, by kind and key.
#[derive(Clone, Debug, Default)]
pub struct Items {
    all: BTreeMap<(String, String), Item>,
    bytes: usize,
}

impl Items {
    /// One of them.
    pub fn get(&self, kind: &str, key: &str) -> Option<&Item> {
        self.all.get(&(kind.to_owned(), key.to_owned()))
    }

    /// All of a kind, by key.
    pub fn of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Item)> {
        let from = (kind.to_owned(), String::new());
        let of_kind = self.all.range(from..).take_while(move |((of, _), _)| of == kind);
        of_kind.map(|((_, key), item)| (key.as_str(), item))
    }

    fn put(&mut self, key: (String, String), item: Item) -> Result<(), FeedError> {
        self.bytes += item.bytes;
        if let Some(before) = self.all.insert(key, item) {
            self.bytes -= before.bytes;
        }
        if self.all.len() > ITEMS_MAX || self.bytes > BYTES_MAX { Err(FeedError::TooLarge) } else { Ok(()) }
    }

    fn delete(&mut self, key: &(String, String)) {
        if let Some(before) = self.all.remove(key) {
            self.bytes -= before.bytes;
        }
    }
}

/// A line of a feed. What a later version may add is passed over.
#[derive(Deserialize)]
struct Line {
    begin: Option<String>,
    put: Option<Put>,
    delete: Option<Delete>,
    at: Option<String>,
}

#[derive(Deserialize)]
struct Put {
    kind: String,
    key: String,
    revision: u64,
    value: Value,
}

#[derive(Deserialize)]
struct Delete {
    kind: String,
    key: String,
    revision: u64,
}

/// Why a feed is not followed any further.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum FeedError {
    #[error("a line is not understood: {0}")]
    Line(#[from] serde_json::Error),
    #[error("it tells of changes before it has told all")]
    Order,
    #[error("it tells more than {ITEMS_MAX} items or {} MiB", BYTES_MAX >> 20)]
    TooLarge,
    #[error("its cursor has more than {CURSOR_MAX} bytes")]
    Cursor,
}

/// What a line has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brought {
    /// Nothing that can be acted on yet.
    Nothing,
    /// Something has changed.
    Change,
    /// All is told up to now.
    InStep,
}

/// What a feed has told so far.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Everything, as of the last `at` and the changes since.
    items: Arc<Items>,
    /// What was told since `begin`, until the next `at`.
    anew: Option<Items>,
    /// Where to go on: that of the last `at`.
    cursor: Option<String>,
}

impl Told {
    /// Where a new connection goes on; `None`: from the beginning.
    pub(crate) fn cursor(&self) -> Option<&str> {
        self.cursor.as_deref()
    }

    /// The revision up to which all was told; 0: none.
    pub(crate) fn revision(&self) -> u64 {
        let revision = self.cursor.as_deref().and_then(|cursor| cursor.rsplit_once(':')?.1.parse().ok());
        revision.unwrap_or(0)
    }

    /// Everything.
    pub(crate) fn items(&self) -> Arc<Items> {
        Arc::clone(&self.items)
    }

    /// A new connection begins.
    pub(crate) fn connect(&mut self) {
        self.anew = None;
    }

    /// The next one begins from the beginning.
    pub(crate) fn forget_cursor(&mut self) {
        self.cursor = None;
    }

    /// Takes a line.
    pub(crate) fn take(&mut self, line: &[u8]) -> Result<Brought, FeedError> {
        let parsed: Line = serde_json::from_slice(line)?;
        if parsed.begin.is_some() {
            self.anew = Some(Items::default());
            return Ok(Brought::Nothing);
        }
        if let Some(Put { kind, key, revision, value }) = parsed.put {
            let (key, item) = ((kind, key), Item { revision, value, bytes: line.len() });
            if let Some(anew) = &mut self.anew {
                return anew.put(key, item).map(|()| Brought::Nothing);
            }
            self.is_begun()?;
            // After another connection a change may be told again.
            if self.items.all.get(&key).is_some_and(|before| before.revision >= revision) {
                return Ok(Brought::Nothing);
            }
            return Arc::make_mut(&mut self.items).put(key, item).map(|()| Brought::Change);
        }
        if let Some(Delete { kind, key, revision }) = parsed.delete {
            let key = (kind, key);
            if let Some(anew) = &mut self.anew {
                anew.delete(&key);
                return Ok(Brought::Nothing);
            }
            self.is_begun()?;
            if self.items.all.get(&key).is_none_or(|before| before.revision > revision) {
                return Ok(Brought::Nothing);
            }
            Arc::make_mut(&mut self.items).delete(&key);
            return Ok(Brought::Change);
        }
        let Some(cursor) = parsed.at else { return Ok(Brought::Nothing) };
        if cursor.len() > CURSOR_MAX {
            return Err(FeedError::Cursor);
        }
        match self.anew.take() {
            Some(anew) => self.items = Arc::new(anew),
            None => self.is_begun()?,
        }
        self.cursor = Some(cursor);
        Ok(Brought::InStep)
    }

    fn is_begun(&self) -> Result<(), FeedError> {
        if self.cursor.is_some() { Ok(()) } else { Err(FeedError::Order) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// These items, each of revision 1.
    pub(crate) fn items(all: &[(&str, &str, Value)]) -> Items {
        let mut items = Items::default();
        for (kind, key, value) in all {
            let item = Item { revision: 1, value: value.clone(), bytes: 1 };
            items.put(((*kind).to_owned(), (*key).to_owned()), item).unwrap();
        }
        items
    }

    fn take(told: &mut Told, lines: &[&str]) -> Vec<Brought> {
        lines.iter().map(|line| told.take(line.as_bytes()).unwrap()).collect()
    }

    fn put(key: &str, revision: u64) -> String {
        format!(r#"{{"put":{{"kind":"topologies","key":"{key}","revision":{revision},"value":{revision}}}}}"#)
    }

    fn keys(told: &Told) -> Vec<String> {
        told.items().of("topologies").map(|(key, item)| format!("{key}{}", item.revision)).collect()
    }

    #[test]
    fn what_is_not_told_between_begin_and_at_is_gone_and_nothing_before() {
        let mut told = Told::default();
        let brought = take(&mut told, &[r#"{"begin":"x:9"}"#, &put("a", 1), &put("b", 2)]);
        assert_eq!((brought, keys(&told).len(), told.cursor()), (vec![Brought::Nothing; 3], 0, None));
        assert_eq!(take(&mut told, &[r#"{"at":"x:9"}"#]), [Brought::InStep]);
        assert_eq!(keys(&told), ["a1", "b2"]);
        // It breaks off on its way: what was known stays.
        take(&mut told, &[r#"{"begin":"x:12"}"#, &put("c", 3)]);
        told.connect();
        assert_eq!((keys(&told), told.cursor()), (vec!["a1".to_owned(), "b2".to_owned()], Some("x:9")));
        take(&mut told, &[r#"{"begin":"y:1"}"#, &put("c", 1), r#"{"at":"y:1"}"#]);
        assert_eq!((keys(&told), told.cursor()), (vec!["c1".to_owned()], Some("y:1")));
    }

    #[test]
    fn changes_count_once_and_by_their_revisions() {
        let mut told = Told::default();
        take(&mut told, &[r#"{"begin":"x:2"}"#, &put("a", 2), r#"{"at":"x:2"}"#]);
        told.connect();
        let delete = |revision| format!(r#"{{"delete":{{"kind":"topologies","key":"a","revision":{revision}}}}}"#);
        let lines = [put("a", 2), put("a", 3), delete(2), delete(4), delete(5), put("a", 6), r#"{"news":1}"#.into()];
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        use Brought::{Change, Nothing};
        assert_eq!(take(&mut told, &lines), [Nothing, Change, Nothing, Change, Nothing, Change, Nothing]);
        assert_eq!(keys(&told), ["a6"]);
    }

    #[test]
    fn what_makes_no_sense_is_not_followed() {
        for line in ["", "[]x", "null", r#"{"put":{}}"#, r#"{"at":7}"#] {
            assert!(matches!(Told::default().take(line.as_bytes()), Err(FeedError::Line(_))), "{line}");
        }
        assert!(matches!(Told::default().take(put("a", 1).as_bytes()), Err(FeedError::Order)));
        assert!(matches!(Told::default().take(br#"{"at":"x:1"}"#), Err(FeedError::Order)));
        let long = format!(r#"{{"at":"{}"}}"#, "x".repeat(CURSOR_MAX + 1));
        assert!(matches!(Told::default().take(long.as_bytes()), Err(FeedError::Cursor)));
    }

    #[test]
    fn what_is_held_has_a_bound() {
        let mut items = Items::default();
        let item = |bytes| Item { revision: 1, value: Value::Null, bytes };
        let key = |key: &str| ("k".to_owned(), key.to_owned());
        items.put(key("a"), item(BYTES_MAX)).unwrap();
        items.put(key("a"), item(BYTES_MAX - 1)).unwrap();
        assert!(matches!(items.put(key("b"), item(2)), Err(FeedError::TooLarge)));
        items.delete(&key("b"));
        items.put(key("c"), item(1)).unwrap();
    }
}
