//! What nodes tell of what they hold: digests of all buckets, and the items of some. docs/repair.md has the form.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use moneta_feed::{Change, Line, text};
use moneta_net::{Endpoint, HttpClient, Timeouts};
use moneta_store::{Expiry, Version};
use serde_json::json;

use crate::side::{Side, SideNode};

/// Longest that a node may take to walk its items.
const WALK_WITHIN: Duration = Duration::from_secs(3600);
/// Bytes of an answer, at most: a node's list ends before 64 MiB.
const ANSWER_MAX: u64 = 80 << 20;
/// Longest key.
const KEY_MAX: usize = 250;

/// Which items count. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Span {
    /// What was made then or later.
    pub since: u64,
    /// And before then.
    pub until: u64,
    /// In how many buckets keys are: a power of two, at most 65,536.
    pub buckets: u32,
    /// Only keys that begin so.
    pub prefix: String,
}

/// What is in one bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bucket {
    /// Items.
    pub count: u64,
    /// XOR of their hashes.
    pub all: u64,
}

/// The buckets of a side that hold something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// By number.
    pub buckets: BTreeMap<u16, Bucket>,
    /// The newest flush that took effect on any of its nodes: what is older is gone there.
    pub floor: Version,
    /// Bytes of the answers.
    pub bytes: u64,
}

/// An item as a digest counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its version.
    pub version: Version,
    /// When it dies.
    pub expiry: Expiry,
}

/// Why a node tells no digest.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DigestError {
    /// It does not answer.
    #[error("{0} does not answer: {1}")]
    Away(String, String),
    /// It says no.
    #[error("{0}: {1}")]
    Refused(String, String),
    /// Its list is longer than a node tells at once.
    #[error("{0} has too many items in one bucket: more buckets are to be taken")]
    TooMany(String),
    /// It says something else.
    #[error("{0} does not tell a digest: {1}")]
    Malformed(String, &'static str),
}

/// The digest of all nodes of a side together.
///
/// # Errors
/// If one of them does not tell its own.
pub fn digest(side: &Side, span: &Span) -> Result<Digest, DigestError> {
    let mut all = Digest::default();
    for node in &side.nodes {
        let answer = ask(node, span, None)?;
        let (floor, rest) = head(node, &answer, span)?;
        all.floor = all.floor.max(floor);
        all.bytes += answer.len() as u64;
        let malformed = || DigestError::Malformed(node.name.clone(), "a line that is none of a digest");
        let text = std::str::from_utf8(rest).map_err(|_| malformed())?;
        let mut is_whole = false;
        for line in text.lines() {
            if line == "END" {
                is_whole = true;
                break;
            }
            let mut words = line.split(' ');
            let mut word = || words.next().ok_or_else(malformed);
            let number: u16 = word()?.parse().map_err(|_| malformed())?;
            let count: u64 = word()?.parse().map_err(|_| malformed())?;
            let hashes = u64::from_str_radix(word()?, 16).map_err(|_| malformed())?;
            let bucket = all.buckets.entry(number).or_default();
            bucket.count = bucket.count.saturating_add(count);
            bucket.all ^= hashes;
        }
        if !is_whole {
            return Err(DigestError::Malformed(node.name.clone(), "it is cut short"));
        }
    }
    Ok(all)
}

