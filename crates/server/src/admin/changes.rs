//! The feed over HTTP: `GET /changes` tells what changed from a place on, one JSON object a line.
//!
//! A reader asks again with the cursor of the last line; with `wait` the answer comes as soon as there is a change. Numbers of
//! 64 bits are strings, since not all readers of JSON have integers above 2^53.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use moneta_admin::answer;
use moneta_admin::ask::{Unanswered, ask};
use moneta_feed::{Codec, Compressor, LogSource, Mark, NAME_MAX, horizon, json};
use moneta_store::feed::{Buckets, FeedPlace, Wanted};
use moneta_store::{ErrorKind, Origin, Store, StoreError};
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::Shown;
use crate::feed::{Answer, Answers};
use crate::node::Node;

/// The header that names the node's listeners: on any of them the feed is read quicker.
const LISTENERS: &str = "moneta-listeners";
/// Longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(20);
/// How often a reader that waits looks for a change.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Time limit of an answer, without the wait.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);
/// How long an answer may wait until others are read.
const ROOM_WITHIN: Duration = Duration::from_secs(5);
/// Most changes of an answer.
const CHANGES_MAX: usize = 10_000;
/// An answer ends after the change that makes it longer than this, bytes.
const ANSWER_BYTES: usize = 4 << 20;
/// Changes that are read from the feed at once.
const READ_AT_ONCE: usize = 256;

/// What a reader asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Where to begin, as the last line of an answer said.
    cursor: Option<String>,
    /// Where to begin instead: at what changed since, in milliseconds since the Unix epoch. Without either: now.
    since: Option<u64>,
    /// How long to wait for a change, milliseconds.
    #[serde(default)]
    wait: u64,
    /// Most changes of the answer.
    #[serde(default = "changes_default")]
    limit: usize,
    /// Whether to tell values: 0 or 1.
    #[serde(default)]
    values: u8,
    /// Only of keys that begin so.
    #[serde(default)]
    prefix: String,
    /// Only what was written in this region.
    region: Option<u8>,
    /// Only of keys in this range of buckets of a ring of slots.
    slots: Option<String>,
    /// The reader's name, under which it is listed.
    name: Option<String>,
}

fn changes_default() -> usize {
    1000
}

impl Asked {
    /// What is out of range, in words: a filter that nothing passes would look like a node on which nothing changes.
    fn refusal(&self) -> Option<String> {
        let regions = Origin::REGIONS;
        match self {
            Self { region: Some(region), .. } if *region >= regions => {
                Some(format!("region: {region} is none of 0 to {}", regions - 1))
            }
            Self { name: Some(name), .. } if !(1..=NAME_MAX).contains(&name.len()) => {
                Some(format!("name: a name has 1 to {NAME_MAX} bytes"))
            }
            Self { values, .. } if *values > 1 => Some("values: 0 or 1".to_owned()),
            _ => None,
        }
    }
}

/// The changes from a place on.
pub(super) async fn changes(
    State(shown): State<Arc<Shown>>,
    headers: HeaderMap,
    asked: Result<Query<Asked>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    let buckets = match asked.slots.as_deref().map(str::parse::<Buckets>).transpose() {
        Ok(buckets) => buckets,
        Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
    };
    if let Some(wrong) = asked.refusal() {
        return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response();
    }
    let observed = Arc::clone(&shown.observed);
    let store = Arc::clone(observed.store());
    let Some(feed) = store.parts().feed else {
        return (StatusCode::NOT_FOUND, "this node has no feed: start it with --cluster\n").into_response();
    };
    if !observed.may_be_copied() {
        return (StatusCode::FORBIDDEN, "keys are secrets here (--disable-dumping)\n").into_response();
    }
    let from = match (&asked.cursor, asked.since) {
        (Some(cursor), _) => match cursor.parse::<FeedPlace>() {
            Ok(place) => place,
            Err(wrong) => return (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response(),
        },
        (None, Some(since)) => feed.since(since),
        (None, None) => feed.end(),
    };
    let Ok(codec) = accepted(&headers) else {
        let refused = "an answer comes as it is, or compressed by zstd\n";
        return (StatusCode::NOT_ACCEPTABLE, refused).into_response();
    };
    // Whether a change comes or not, the answer tells where to read on.
    let until = Instant::now() + Duration::from_millis(asked.wait).min(WAIT_MAX);
    while Instant::now() < until && !feed.has_more(from) {
        sleep(LOOK_EVERY).await;
    }
    let until = Instant::now() + ROOM_WITHIN;
    while !observed.node.readers.answers.has_room(&observed.node.client_memory) {
        if Instant::now() >= until {
            return (StatusCode::SERVICE_UNAVAILABLE, "other answers are not read yet: ask again\n").into_response();
        }
        sleep(LOOK_EVERY).await;
    }
    observed.node.clock.refresh();
    let (told, node) = (Arc::clone(&store), Arc::clone(&observed.node));
    let answer = move || {
        let (answer, lines) = answer(&told, &node, from, &asked, buckets)?;
        let lines = match codec {
            None => lines,
            Some(codec) => {
                Compressor::begin(codec).and_then(|mut stream| stream.add(&lines, true)).map_err(|error| {
                    StoreError::new(ErrorKind::OutOfMemory, format!("the answer cannot be compressed: {error}"))
                })?
            }
        };
        Ok::<_, StoreError>((lines.len(), answer.into_body(lines)))
    };
    match ask(&shown.feed, ANSWER_WITHIN, answer).await {
        Ok(Ok((length, body))) => {
            let told = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::VARY, "accept-encoding")];
            let encoding = codec.map(|Codec::Zstd| [(header::CONTENT_ENCODING, "zstd")]);
            let listeners: Vec<String> = observed.addresses.iter().map(ToString::to_string).collect();
            // A socket's path may be what no header takes.
            let listeners = HeaderValue::from_str(&listeners.join(", ")).ok().map(|named| [(LISTENERS, named)]);
            // One that is cut short is noticed by its length.
            (told, listeners, [(header::CONTENT_LENGTH, length)], encoding, body).into_response()
        }
        Ok(Err(error)) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
        Err(Unanswered) => (StatusCode::SERVICE_UNAVAILABLE, "the store does not answer\n").into_response(),
    }
}

