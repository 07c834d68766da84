//! What a server is: whether it knows versions, tells a feed, and has its items in a log; and whether it still has what it was given.

use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, Protocol, Request, Verb};
use moneta_feed::{Begin, FeedPlace, Line, Mark, Next, NodeSource, Source, SourceError};
use moneta_net::Endpoint;
use serde::{Deserialize, Serialize};

use crate::error::BulkError;

/// What of a node's statistics says that its items are in a log on SSD, and so in its feed from the begin.
const LOG: &str = "flash_region_bytes";
/// By how many seconds the begin of one process may differ, since clocks are corrected.
const CLOCK_STEP: u64 = 5;

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
    /// The region in which it makes versions; `None`: it does not tell.
    pub region: Option<u8>,
    /// What it holds belongs to this life; `None`: it does not tell.
    pub life: Option<Life>,
}

/// Which life of a server it is: with another one it has lost what it was given before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Life {
    /// That of its feed. One of a log on SSD outlives its process.
    Feed(u64),
    /// That of its process, which has its items in RAM alone.
    Process {
        /// Its number.
        pid: u64,
        /// When it began, in Unix seconds by the server's clock.
        since: u64,
    },
}

impl Life {
    /// Whether both are the same one.
    pub fn is(self, other: Self) -> bool {
        match (self, other) {
            (Self::Process { pid, since }, Self::Process { pid: other, since: then }) => {
                pid == other && since.abs_diff(then) <= CLOCK_STEP
            }
            _ => self == other,
        }
    }

    /// `statistics`: of a server without a feed.
    fn of_process(statistics: &[(String, String)]) -> Option<Self> {
        let number = |wanted: &str| {
            statistics.iter().find(|(name, _)| name == wanted).and_then(|(_, value)| value.parse::<u64>().ok())
        };
        // One without a table of items passes requests on, or has them elsewhere than in RAM.
        number("hash_bytes")?;
        Some(Self::Process { pid: number("pid")?, since: number("time")?.saturating_sub(number("uptime")?) })
    }
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
        let region = dialogue.server_region().map_err(failed)?.and_then(|region| u8::try_from(region).ok());
        let has_log = statistics.iter().any(|(name, _)| name == LOG);
        let life = match &feed {
            Ok(mark) => mark.cursor.parse().ok().map(|place: FeedPlace| Life::Feed(place.incarnation)),
            Err(_) if dialect.versions || has_log => None,
            Err(_) => Life::of_process(&statistics),
        };
        let items = statistics.iter().find(|(name, _)| name == "curr_items").and_then(|(_, count)| count.parse().ok());
        Ok(Self {
            endpoint: endpoint.clone(),
            has_versions: dialect.versions,
            has_log: feed.is_ok() && has_log,
            feed,
            items,
            region,
            life,
        })
    }

    /// Its address.
    pub fn name(&self) -> String {
        self.endpoint.address.to_string()
    }

    /// Refuses a server that has begun anew since this was asked, without what it was given.
    ///
    /// # Errors
    /// [`BulkError::BegunAnew`]; if it does not answer.
    pub fn check_life(&self) -> Result<(), BulkError> {
        let now = Self::look(&self.endpoint)?.life;
        match (self.life, now) {
            (Some(then), Some(now)) if !now.is(then) => Err(BulkError::BegunAnew { server: self.name() }),
            _ => Ok(()),
        }
    }

    /// The region in which writes of these servers' own are made, which all of them have in common. `wanted`: what the user says.
    ///
    /// # Errors
    /// [`BulkError::Unfit`] if one is of another region; if one that knows versions tells none, and the user says none.
    pub fn common_region<'a>(servers: impl IntoIterator<Item = &'a Self>, wanted: Option<u8>) -> Result<u8, BulkError> {
        let mut common = wanted;
        for server in servers.into_iter().filter(|server| server.has_versions) {
            let unfit = |reason: String| BulkError::Unfit { server: server.name(), reason };
            match (server.region, common) {
                (Some(region), None) => common = Some(region),
                (Some(region), Some(common)) if region != common => {
                    return Err(unfit(format!("is of region {region}, and not of region {common}")));
                }
                (None, None) => return Err(unfit("does not tell its region: say --region".to_owned())),
                _ => {}
            }
        }
        Ok(common.unwrap_or(0))
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