/// The items of some buckets of a side, each from the node that has the key, and the bytes of the answers.
///
/// # Errors
/// If one of its nodes does not list them.
pub fn list(side: &Side, span: &Span, only: &[u16]) -> Result<(HashMap<Bytes, Listed>, u64), DigestError> {
    let (mut items, mut bytes) = (HashMap::new(), 0);
    for (place, node) in side.nodes.iter().enumerate() {
        let answer = match ask(node, span, Some(only)) {
            // Half of them at a time.
            Err(DigestError::TooMany(_)) if only.len() > 1 => {
                let (one, other) = only.split_at(only.len() / 2);
                for half in [one, other] {
                    let (listed, told) = list(&Side { nodes: side.nodes.clone(), ..side.clone() }, span, half)?;
                    items.extend(listed);
                    bytes += told;
                }
                return Ok((items, bytes));
            }
            answer => answer?,
        };
        bytes += answer.len() as u64;
        let (_, rest) = head(node, &answer, span)?;
        let mut rest = answer.slice_ref(rest);
        loop {
            let malformed = |why| DigestError::Malformed(node.name.clone(), why);
            match text::read(&rest, 0).map_err(|_| malformed("a line that is none of a list"))? {
                text::Decoded::Line(Line::Change(Change::Set(set)), length) => {
                    // What a node still holds of another one's keys is not looked at.
                    if (side.node_of)(&set.key) == place && set.key.len() <= KEY_MAX {
                        let listed = Listed { version: set.meta.version(), expiry: set.meta.expiry };
                        items.insert(Bytes::copy_from_slice(&set.key), listed);
                    }
                    rest = rest.slice(length..);
                }
                text::Decoded::Line(Line::End, _) => break,
                text::Decoded::Partial { .. } => return Err(malformed("it is cut short")),
                _ => return Err(malformed("a line that is none of a list")),
            }
        }
    }
    Ok((items, bytes))
}

/// The first line: the node's floor, and what follows.
fn head<'a>(node: &SideNode, answer: &'a Bytes, span: &Span) -> Result<(Version, &'a [u8]), DigestError> {
    let malformed = |why| DigestError::Malformed(node.name.clone(), why);
    let end = answer.iter().position(|byte| *byte == b'\n').ok_or_else(|| malformed("it has no first line"))?;
    let line = std::str::from_utf8(&answer[..end]).map_err(|_| malformed("its first line is no text"))?;
    let mut words = line.trim_end().split(' ');
    let is_digest = words.next() == Some("DIGEST");
    let buckets = words.next().and_then(|word| word.parse::<u32>().ok());
    let floor = words.next().and_then(|word| word.parse().ok());
    match (is_digest && buckets == Some(span.buckets), floor) {
        (true, Some(floor)) => Ok((Version(floor), &answer[end + 1..])),
        _ => Err(malformed("its first line is none of a digest")),
    }
}

/// Where a node listens, as its digest names it.
///
/// # Errors
/// If it tells none.
pub fn listeners(name: &str, admin: &Endpoint) -> Result<String, DigestError> {
    let span = Span { since: 0, until: 0, buckets: 1, prefix: String::new() };
    let answer = ask_at(name, admin, &span, Some(&[0]))?;
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let word = line.trim_end().split(' ').nth(3).map(str::to_owned);
    word.ok_or_else(|| DigestError::Malformed(name.to_owned(), "it names no listener"))
}

fn ask(node: &SideNode, span: &Span, only: Option<&[u16]>) -> Result<Bytes, DigestError> {
    ask_at(&node.name, &node.admin, span, only)
}

fn ask_at(name: &str, admin: &Endpoint, span: &Span, only: Option<&[u16]>) -> Result<Bytes, DigestError> {
    let timeouts = Timeouts { total: Some(WALK_WITHIN), ..Timeouts::default() };
    let client = HttpClient::new(Endpoint { timeouts, ..admin.clone() });
    let mut body = json!({"since": span.since, "until": span.until, "buckets": span.buckets, "prefix": span.prefix});
    if let Some(only) = only {
        body["only"] = json!(only);
    }
    let away = |why: String| DigestError::Away(name.to_owned(), why);
    let answer = client.post("/digest", &body.to_string()).map_err(|error| away(error.to_string()))?;
    match answer.status() {
        200 => {}
        413 => return Err(DigestError::TooMany(name.to_owned())),
        503 => return Err(away("it is busy or ends".to_owned())),
        404 | 405 => {
            let why = "it tells no digest: an older build, or a store that lists no keys".to_owned();
            return Err(DigestError::Refused(name.to_owned(), why));
        }
        status => {
            let mut text = String::new();
            // A refusal is a line.
            let _ = answer.reader().take(500).read_to_string(&mut text);
            let text = text.trim().escape_debug();
            return Err(DigestError::Refused(name.to_owned(), format!("status {status}: {text}")));
        }
    }
    let mut all = Vec::new();
    answer.reader().take(ANSWER_MAX).read_to_end(&mut all).map_err(|error| away(error.to_string()))?;
    Ok(all.into())
}