/// The asker takes neither what comes as it is nor anything that this node compresses by.
struct NotAcceptable;

/// How an answer is to be compressed, if it is: only for an asker that names zstd.
fn accepted(headers: &HeaderMap) -> Result<Option<Codec>, NotAcceptable> {
    let (mut codec, mut refuses_plain) = (None, false);
    let values = headers.get_all(header::ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    for coding in values.flat_map(|value| value.split(',')) {
        let mut words = coding.split(';').map(str::trim);
        let name = words.next().unwrap_or_default().to_ascii_lowercase();
        let weight = words.find_map(|word| word.strip_prefix("q=")).and_then(|weight| weight.parse::<f32>().ok());
        let is_refused = weight == Some(0.0);
        match Codec::named(name.as_bytes()) {
            Some(named) => codec = Some(named).filter(|_| !is_refused),
            None => refuses_plain |= is_refused && name == "identity",
        }
    }
    if codec.is_none() && refuses_plain { Err(NotAcceptable) } else { Ok(codec) }
}

/// The lines of an answer, and its part of the account.
fn answer(
    store: &Arc<dyn Store>,
    node: &Arc<Node>,
    from: FeedPlace,
    asked: &Asked,
    buckets: Option<Buckets>,
) -> Result<(Answer, Vec<u8>), StoreError> {
    let prefix = asked.prefix.as_bytes().to_vec();
    let wanted = Wanted { values: asked.values != 0, prefix, region: asked.region, buckets, current: false };
    let mut log = LogSource::new(store, from, wanted).expect("it had a feed");
    let mut account = Answers::begin(Arc::<Node>::clone(node));
    let mut lines = Vec::new();
    let mut left = asked.limit.min(CHANGES_MAX);
    'reading: loop {
        let most = left.min(READ_AT_ONCE);
        let count = log.read(most, ANSWER_BYTES.saturating_sub(lines.len()))?;
        while let Some(change) = log.next_change()? {
            node.readers.count(&change);
            json::write(&change, &mut lines);
            if lines.len() > ANSWER_BYTES || !account.holds(lines.capacity() + log.held()) {
                break 'reading;
            }
        }
        // That a node was killed is told beside the changes.
        left = left.saturating_sub(count);
        // Fewer than there was room for, and not the end: the reader has passed over as much as it does at once. Little of it was
        // wanted, and to go on until the answer is full might take longer than it may.
        if log.is_end() || left == 0 || lines.len() >= ANSWER_BYTES || count < most {
            break;
        }
    }
    let (place, watermark) = (log.place(), log.watermark());
    let mark =
        Mark { cursor: place.to_string(), watermark, horizon: horizon(store), behind: None, more: !log.is_end() };
    json::write_mark(&mark, &mut lines);
    if let Some(name) = asked.name.as_deref() {
        node.readers.note(name, place, watermark, lines.len() as u64, false, node.clock.millis());
    }
    Ok((account, lines))
}

/// The readers that have a name: `GET /feed/readers`.
pub(super) async fn readers(State(shown): State<Arc<Shown>>) -> Response {
    let node = &shown.observed.node;
    node.clock.refresh();
    answer::json(StatusCode::OK, &serde_json::json!(node.readers.list(node.clock.millis())))
}
