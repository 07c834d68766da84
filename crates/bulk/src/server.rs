//! What a server is: whether it knows versions, tells a feed, and has its items in a log.

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Protocol, Request, Verb};
use moneta_feed::{Begin, FeedPlace, Line, Mark, Next, NodeSource, Source, SourceError};
use moneta_net::Endpoint;

use crate::error::BulkError;

/// What of a node's statistics says that its items are in a log on SSD, and so in its feed from the begin.
const LOG: &str = "flash_region_bytes";

/// What a server is.
#[derive(Clone, Debug)]
pub struct Server {
    /// How it is reached.
    pub endpoint: Endpoint,
    /// It knows versions: a Moneta with `--cluster`.
    pub has_versions: bool,
    /// Where its feed was when this was asked; the error: why it tells none.
    pub feed: Result<Mark, String>,
    /// Its feed, read from the begin, tells all that it holds.
    pub has_log: bool,
    /// How many items it has.
    pub items: Option<u64>,
}

impl Server {
    /// Asks a server what it is.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn look(endpoint: &Endpoint) -> Result<Self, BulkError> {
        let failed = |source: DialogueError| BulkError::Server { server: endpoint.address.to_string(), source };
        let mut dialogue = Dialogue::open(endpoint, None, 0).map_err(failed)?;
        let dialect = dialogue.dialect();
        let asked = dialogue.call(&Request { verb: Verb::Statistics, key: &[], value: &[] });
        let statistics = match asked {
            Ok(Answer::Statistics(statistics)) => statistics,
            // It may have none for this user.
            Ok(_) | Err(DialogueError::Unsupported(_)) => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        let feed = match dialect.versions && dialect.protocol != Protocol::Binary {
            true => feed_end(endpoint).map_err(|error| error.to_string()),
            false => Err("only Moneta nodes with --cluster tell what changes".to_owned()),
        };
        let items = statistics.iter().find(|(name, _)| name == "curr_items").and_then(|(_, count)| count.parse().ok());
        Ok(Self {
            endpoint: endpoint.clone(),
            has_versions: dialect.versions,
            has_log: feed.is_ok() && statistics.iter().any(|(name, _)| name == LOG),
            feed,
            items,
        })
    }

    /// Its address.
    pub fn name(&self) -> String {
        self.endpoint.address.to_string()
    }

    /// Where its feed was.
    ///
    /// # Errors
    /// [`BulkError::Unfit`] if it tells none.
    pub fn cursor(&self) -> Result<FeedPlace, BulkError> {
        let unfit = |reason: String| BulkError::Unfit { server: self.name(), reason };
        let mark = self.feed.as_ref().map_err(|why| unfit(format!("tells no feed that could be followed: {why}")))?;
        mark.cursor.parse().map_err(|wrong| unfit(format!("tells a cursor that is none: {wrong}")))
    }
}

/// Where a node's feed ends now.
fn feed_end(endpoint: &Endpoint) -> Result<Mark, SourceError> {
    let mut source = NodeSource::new(endpoint.clone(), moneta_feed::Request::default(), 0);
    source.begin(Begin::Now, 0)?;
    loop {
        match source.next()? {
            Next::Line(Line::Mark(mark)) => return Ok(mark),
            Next::Line(Line::End) => return Err(SourceError::Refused("it tells no cursor".to_owned())),
            Next::Line(_) | Next::Oversized { .. } => {}
            Next::Lacking(bytes) => source.wait(bytes)?,
        }
    }
}
